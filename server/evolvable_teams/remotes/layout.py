"""The layout of a library in a git repository: folders that any tool reads, commits with trailers.

    skills/pdf/SKILL.md                 skill:pdf
    projects/acme/prompts/intro/...     prompt:acme/intro
    .evolvable/                         evidence, approvals and tombstones as JSON

A message is the operation's reason with the trailers Evolvable-Operation, -Actor and -Version.
Anybody can write such a message, so an actor in a trailer is history and grants nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from evolvable_store import Actor, Intent
from evolvable_store.errors import InvalidRef
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_name, check_scope

FOLDERS = {kind: f"{kind}s" for kind in Kind} | {Kind.MEMORY: "memories"}
_KINDS = {folder: kind for kind, folder in FOLDERS.items()}

BESIDE = ".evolvable"
"""The folder of the records that only this program reads."""

MAX_REASON = 4_000  # characters
MAX_VERSIONS = 1_000
"""Trailers with a version in one message."""

_SUBJECT = 200  # characters of the first line of a commit
_TRAILER = re.compile(r"Evolvable-([A-Za-z]+): (.{0,200})")
# .invalid is reserved (RFC 2606), so no mail goes to anybody.
_AUTHOR = "Evolvable ({}) <{}@evolvable.invalid>"


def folder_of(ref: Ref) -> str:
    """Return the folder of a resource in the repository."""
    folder = f"{FOLDERS[ref.kind]}/{ref.name}"
    return folder if ref.scope in (None, USER_SCOPE) else f"projects/{ref.scope}/{folder}"


def locate(path: str) -> Ref | None:
    """Return the resource that a file of the repository belongs to, None for any other file."""
    parts = path.split("/", 5)
    scope = USER_SCOPE
    if parts[0] == "projects" and len(parts) > 4:
        scope, parts = parts[1], parts[2:]
        # A folder projects/user would name the same resources a second time.
        if scope == USER_SCOPE:
            return None
    if len(parts) < 3 or parts[0] not in _KINDS:
        return None
    try:
        return Ref(_KINDS[parts[0]], check_name(_KINDS[parts[0]], parts[1]), check_scope(scope))
    except InvalidRef:
        return None


def may_hold_resources(folder: str) -> bool:
    """Return whether a folder of the repository may hold folders of resources, at any depth."""
    parts = folder.split("/")
    if parts[0] == "projects":
        return len(parts) < 3 or (len(parts) == 3 and parts[2] in _KINDS)
    return len(parts) == 1 and parts[0] in _KINDS


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The message of a commit. operation, actor: from its trailers, '' where it has none."""

    reason: str
    operation: str = ""
    actor: str = ""


def write_message(operation: str, intent: Intent, versions: Iterable[str]) -> bytes:
    """Return the message of a commit.

    operation: LIBRARY/NUMBER of the operation, '' for a merge. versions: the refs with the numbers
    that it made.
    """
    # One line, so that no reason can hold a line that looks like a trailer.
    reason = _replace_unprintable(" ".join(intent.reason.split()))
    head = reason if len(reason) <= _SUBJECT else f"{reason[: _SUBJECT - 3]}...\n\n{reason}"
    lines = [f"Evolvable-Operation: {operation}"] if operation else []
    lines.append(f"Evolvable-Actor: {intent.actor}")
    version_names = list(versions)
    lines += [f"Evolvable-Version: {name}" for name in version_names[:MAX_VERSIONS]]
    return "\n".join([head, "", *lines, ""]).encode("utf-8", "replace")


def read_message(data: bytes) -> CommitMessage:
    """Return the parts of the message of a commit that anybody may have made."""
    paragraphs = re.split(r"\n\s*\n", data[: 4 * MAX_REASON].decode("utf-8", "replace").strip())
    trailers = dict[str, str]()
    last_lines = paragraphs[-1].splitlines()
    if len(paragraphs) > 1 and all(_TRAILER.fullmatch(line) for line in last_lines):
        paragraphs.pop()
        for line in last_lines:
            name, _, value = line.partition(": ")
            trailers.setdefault(name, _replace_unprintable(value))
    # A long reason stands whole in the second paragraph: see `write_message`.
    is_cut = len(paragraphs) > 1 and paragraphs[0].endswith("...")
    text = paragraphs[1] if is_cut else " ".join(paragraphs)
    reason = _replace_unprintable(" ".join(text.split()))[:MAX_REASON]
    operation, actor = trailers.get("Evolvable-Operation", ""), trailers.get("Evolvable-Actor", "")
    return CommitMessage(reason, operation, actor if actor in set(Actor) else "")


def _replace_unprintable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def signature_line(intent: Intent) -> str:
    """Return the author of a commit and its time, as git's fast-import takes them."""
    return f"{_AUTHOR.format(intent.actor, intent.actor)} {seconds_of(intent.at)} +0000"


def seconds_of(at: str) -> int:
    """Return a stored time as seconds since 1970, 0 for a text that is no time."""
    try:
        return max(0, int(datetime.fromisoformat(at).timestamp()))
    except (ValueError, OverflowError, OSError):
        return 0
