"""The settings of a hook: where the library is, whether hooks are on, and how sessions are named.

A client waits for a hook, so this module, unlike `config`, imports next to nothing.
"""

import importlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from types import ModuleType

PROJECTS = "evolvable-projects"
"""The header of an HTTP request that names the projects of the client's directory: scopes, the
nearest first.
"""

HOME = "EVOLVABLE_HOME"
CONFIG = "EVOLVABLE_CONFIG"
"""Names a second file of settings beside the account's, for a library that is only tried."""
HOOKS = "EVOLVABLE_HOOKS"
REVIEW = "EVOLVABLE_REVIEW"
REVIEWING = "EVOLVABLE_REVIEWING"
"""Set for reviewer processes that we start: such a process queues and reviews no session, and
starts no reviewer.
"""

OFF = ("off", "no", "0", "none", "false")
"""What a person may write to switch something off."""


NO_ACCOUNT_HOME = (
    "This account has no home directory: HOME is not set, and the account database has no "
    "entry for it."
)


def expand_path(path: str) -> str:
    """Return an absolute path.

    Raise RuntimeError, as pathlib does, for a `~/` that stands for nothing.
    """
    expanded = os.path.expanduser(path)
    if path.startswith("~/") and expanded == path:
        # Else it would be a folder named ~ of the working directory.
        raise RuntimeError(NO_ACCOUNT_HOME)
    return os.path.abspath(expanded)


def library_home(environment: Mapping[str, str]) -> str:
    """Return the library's folder: EVOLVABLE_HOME, by default ~/.evolvable.

    For the address of a library in PostgreSQL, the folder that stands for it here, which need not
    exist.
    """
    value = environment.get(HOME) or "~/.evolvable"
    if value.startswith(ADDRESSES):
        return os.path.join(address_folders(), postgres_addresses().Address.parse(value).key)
    return expand_path(value)


def second_config(environment: Mapping[str, str] | None = None) -> str:
    """Return the path of the second file of settings, '' where EVOLVABLE_CONFIG names none."""
    value = (os.environ if environment is None else environment).get(CONFIG)
    return expand_path(value) if value else ""


ADDRESSES = ("postgresql://", "postgres://")
"""What the address of a library in PostgreSQL begins with, in place of a folder."""


def postgres_addresses() -> ModuleType:
    """Return the module of addresses.

    Few libraries lie in PostgreSQL, and a hook of the others does without it.
    """
    return importlib.import_module("evolvable_store.storage.address")


def address_folders() -> str:
    """Return the folder of the folders that stand for libraries in PostgreSQL."""
    return expand_path("~/.evolvable/postgres")


def is_review_process(environment: Mapping[str, str]) -> bool:
    """Return whether this process belongs to a reviewer that we started."""
    return bool(environment.get(REVIEWING))


def hooks_on(environment: Mapping[str, str]) -> bool:
    """Return whether hooks do anything: unless EVOLVABLE_HOOKS is off or this is a review."""
    value = environment.get(HOOKS) or "on"
    return not is_review_process(environment) and value.strip().lower() not in OFF


def reviews_on(environment: Mapping[str, str]) -> bool:
    """Return whether sessions are reviewed: unless EVOLVABLE_REVIEW is off or this is a review."""
    value = environment.get(REVIEW) or "handoff"
    return not is_review_process(environment) and value.strip().lower() not in OFF


BEARERS = ("token:", "oauth:")
"""What the sessions of bearers begin with: those with a token of the library, those of an
authorization server.
"""

CLIENT = "client:"
"""What comes before a client's own name of its session when it begins like a bearer's."""


def bearer_session(bearer: str, session: str | None) -> str:
    """Return the session of a bearer's call: the bearer, which begins as BEARERS, then the client's
    own session.
    """
    return f"{bearer}/{session}" if session else bearer


_CLIENT_KEYS = {"FACTORY_API_KEY": "FACTORY_API_KEY", "OPENAI_API_KEY": "QWEN_CODE_SESSION_ID"}
"""Key of a client's own model that it passes on to its servers -> the variable that marks this
client.

In other clients OPENAI_API_KEY is the person's own.
"""


def drop_client_keys(environment: MutableMapping[str, str], needed: Collection[str]) -> None:
    """Take the keys of clients' own models out of an environment, so that no child, log or report
    gets one.

    needed: variables that the person's configuration names for the library's models.
    """
    # Before any is removed: FACTORY_API_KEY is its own mark.
    marked = [key for key, mark in _CLIENT_KEYS.items() if environment.get(mark)]
    for key in marked:
        if key not in needed:
            environment.pop(key, None)


def client_session(session: str | None) -> str | None:
    """Return the session of a call for which no token was shown, as its client names it."""
    # A client must not name a session that looks like a bearer's.
    if session is not None and session.startswith(BEARERS):
        return f"{CLIENT}{session}"
    return session


_REPLACEMENTS = {
    "EVOLVABLE_FITS": "the threshold follows the size of the library, see docs/lookup.md",
    "EVOLVABLE_RERANKER": (
        "with an embedder (EVOLVABLE_EMBEDDER), late interaction orders the first matches"
    ),
    "EVOLVABLE_PROGRESS": (
        "progress is drawn only where stderr is a terminal: `2>&1 | cat` has none"
    ),
    "EVOLVABLE_JUDGE": (
        "`evolvable role model role judge NAME` says who judges; `off` and `caller` are names too"
    ),
    REVIEW: (
        f"`evolvable role model role reviewer NAME` says who reviews; only {', '.join(OFF)} "
        "count here"
    ),
}
"""Variable that is no longer read -> what replaces it. REVIEW with one of OFF is still read."""


def removed_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that is set and no longer read, with its replacement."""
    for name, instead in _REPLACEMENTS.items():
        # A value that switches reviews off is still read.
        switches_off = name == REVIEW and not reviews_on({name: environment.get(name, "")})
        if environment.get(name) and not switches_off:
            yield f"Hint: {name} is no longer read: {instead}."


def hint_at_removed_variables(environment: Mapping[str, str]) -> None:
    """Write these lines to stderr."""
    for line in removed_variables(environment):
        print(line, file=sys.stderr)
