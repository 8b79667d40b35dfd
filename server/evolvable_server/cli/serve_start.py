"""The start of `serve` on stdio: it begins to answer while the server is imported."""

import dataclasses
import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from evolvable_server.environment import drop_client_keys

if TYPE_CHECKING:
    from evolvable_server.config import Config
    from evolvable_server.mcp import FastStart

# Start time: `serve` imports its server after it began to answer.

LATE_VERBS = tuple(
    f"evolvable_tools.verbs.{name}" for name in ("edit", "proposal_inbox", "versions")
)
"""Modules of tools that change the library, which few clients call first: imported when called."""


def person_types() -> bool:
    """Return whether stdin is a terminal.

    A client may have started this process without any stdin.
    """
    return sys.stdin is not None and sys.stdin.isatty()


def serve_on_stdio(config: "Config") -> NoReturn:
    """Serve one client on stdin and stdout; end the process when the client is gone.

    Raise as Store.open.
    """
    from evolvable_server.config import process_session

    # Before anything is imported: no child, log or report gets such a key.
    drop_client_keys(os.environ, config.key_variables)
    if person_types():
        from evolvable_server.cli.terminal import remark

        remark(
            "Waiting for an MCP client on stdin; Ctrl-C ends it. `evolvable connect` has your "
            "client start it."
        )
    # The collector would look through all loaded modules several times during the imports, which
    # takes an eighth of the start. `return_free_memory` enables it again.
    gc.disable()
    early = _begin_fast_start(config)
    from evolvable_server.mcp import defer_modules, light_sdk

    defer_modules(*LATE_VERBS)
    with light_sdk():
        from evolvable_server.serving import serve_stdio

    # A client that names no session has the one of this process.
    serve_stdio(dataclasses.replace(config, session=config.session or process_session()), early)


def _begin_fast_start(config: "Config") -> "FastStart | None":
    """Begin to answer while the rest is imported; None where the full server has to answer.

    Raise before any answer what keeps the server from serving.
    """
    from evolvable_server.mcp import FastStart, can_start_fast
    from evolvable_server.person_config import registered_homes
    from evolvable_store import ADDRESS_FILE, LIBRARY_FILE, check_home
    from evolvable_store.storage import open_library

    if _has_settings_to_check(config):
        from evolvable_server.model_setup import approval_policies, open_search

        approval_policies(config)
        with open_search(config, serving=True):
            pass
    check_home(config.home, registered_homes, create=True)
    if (config.home / ADDRESS_FILE).exists():
        from evolvable_store import Store

        Store.open(config.home, create=True, registered=registered_homes).close()
    else:
        open_library(config.home / LIBRARY_FILE)[0].close()
    # The prepared list has neither further groups of tools nor a prefix before their names.
    has_other_tools = config.toolsets or config.tool_prefix
    return FastStart.begin() if can_start_fast() and not has_other_tools else None


def _has_settings_to_check(config: "Config") -> bool:
    """Return whether somebody set a model or a policy.

    Their modules take longer to import than the first answer.
    """
    models = config.embedder not in ("auto", "off") or config.judge not in ("auto", "off", "caller")
    return models or bool(config.review_policy or config.person.review_policy)
