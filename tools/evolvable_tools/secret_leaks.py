"""Secret leaks: which versions of the library hold a secret, what that blocks, and what agents do
not receive.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from evolvable_store import DetectedSecret, SecretFindings, SecretOccurrence
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.resource import Ref
from evolvable_tools import redaction
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction import certain_runs

RULES = 1
"""Counts up whenever the rules find something else. Every blob is then looked at once more."""

ENV_FILE = "env-file"
MAX_NAMED = 10  # secrets that a message names

# `.env` and its variants such as `.env.local`, without the endings that mark an example;
# `prod.env`.
_ENV = re.compile(
    r"(?:^|/)\.env(?:\.(?!example$|sample$|template$|dist$|defaults$)[\w.-]+)?$|(?:^|/)[\w-]+\.env$"
)


@dataclass(frozen=True, slots=True)
class LeakedSecret:
    """A secret in a file of a version.

    id: the same for the same secret anywhere. newest: of the resource's head.
    """

    id: str
    kind: str
    ref: str
    version: int
    path: str
    line: int
    newest: bool

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line else self.path
        what = "an environment file" if self.kind == ENV_FILE else f"a secret ({self.kind})"
        return f"{self.ref}@{self.version} {where}: {what} [{self.id}]"


def leak_id(secret: str) -> str:
    """Return the id of a secret: it reveals nothing of the secret, and is the same in
    every place.
    """
    # The prefix keeps the plain SHA-256 of a secret, which could be looked up, out of the id.
    data = b"evolvable secret\0" + secret.encode("utf-8", "replace")
    return "s" + hashlib.sha256(data).hexdigest()[:11]


def env_id(sha256: str) -> str:
    """Return the id of an environment file with this content."""
    return "e" + hashlib.sha256(b"evolvable env\0" + sha256.encode("ascii")).hexdigest()[:11]


def is_env_file(path: str) -> bool:
    """Return whether a file of this name holds settings that are not for others.

    A file of examples, such as .env.example, holds none.
    """
    return _ENV.search(path) is not None


def find_secrets(data: bytes) -> list[DetectedSecret]:
    """Return the certain secrets of a file. A binary file has none."""
    # Most files end here, after a search over their bytes.
    if b"\0" in data[:8_000] or not (b"PRIVATE KEY" in data or any(certain_runs(data))):
        return []
    text = data.decode("utf-8", "replace")
    rows = (
        (leak_id(text[start:end]), kind, text.count("\n", 0, start) + 1)
        for start, end, kind in spans(text)
    )
    return [DetectedSecret(*fields) for fields in rows]


def spans(text: str) -> list[tuple[int, int, str]]:
    """Return the places of the certain secrets of a text, with their kinds; none twice."""
    blocks = redaction.blocks(text, ()) if "PRIVATE KEY" in text else ()
    # A shorter block is an example, or a heading without its key.
    keys = [(start, end, "private-key") for start, end, _ in blocks if end - start >= 200]
    places: list[tuple[int, int, str]] = []
    for start, end, kind in (*keys, *redaction.find_certain(text)):
        if not any(start < after and before < end for before, after, _ in places):
            places.append((start, end, kind))
    return sorted(places)


def found_secrets(library: Library) -> SecretFindings:
    """Return the findings of a library."""
    return SecretFindings(library.store, find_secrets, RULES)


def leaks(
    library: Library, progress: Callable[[int, int], None] | None = None
) -> list[LeakedSecret]:
    """Return every open finding, after a scan of new versions.

    Old versions count. progress: called with the blobs scanned, and all.
    """
    found_secrets(library).scan_new(progress)
    return stored_leaks(library)


def stored_leaks(library: Library) -> list[LeakedSecret]:
    """Return every open finding of the scans so far."""
    log = found_secrets(library)
    return [
        *map(as_leak, log.list_occurrences()),
        *_find_env_files(library, log.accepted_findings()),
    ]


def as_leak(occurrence: SecretOccurrence) -> LeakedSecret:
    """Return a stored finding with its place."""
    finding = occurrence.found
    return LeakedSecret(
        finding.id,
        finding.kind,
        str(occurrence.ref),
        occurrence.version,
        occurrence.path,
        finding.line,
        occurrence.newest,
    )


def _find_env_files(library: Library, accepted: Collection[str]) -> Iterable[LeakedSecret]:
    # The pattern of SQL finds too many; `is_env_file` decides.
    for ref, version, path, sha256, newest in found_secrets(library).locate_paths("%.env%"):
        if is_env_file(path) and env_id(sha256) not in accepted:
            yield LeakedSecret(env_id(sha256), ENV_FILE, str(ref), version, path, 0, newest)


def leak_messages(found: Collection[LeakedSecret]) -> list[str]:
    """Return a warning for each secret, with one place of it and how many more there are.

    No warning holds the secret itself.
    """
    by_id: dict[str, list[LeakedSecret]] = {}
    # The place in the newest version first, since that is the one to repair.
    for leak in sorted(found, key=lambda secret: (not secret.newest, secret.ref, -secret.version)):
        by_id.setdefault(leak.id, []).append(leak)
    more = {
        id: f" and {len(places) - 1} more places" for id, places in by_id.items() if len(places) > 1
    }
    lines = [f"{places[0]}{more.get(id, '')}" for id, places in by_id.items()]
    if len(lines) <= MAX_NAMED:
        return lines
    return [*lines[:MAX_NAMED], f"{len(lines) - MAX_NAMED} more secrets"]


NEXT = (
    "`evolvable care purge --secret ID` removes one, `evolvable care purge --accept ID` keeps it;"
    " replace it where it was issued."
)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A resource that stays in the library because of its open findings.

    secrets: each with its place and its id.
    """

    ref: str
    secrets: list[str]

    def __str__(self) -> str:
        return f"{self.ref} is left out: {'; '.join(self.secrets)}"


def held_back(library: Library, refs: Iterable[Ref], *, history: bool = False) -> list[HeldBack]:
    """Return which resources may not leave the library, each with its open findings.

    refs: what leaves; with a version that one, without one the newest. history: every version
    leaves, not only the newest.
    """
    leaving = {(str(ref.at(None)), ref.version) for ref in refs}
    leaks_by_ref: dict[str, list[LeakedSecret]] = {}
    for leak in leaks(library):
        leaves_whole = (leak.ref, None) in leaving and (history or leak.newest)
        if leaves_whole or (leak.ref, leak.version) in leaving:
            leaks_by_ref.setdefault(leak.ref, []).append(leak)
    return [HeldBack(ref, leak_messages(found)) for ref, found in sorted(leaks_by_ref.items())]


def check_anything_leaves(
    what: str, withheld: Collection[HeldBack], leaving: Collection[object]
) -> None:
    """Raise Refused where everything that was to leave the library is held back.

    leaving: what is not.
    """
    if withheld and not leaving:
        secrets = "; ".join(
            secret for resource in list(withheld)[:MAX_NAMED] for secret in resource.secrets
        )
        raise Refused(f"{what} would carry secrets: {secrets}.", NEXT)


def is_released(library: Library, sha256: str) -> bool:
    """Return whether an environment file may be shown: a person accepted or purged it."""
    purged = library.store.backend.purges.tombstone(sha256) is not None
    return purged or env_id(sha256) in found_secrets(library).accepted_findings()


def check_served(
    library: Library, caller: Caller | None, ref: Ref, version: int, path: str, sha256: str
) -> None:
    """Raise Refused where anybody but a person asks for an environment file that no person
    released.

    caller: None for a client that reads MCP resources.
    """
    if (caller is not None and caller.decides) or not is_env_file(path):
        return
    if is_released(library, sha256):
        return
    raise Refused(
        f"{path} of {ref.at(version)} is an environment file; agents are not given it before a "
        "person released it.",
        "Work without it, and tell the user which setting is needed.",
    )


def accept_leak(library: Library, caller: Caller, id: str, reason: str) -> list[LeakedSecret]:
    """Accept a finding: it blocks nothing any more.

    Raises InvalidArgument; Refused for callers other than a person, and without the passphrase of a
    lock.
    """
    check_may_decide(caller, "decide on a secret")
    open_findings = [leak for leak in leaks(library) if leak.id == id]
    if not open_findings:
        raise InvalidArgument(
            f"There is no open finding {ascii(id[:40])}.",
            "`evolvable care purge --list` shows them.",
        )
    library.authorise(caller, "Keeping a secret")
    found_secrets(library).accept(id, caller.actor.value, library.redact(reason))
    library.record(caller, "accept secret", f"finding {id}")
    return open_findings


def check_may_decide(caller: Caller, what: str) -> None:
    """Raise Refused unless the caller may decide what is a person's to decide."""
    if not caller.decides:
        raise Refused(f"Only a person may {what}.", "Tell the user; this is theirs to do.")
