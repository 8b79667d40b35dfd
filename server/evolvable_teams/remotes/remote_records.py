"""What lies beside the resources in a remote, as JSON in a folder for each library.

    .evolvable/LIBRARY/evidence.jsonl     uses and outcomes by content; elsewhere they count nothing
    .evolvable/LIBRARY/approvals.json     contents that a person wrote or approved, signed where
                                          approvals are locked
    .evolvable/LIBRARY/tombstones.json    what was purged, by hash
    .evolvable/LIBRARY/learned.jsonl      learned tasks, where a person chose them
    .evolvable/LIBRARY/looks.jsonl        which test tasks were opened, as hashes of words; can only
    raise a look

Anybody who may push can write any of it. Only a signature by a key that the person listed makes an
approval count.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from evolvable_store import MAX_FILE, Head, Tombstone
from evolvable_store.bundle import SHAPES, check_evidence, import_evidence
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.storage import TaskSource
from evolvable_teams.remotes.layout import BESIDE
from evolvable_tools import ApprovalsLock, Caller, Library, authorships

RECORDS = ("evidence.jsonl", "approvals.json", "tombstones.json", "learned.jsonl", "looks.jsonl")

# A bound for memory: anybody who may push can write these files.
MAX_RECORDS = 200_000
"""Records of one file that are read."""

_READ = r"evidence\.jsonl|approvals\.json|tombstones\.json|looks\.jsonl"
_FILE = re.compile(rf"{re.escape(BESIDE)}/([0-9a-f]{{1,40}})/({_READ})")
_HASH = re.compile(r"[0-9a-f]{64}")
_PERSON, _APPROVED = "person", "approved"
"""The words of the records for a content that a person wrote, and for one that a person
approved.
"""

_QUOTES = ("evidence", "task_type")
"""Fields of evidence that may hold words of a session."""

_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode

Chooses = Callable[[Ref], bool]


@dataclass(frozen=True, slots=True)
class SignedApproval:
    """A person's decision for a content.

    tree: its identity in every library. signature: '' where none was made.
    """

    ref: str
    tree: str
    at: str
    trust: str
    key: str = ""
    signature: str = ""

    @property
    def statement(self) -> bytes:
        """What is signed."""
        return json.dumps(["evolvable approval", 1, self.ref, self.tree, self.at]).encode("ascii")

    def is_signed_by(self, keys: Collection[str]) -> bool:
        """Return whether one of these public keys signed it."""
        try:
            return self.key in keys and ApprovalsLock(self.key).verify(
                self.statement, bytes.fromhex(self.signature)
            )
        except (ValueError, EvolvableError):
            return False


class LookRecords(Protocol):
    """The looks at sealed tests, which belong to evolution."""

    def export(self, library: Library, caller: Caller, refs: Sequence[Ref]) -> bytes:
        """Return the lines about the tasks of these resources."""
        ...

    def add(self, home: Path, lines: bytes) -> object:
        """Add the lines of another library to those of the library in `home`.

        They can only raise a look.
        """
        ...


def write_records(
    library: Library,
    caller: Caller,
    chooses: Chooses,
    parts: Collection[str],
    before: Mapping[str, bytes],
    looks: LookRecords | None,
    held_back: Collection[Ref] = (),
) -> dict[str, bytes]:
    """Return the files of this library, by name. before: those that the remote has, whose
    signatures are kept.

    parts: what the person chose to send besides. held_back: resources whose newest version the
    remote does not get; their approvals there stay as they are. Raises as `Caller.signer.unlock`.
    """
    heads = {head.id: head for head in library.store.heads() if chooses(head.ref)}
    files = {
        "evidence.jsonl": _lines(_evidence(library, chooses, parts)),
        "approvals.json": _document(
            _approvals(library, caller, heads, before.get("approvals.json", b""), held_back)
        ),
        "tombstones.json": _document(_tombstones(library)),
        "learned.jsonl": _lines(_learned_tasks(library, heads)) if "learned" in parts else b"",
        "looks.jsonl": looks.export(library, caller, [head.ref for head in heads.values()])
        if looks
        else b"",
    }
    return {name: data for name, data in files.items() if data or before.get(name)}


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{_line(record)}\n" for record in records).encode(
        "utf-8",
        "replace",
    )


def _document(records: Iterable[Mapping[str, Any]]) -> bytes:
    lines = [_line(record) for record in records]
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode("utf-8", "replace") if lines else b""


def _evidence(
    library: Library, chooses: Chooses, parts: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield the evidence of this library's own sessions.

    A version is named by its content, whose number differs.
    """
    trees: dict[Ref, dict[int, str]] = {}
    kinds = ("use", "outcome", *(("sighting",) if "sessions" in parts else ()))
    for kind in kinds:
        columns = [column for column in SHAPES[kind] if column != "ref"]
        for ref, values in library.store.backend.evidence.export_rows(kind, [*columns, "origin"]):
            row = dict(zip(columns, values, strict=False))
            # Evidence that was imported stays its owner's: it would else come back to them as
            # another's.
            if ref is None or values[-1] == "import" or not chooses(ref):
                continue
            if ref not in trees:
                trees[ref] = _numbers(library, ref)
            tree = trees[ref].get(row.pop("version"))
            if tree is not None:
                yield {"type": kind, "ref": str(ref), "tree": tree} | _without_words(row, parts)


def _without_words(row: dict[str, Any], parts: Collection[str]) -> dict[str, Any]:
    hidden = (
        *(() if "quotes" in parts else _QUOTES),
        *(() if "sessions" in parts else ("session", "search")),
    )
    return {key: None if key in hidden else value for key, value in row.items()}


def _numbers(library: Library, ref: Ref) -> dict[int, str]:
    head = library.store.head_or_none(ref)
    versions = library.store.backend.versions(head.id, 100_000) if head is not None else []
    return {version.number: version.tree for version in versions}


def _approvals(
    library: Library,
    caller: Caller,
    heads: Mapping[int, Head],
    before: bytes,
    held_back: Collection[Ref],
) -> Iterator[dict[str, Any]]:
    earlier = {(approval.ref, approval.tree): approval for approval in read_approvals(before)}
    unchanged_refs = set(map(str, held_back))
    yield from (asdict(approval) for approval in earlier.values() if approval.ref in unchanged_refs)
    heads = {
        identity: head for identity, head in heads.items() if str(head.ref) not in unchanged_refs
    }
    signer = caller.signer if library.lock is not None else None
    # Levels of 10,000 heads take a second. Anybody who may push can write the file, so what is
    # signed is looked up.
    written = (
        {key for key, approval in earlier.items() if approval.trust == _PERSON}
        if signer is None
        else set()
    )
    authors = authorships(
        library,
        [
            listed_head.id
            for listed_head in heads.values()
            if (str(listed_head.ref), listed_head.tree) not in written
        ],
    )
    for identity, head in sorted(
        heads.items(),
        key=lambda item: str(item[1].ref),
    ):
        author = authors.get(identity)
        if author is not None and not author.stands:
            continue
        level = _APPROVED if author is not None and author.approved else _PERSON
        current = earlier.get((str(head.ref), head.tree))
        if current is None or (signer is not None and current.key != signer.key):
            current = SignedApproval(str(head.ref), head.tree, library.store.now(), level)
            if signer is not None:
                signer.unlock()
                signature = signer.sign(current.statement).hex()
                current = SignedApproval(
                    current.ref, current.tree, current.at, current.trust, signer.key, signature
                )
        yield {
            name: getattr(current, name)
            for name in ("ref", "tree", "at", "trust", "key", "signature")
        }


def _tombstones(library: Library) -> Iterator[dict[str, Any]]:
    for name, size, stone in library.store.backend.purges.tombstones():
        facts = {"at": stone.at, "actor": stone.actor, "reason": stone.reason, "kind": stone.kind}
        yield {"sha256": name, "size": size, **facts}


def _learned_tasks(library: Library, heads: Mapping[int, Head]) -> Iterator[dict[str, Any]]:
    for resource, tasks in sorted(library.store.backend.learned.tasks_of(heads).items()):
        # What transcripts taught stays on this machine, as the person was told.
        for task in (
            task for task in tasks if not task.held_out and task.source is not TaskSource.TRANSCRIPT
        ):
            yield {
                "ref": str(heads[resource].ref),
                "task": task.task,
                "at": task.at,
                "against": task.against,
            }


@dataclass(slots=True)
class IncomingRecords:
    """What lies beside the resources of a remote.

    stones: by hash, with the size that the bytes had.
    """

    approvals: dict[tuple[str, str], list[SignedApproval]] = field(default_factory=dict)
    stones: dict[str, tuple[Tombstone, int]] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    looks: list[bytes] = field(default_factory=list)

    def is_approved(self, ref: Ref, tree: str, keys: Collection[str]) -> bool:
        """Return whether the owner of one of these keys approved a content."""
        return any(
            approval.is_signed_by(keys) for approval in self.approvals.get((str(ref), tree), ())
        )


def read_records(
    paths: Iterable[str], read: Callable[[str], bytes], own: str, keys: Collection[str]
) -> IncomingRecords:
    """Return the records in these files; what is damaged or unknown is left out.

    own: this library's own folder. keys: those that the person listed; approvals are read where
    there are any.
    """
    found = IncomingRecords()
    for path in paths:
        match = _FILE.fullmatch(path)
        if match is None or match[1] == own or (match[2] == "approvals.json" and not keys):
            continue
        data = read(path)
        if match[2] == "approvals.json":
            for approval in read_approvals(data):
                found.approvals.setdefault((approval.ref, approval.tree), []).append(approval)
        elif match[2] == "tombstones.json":
            found.stones |= dict(_read_stones(data))
        elif match[2] == "looks.jsonl":
            found.looks.append(data)
        else:
            found.evidence += _read_lines(data)
    return found


def is_record(path: str) -> bool:
    """Return whether a file of a remote is one of those that are read."""
    return _FILE.fullmatch(path) is not None


def _read_document(data: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(data) if data else []
    except (ValueError, RecursionError):
        return []
    return (
        [record for record in document if isinstance(record, dict)][:MAX_RECORDS]
        if isinstance(document, list)
        else []
    )


def _read_lines(data: bytes) -> list[dict[str, Any]]:
    found = []
    for line in data.split(b"\n", MAX_RECORDS)[:MAX_RECORDS]:
        try:
            record = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def read_approvals(data: bytes) -> list[SignedApproval]:
    """Return the approvals in a file; their signatures are not checked."""
    names = ("ref", "tree", "at", "trust", "key", "signature")
    rows = ([record.get(name) for name in names] for record in _read_document(data))
    return [
        SignedApproval(*map(str, row))
        for row in rows
        if all(isinstance(value, str) for value in row)
    ]


def _read_stones(data: bytes) -> Iterator[tuple[str, tuple[Tombstone, int]]]:
    for record in _read_document(data):
        name, size = str(record.get("sha256")), record.get("size")
        # `type` and not isinstance: True is an int.
        if not _HASH.fullmatch(name) or type(size) is not int or not 0 <= size <= MAX_FILE:
            continue
        at, actor, reason, kind = (
            str(record.get(key, ""))[:1_000] for key in ("at", "actor", "reason", "kind")
        )
        notice = (
            f"[This file was purged elsewhere on {at[:10]} by {actor[:40]}: {reason}]\n".encode(
                "utf-8", "replace"
            )
        )
        yield name, (Tombstone(at, actor, reason, kind, notice), size)


def purged_hashes(data: bytes) -> set[str]:
    """Return the hashes in a file of tombstones."""
    return {name for name, _ in _read_stones(data)}


def import_records(
    library: Library, records: IncomingRecords, chooses: Chooses, looks: LookRecords | None
) -> None:
    """Add the evidence of others as history that counts nothing, as far as it is about contents
    that are here.

    Their looks at test tasks are added to those of this library.
    """
    if looks is not None:
        for lines in records.looks:
            looks.add(library.store.home, lines)
    resources: dict[str, tuple[int, int]] = {}
    import_evidence(
        library.store,
        list(_number_records(library, records.evidence, chooses, resources)),
        resources,
    )


def _number_records(
    library: Library,
    records: Iterable[dict[str, Any]],
    chooses: Chooses,
    resources: dict[str, tuple[int, int]],
) -> Iterator[dict[str, Any]]:
    numbers: dict[str, dict[str, int]] = {}
    for record in records:
        try:
            ref = Ref.parse(str(record.get("ref"))[:200]).at(None)
            ref = ref if ref.scope else ref.within(USER_SCOPE)
            name = str(ref)
            if not chooses(ref):
                continue
            if name not in numbers:
                head = library.store.head_or_none(ref)
                trees = {tree: number for number, tree in _numbers(library, ref).items()}
                numbers[name] = trees
                resources[name] = (head.id, head.latest) if head else (0, 0)
            number = numbers[name].get(str(record.get("tree")), 0)
            checked = check_evidence({**record, "ref": name, "version": number}) if number else None
        except EvolvableError:
            continue
        if checked is not None and checked["type"] in ("use", "outcome", "sighting"):
            yield checked
