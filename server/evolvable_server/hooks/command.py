"""The command `evolvable-hook`, which a client runs where it cannot call the server.

A client waits for it, so every import is late, and queueing a review needs the standard library
alone. It always ends with 0: a hook must never stop a person's work.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from evolvable_server.environment import (
    NO_ACCOUNT_HOME,
    client_session,
    hooks_on,
    library_home,
    reviews_on,
)

# Far above what clients send: a prompt, or the input of a tool.
MAX_INPUT = 16 * 2**20
"""Bytes of a payload that are read."""

USUAL = ("claude-code", "codex")
"""Clients whose names of events and fields need no translation."""

QUEUED = ("Stop", "SessionEnd")
"""Events that only queue a review."""

ENDED = "SessionEnd"
"""The event after which an automatic review may begin: after the others a session goes on."""


def main() -> None:
    """Run the hook `evolvable-hook [EVENT [CLIENT]]` with the payload on stdin, and end the process
    with 0.
    """
    try:
        answer = run(sys.argv[1:])
        sys.stdout.write(answer)
        sys.stdout.flush()
    # SystemExit and KeyboardInterrupt too: a hook always ends with 0.
    except BaseException as error:
        # stderr of a hook that succeeds is shown to nobody who did not ask for it.
        message = f"{type(error).__name__}: {ascii(str(error))[:300]}"
        # Path.home raises RuntimeError for an account without a home directory.
        if isinstance(error, RuntimeError) and os.path.expanduser("~") == "~":
            message = NO_ACCOUNT_HOME
        os.write(2, f"evolvable-hook: {message}\n".encode())
    # The interpreter's own end takes time, and could still fail.
    os._exit(0)


def run(arguments: Sequence[str]) -> str:
    """Record the event of the payload on stdin, and return the answer for the client, '' for
    none.
    """
    if not hooks_on(os.environ):
        return ""
    payload = _read_payload()
    client = arguments[1] if len(arguments) > 1 else _guess_client(payload)
    event: object = arguments[0] if arguments else payload.get("hook_event_name")
    if client not in USUAL:
        from evolvable_server.hooks.payload_forms import usual_event, usual_payload

        payload, event = usual_payload(client, payload), usual_event(client, event)
    payload["event"] = payload["hook_event_name"] = event
    payload["client"] = client
    session = payload.get("session_id")
    payload["session_id"] = client_session(session) if isinstance(session, str) else None
    if event in QUEUED:
        if not reviews_on(os.environ):
            return ""
        from evolvable_store import enqueue

        home = library_home(os.environ)
        if not _is_plain(home):
            _check_home(home)
        if enqueue(home, payload) and event == ENDED:
            from evolvable_server.auto_switch import start_if_on

            start_if_on(home, payload.get("cwd"))
        return ""
    from evolvable_server.hooks.dispatch import answer_without_server

    return answer_without_server(payload)


def _is_plain(home: str) -> bool:
    """Return whether a home is this account's and in no work tree.

    Any other home is checked by `check_home`, which needs more imports.
    """
    folder = os.path.realpath(home)
    with suppress(OSError):
        if os.name == "posix" and os.stat(folder).st_uid != os.geteuid():
            return False
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return True
        folder = os.path.dirname(folder)
    return False


def _check_home(home: str) -> None:
    """Raise UntrustedHome for a home that another account or a repository decides about."""
    from evolvable_server.person_config import registered_homes
    from evolvable_store import check_home

    check_home(home, registered_homes)


def _read_payload() -> dict[str, object]:
    """Return the JSON object on stdin, {} when there is none."""
    import json

    # Started by hand: nothing comes on stdin.
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    try:
        payload = json.loads(sys.stdin.buffer.read(MAX_INPUT).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _guess_client(payload: dict[str, object]) -> str:
    """Return the client that sent a payload, by the name of its transcript."""
    name = os.path.basename(str(payload.get("transcript_path") or ""))
    # Codex names its transcripts so.
    return "codex" if name.startswith("rollout-") else "claude-code"
