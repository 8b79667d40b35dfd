"""Whether a person lets their library learn from the transcripts of their clients.

The answer lies in the library's folder, on this machine: a backup does not carry it. A library in
PostgreSQL has none: prompts would leave the machine. Only the clients' own folders are read: an
agent can name any file to a review.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

from evolvable_server.client_folders import read_client_homes
from evolvable_server.config import Config, is_person, own_transcripts
from evolvable_server.person_config import account_home
from evolvable_store import ADDRESS_FILE, read_regular, write_private
from evolvable_store.errors import Refused

CONSENT = "learning.json"
"""File in the library's folder: {"from_sessions": true or false, "clients": "all"}.

Without `clients` the question named Claude Code and Codex, and a yes covers these two.
"""

# An answer has less than a hundred.
_MAX = 4096
"""Bytes of the answer that are read."""


def consent(home: Path) -> bool | None:
    """Return whether the person lets the library in `home` learn from transcripts; None where
    nobody was asked.
    """
    if is_shared(home):
        return False
    answer = _read_answer(home).get("from_sessions")
    return answer if isinstance(answer, bool) else None


def _read_answer(home: Path) -> dict[str, object]:
    """Return the fields of the stored answer, {} where there is none or it cannot be read."""
    try:
        answer = json.loads(read_regular(home / CONSENT, _MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _covers_all(home: Path) -> bool:
    """Return whether the answer covers all clients, True also where nobody was asked."""
    answer = _read_answer(home)
    return answer.get("from_sessions") is not True or answer.get("clients") == "all"


def set_consent(home: Path, answer: bool) -> None:
    """Store what the person answered. Raise Refused for a library that others share."""
    # A no needs no check: nothing is read then.
    if answer:
        check_own(home)
    write_private(home / CONSENT, json.dumps({"from_sessions": answer, "clients": "all"}) + "\n")


def is_shared(home: Path) -> bool:
    """Return whether the library of a folder lies in a database that others can read."""
    return (home / ADDRESS_FILE).exists()


def check_own(home: Path) -> None:
    """Raise Refused for a library that lies in PostgreSQL."""
    if is_shared(home):
        raise Refused(
            "This library lies in PostgreSQL, so the prompts of your sessions would leave "
            "this machine.",
            "Nothing was read. A library of your own learns from them.",
        )


class TranscriptPlaces(NamedTuple):
    """Where the clients of this account write transcripts. user: the home folder."""

    user: Path
    folders: tuple[Path, ...]


def transcript_places(config: Config) -> TranscriptPlaces:
    """Return where the clients that the person's yes covers write their transcripts.

    A project can set HOME and the variables of clients for a server. So they count for a person at
    a terminal alone.
    """
    homes = read_client_homes(config, unasked=True)
    user, claude, codex = homes.user, homes.claude, homes.codex
    # Without a person, the account database and the configuration say where the clients are.
    if not is_person() and (account := account_home()) is not None:
        places = config.person.clients
        user = account
        claude = places.get("claude") or account / ".claude"
        codex = places.get("codex") or account / ".codex"
    movable = (
        user / ".copilot/session-state",
        user / ".local/share/opencode",
        user / ".kimi-code/sessions",
    )
    others = (*movable, *own_transcripts(user))
    covered = others if _covers_all(config.home) else ()
    return TranscriptPlaces(user, (claude / "projects", codex / "sessions", *covered))


def may_teach(config: Config, transcript: Path) -> bool:
    """Return whether the library may learn from a transcript.

    The person has to have agreed, and one of their clients to have written the file.
    """
    # Resolved, because a link in a client's folder may lead to any file.
    real = Path(os.path.realpath(transcript))
    folders = (os.path.realpath(folder) for folder in transcript_places(config).folders)
    return bool(consent(config.home)) and any(real.is_relative_to(folder) for folder in folders)
