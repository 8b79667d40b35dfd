"""The records beside the resources in a remote, as JSON in a folder for each library.

    .evolvable/LIBRARY/evidence.jsonl     uses and outcomes by content; elsewhere they count nothing
    .evolvable/LIBRARY/approvals.json     contents that a person wrote or approved, signed where
                                          approvals are locked
    .evolvable/LIBRARY/tombstones.json    blobs that were purged, by hash
    .evolvable/LIBRARY/learned.jsonl      learned tasks, where a person chose them
    .evolvable/LIBRARY/looks.jsonl        which test tasks were opened, as hashes of words; these
                                          can only raise a look

Anybody who may push can write any of it. Only a signature by a key that the person listed makes an
approval count.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
"""Values of `trust`: a content that a person wrote, and one that a person approved."""

_QUOTES = ("evidence", "task_type")
"""Fields of evidence that may hold words of a session."""

_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode

Chooses = Callable[[Ref], bool]
"""Returns whether a resource goes to a remote, and may come from it."""


@dataclass(frozen=True, slots=True)
class SignedApproval:
    """A person's decision for a content.

    tree: the identity of the content in every library. trust: `person` or `approved`. key,
    signature: '' where none was made.
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


_APPROVAL_FIELDS = ("ref", "tree", "at", "trust", "key", "signature")


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
    """Return the files of this library, by name.

    parts: the optional parts that the person chose to send. before: the files that the remote has,
    whose signatures are kept. held_back: resources whose newest version the remote does not get;
    their approvals there stay as they are. Raises as `Caller.signer.unlock`.
    """
    heads = {head.id: head for head in library.store.heads() if chooses(head.ref)}
    refs = [head.ref for head in heads.values()]
    approvals = _approvals(library, caller, heads, before.get("approvals.json", b""), held_back)
    files = {
        "evidence.jsonl": _lines(_evidence(library, chooses, parts)),
        "approvals.json": _document(approvals),
        "tombstones.json": _document(_tombstones(library)),
        "learned.jsonl": _lines(_learned_tasks(library, heads)) if "learned" in parts else b"",
        "looks.jsonl": looks.export(library, caller, refs) if looks else b"",
    }
    return {name: data for name, data in files.items() if data or before.get(name)}


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{_line(record)}\n" for record in records).encode("utf-8", "replace")


def _document(records: Iterable[Mapping[str, Any]]) -> bytes:
    lines = [_line(record) for record in records]
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode("utf-8", "replace") if lines else b""


def _evidence(
    library: Library, chooses: Chooses, parts: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield the evidence of this library's own sessions.

    A version is named by its content, because its number differs between libraries.
    """
    trees: dict[Ref, dict[int, str]] = {}
    kinds = ("use", "outcome", *(("sighting",) if "sessions" in parts else ()))
    for kind in kinds:
        columns = [column for column in SHAPES[kind] if column != "ref"]
        for ref, values in library.store.backend.evidence.export_rows(kind, [*columns, "origin"]):
            row = dict(zip(columns, values, strict=False))
            # Imported evidence is not sent: it would come back to its owner as another library's.
            if ref is None or values[-1] == "import" or not chooses(ref):
                continue
            if ref not in trees:
                trees[ref] = _trees_by_number(library, ref)
            tree = trees[ref].get(row.pop("version"))
            if tree is not None:
                yield {"type": kind, "ref": str(ref), "tree": tree} | _without_words(row, parts)


def _without_words(row: dict[str, Any], parts: Collection[str]) -> dict[str, Any]:
    hidden = (
        *(() if "quotes" in parts else _QUOTES),
        *(() if "sessions" in parts else ("session", "search")),
    )
    return {key: None if key in hidden else value for key, value in row.items()}


def _trees_by_number(library: Library, ref: Ref) -> dict[int, str]:
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
    heads = {id_: head for id_, head in heads.items() if str(head.ref) not in unchanged_refs}
    signer = caller.signer if library.lock is not None else None
    # The author of a head is looked up unless the remote's file says that a person wrote it: the
    # look-up takes longest. Anybody who may push can write that file, so every head is looked up
    # before it is signed.
    written = set[tuple[str, str]]()
    if signer is None:
        written = {key for key, approval in earlier.items() if approval.trust == _PERSON}
    unknown = [head for head in heads.values() if (str(head.ref), head.tree) not in written]
    authors = authorships(library, [head.id for head in unknown])
    for identity, head in sorted(heads.items(), key=lambda item: str(item[1].ref)):
        author = authors.get(identity)
        if author is not None and not author.stands:
            continue
        trust = _APPROVED if author is not None and author.approved else _PERSON
        approval = earlier.get((str(head.ref), head.tree))
        if approval is None or (signer is not None and approval.key != signer.key):
            approval = SignedApproval(str(head.ref), head.tree, library.store.now(), trust)
            if signer is not None:
                signer.unlock()
                signature = signer.sign(approval.statement).hex()
                approval = replace(approval, key=signer.key, signature=signature)
        yield {name: getattr(approval, name) for name in _APPROVAL_FIELDS}


def _tombstones(library: Library) -> Iterator[dict[str, Any]]:
    for name, size, stone in library.store.backend.purges.tombstones():
        facts = {"at": stone.at, "actor": stone.actor, "reason": stone.reason, "kind": stone.kind}
        yield {"sha256": name, "size": size, **facts}


def _learned_tasks(library: Library, heads: Mapping[int, Head]) -> Iterator[dict[str, Any]]:
    for resource, tasks in sorted(library.store.backend.learned.tasks_of(heads).items()):
        ref = str(heads[resource].ref)
        for task in tasks:
            # The tasks of transcripts stay on this machine, as the person was told.
            if not task.held_out and task.source is not TaskSource.TRANSCRIPT:
                yield {"ref": ref, "task": task.task, "at": task.at, "against": task.against}


@dataclass(slots=True)
class IncomingRecords:
    """The records that lie beside the resources of a remote.

    approvals: by ref and tree. stones: tombstones by hash, with the size that the bytes had.
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
    """Return the records in these files, without damaged and unknown ones.

    read: returns the content of a file. own: this library's own folder, which is skipped. keys:
    those that the person listed; without any no approval is read.
    """
    records = IncomingRecords()
    for path in paths:
        match = _FILE.fullmatch(path)
        if match is None or match[1] == own or (match[2] == "approvals.json" and not keys):
            continue
        data = read(path)
        if match[2] == "approvals.json":
            for approval in read_approvals(data):
                records.approvals.setdefault((approval.ref, approval.tree), []).append(approval)
        elif match[2] == "tombstones.json":
            records.stones |= dict(_read_stones(data))
        elif match[2] == "looks.jsonl":
            records.looks.append(data)
        else:
            records.evidence += _read_lines(data)
    return records


def is_record(path: str) -> bool:
    """Return whether a file of a remote is one of the records that are read."""
    return _FILE.fullmatch(path) is not None


def _read_document(data: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(data) if data else []
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, list):
        return []
    return [record for record in document if isinstance(record, dict)][:MAX_RECORDS]


def _read_lines(data: bytes) -> list[dict[str, Any]]:
    records = []
    for line in data.split(b"\n", MAX_RECORDS)[:MAX_RECORDS]:
        try:
            record = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def read_approvals(data: bytes) -> list[SignedApproval]:
    """Return the approvals in a file; their signatures are not checked."""
    rows = ([record.get(name) for name in _APPROVAL_FIELDS] for record in _read_document(data))
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
        text = f"[This file was purged elsewhere on {at[:10]} by {actor[:40]}: {reason}]\n"
        notice = text.encode("utf-8", "replace")
        yield name, (Tombstone(at, actor, reason, kind, notice), size)


def purged_hashes(data: bytes) -> set[str]:
    """Return the hashes in a file of tombstones."""
    return {name for name, _ in _read_stones(data)}


def import_records(
    library: Library, records: IncomingRecords, chooses: Chooses, looks: LookRecords | None
) -> None:
    """Add the evidence of others about contents of this library, as history that counts nothing.

    Their looks at test tasks are added to those of this library.
    """
    if looks is not None:
        for lines in records.looks:
            looks.add(library.store.home, lines)
    resources: dict[str, tuple[int, int]] = {}
    numbered = list(_number_records(library, records.evidence, chooses, resources))
    import_evidence(library.store, numbered, resources)


def _number_records(
    library: Library,
    records: Iterable[dict[str, Any]],
    chooses: Chooses,
    resources: dict[str, tuple[int, int]],
) -> Iterator[dict[str, Any]]:
    """Yield the records about contents that are here, each with the version's number here.

    Add the id and the newest version of each resource to `resources`, by its ref.
    """
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
                trees = _trees_by_number(library, ref)
                numbers[name] = {tree: number for number, tree in trees.items()}
                resources[name] = (head.id, head.latest) if head else (0, 0)
            number = numbers[name].get(str(record.get("tree")), 0)
            checked = check_evidence({**record, "ref": name, "version": number}) if number else None
        except EvolvableError:
            continue
        if checked is not None and checked["type"] in ("use", "outcome", "sighting"):
            yield checked
