"""Purge: take a file or a secret out of every version and out of everything below the library's
home.
"""

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from filelock import FileLock, Timeout

from evolvable_store import (
    LIBRARY_FILE,
    MIRRORS,
    DetectedSecret,
    Head,
    Store,
    blobs_with,
    holds_text,
    purge_content,
    read_regular,
    unpack_archive,
    without_texts,
)
from evolvable_store.bundle import open_atomic
from evolvable_store.errors import InvalidArgument, NoSuchFile
from evolvable_store.resource import Ref, main_file
from evolvable_store.search import EARLIER_INDEX_FILES, INDEX_FILE, forget_vectors
from evolvable_store.storage import PurgeJob, RemoteState
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library, built_in_redactor
from evolvable_tools.secret_leaks import (
    LeakedSecret,
    as_leak,
    check_may_decide,
    found_secrets,
    leak_id,
    leaks,
    spans,
)

_INDEXES = (INDEX_FILE, *EARLIER_INDEX_FILES)
_ENDS = ("", "-wal", "-shm", "-journal")

MIN_TEXT = 8
"""Characters of the shortest value in a purged file that is looked for elsewhere too.

A shorter value stands in too many files by chance, and all of them would be edited.
"""

MAX_READ = 64 * 2**20
"""Bytes of a file below the home that is looked into. A larger one is named."""

NOTES = "purged.jsonl"
"""The file beside the ledger of a run that says what was purged from which of its files."""

COPIES = "copies.jsonl"
"""The file in the home that says where exports and backups of the library were written."""

_WHOLE = (b"SQLite format 3", b'{"format":"evolvable-history"')
"""Beginnings of files that are removed and not edited: databases and exports.

A database may keep replaced bytes in free pages.
"""

_LEDGER = re.compile(rb'\{"length":(\d{1,15}),"sha256":"([0-9a-f]{64})","record":')


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What a purge will do.

    texts: what is taken out wherever it stands. versions: the versions that hold it.
    """

    kind: str
    texts: tuple[bytes, ...]
    blobs: tuple[str, ...]
    versions: list[str]
    files: list[str]
    folders: list[str]


@dataclass(slots=True)
class Purged:
    """What a purge did.

    files: below the home, changed or removed. remains: where the bytes still are, and why.
    """

    kind: str
    versions: list[str]
    blobs: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    dry_run: bool = False


def plan_secret(library: Library, id: str) -> PurgePlan:
    """Return what the purge of a secret would do.

    Raises InvalidArgument when there is no such finding.
    """
    findings = [leak for leak in leaks(library) if leak.id == id]
    findings = findings or _find_accepted_leaks(library, id)
    if not findings:
        hint = "`evolvable care purge --list` shows them."
        raise InvalidArgument(f"There is no finding {ascii(id[:40])} of a secret.", hint)
    texts = {
        text
        for leak in findings
        for text in _find_texts(library, leak.ref, leak.version, leak.path, id)
    }
    if texts:
        return _make_plan(library, findings[0].kind, tuple(sorted(texts)), ())
    blobs = _find_blobs(library, findings)
    return _make_plan(library, findings[0].kind, (), tuple(sorted(blobs)))


def _find_accepted_leaks(library: Library, id: str) -> list[LeakedSecret]:
    return [
        as_leak(occurrence)
        for occurrence in found_secrets(library).list_occurrences(everything=True)
        if occurrence.found.id == id
    ]


def _find_blobs(library: Library, findings: Iterable[LeakedSecret]) -> set[str]:
    """Return the files of findings whose text is nowhere to be read any more: what an earlier purge
    left.
    """
    store = library.store
    return {
        store.manifest(store.head(Ref.parse(leak.ref)), leak.version)[leak.path].sha256
        for leak in findings
    }


def _find_texts(library: Library, ref: str, version: int, path: str, id: str) -> Iterator[bytes]:
    head = library.store.head_or_none(Ref.parse(ref))
    if head is not None:
        text = library.store.file(head, path, version).data.decode("utf-8", "replace")
        yield from (
            text[start:end].encode()
            for start, end, _ in spans(text)
            if leak_id(text[start:end]) == id
        )


def plan_file(library: Library, caller: Caller, ref: Ref, path: str) -> PurgePlan:
    """Return what the purge of a file would do: in every version, or in the version that the ref
    names.

    Raises NoSuchResource, NoSuchVersion, NoSuchFile.
    """
    store = library.store
    head = store.head_or_none(ref, caller.scopes) or store.head(ref.at(None), caller.scopes)
    numbers = [ref.version] if ref.version is not None else range(1, head.latest + 1)
    names = {
        entry.sha256
        for number in numbers
        if (entry := store.manifest(head, number).get(path)) is not None
    }
    if not names:
        raise NoSuchFile(
            f"No version of {head.ref} has a file {ascii(path[:200])}.",
            "`evolvable history` shows them.",
        )
    values = {text for name in names for text in _find_values(store.blob(name))}
    return _make_plan(library, "file", tuple(sorted(values)), tuple(sorted(names)))


def plan_blobs(library: Library, blobs: Collection[str]) -> PurgePlan:
    """Return what the purge of files with these hashes would do.

    Those that are not here are left out.
    """
    present = (
        name for name in blobs if library.store.backend.maintenance.blob_size(name) is not None
    )
    return _make_plan(library, "file", (), tuple(sorted(present)))


def _find_values(data: bytes) -> Iterator[bytes]:
    """Yield the secrets of a file that are long enough to be looked for elsewhere."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return
    for start, end, _ in built_in_redactor().hits(text):
        if end - start >= MIN_TEXT and "[purged" not in text[start:end]:
            yield text[start:end].encode()


def _make_plan(
    library: Library, kind: str, texts: tuple[bytes, ...], blobs: tuple[str, ...]
) -> PurgePlan:
    every = {*blobs, *blobs_with(library.store, texts)}
    versions = sorted(
        f"{head.ref}@{number} {path}" for head, number, path in _find_places(library.store, every)
    )
    files = [str(path) for path, _ in _find_files_with(library.store, texts, blobs)]
    folders = [str(path) for path in _find_copies_with(library, texts, blobs)]
    return PurgePlan(kind, texts, blobs, versions, files, folders)


def _find_places(store: Store, blobs: Collection[str]) -> Iterator[tuple[Head, int, str]]:
    for head in store.backend.heads_by_id(store.backend.resource_ids() if blobs else ()).values():
        for number in range(1, head.latest + 1):
            for path, entry in store.manifest(head, number).items():
                if entry.sha256 in blobs:
                    yield head, number, path


def purge(
    library: Library, caller: Caller, plan: PurgePlan, reason: str, *, edit_copies: bool = False
) -> Purged:
    """Take out what a plan names, for good. Done again after a kill, `resume` ends what was begun.

    edit_copies: the files in watched folders are edited too; else they are named. Raises Refused
    for anybody but a person, LibraryReadOnly, LibraryBusy.
    """
    check_may_decide(caller, "purge")
    library.authorise(caller, "A purge")
    reason = library.redact(reason).strip() or "it should not be kept"
    by = (library.store.now(), caller.identity.principal.value, reason)
    # Stored before the first step: after a crash `--resume` finds the job and does every step
    # again.
    job = library.store.backend.purges.begin(*by, plan.kind, plan.texts, plan.blobs)
    library.record(caller, "purge", *(plan.versions or [plan.kind]))
    return run_purge(library, caller, job, plan.versions, edit_copies=edit_copies)


def resume_purges(library: Library, caller: Caller) -> list[Purged]:
    """End the purges that were begun and did not end, and return what was done."""
    check_may_decide(caller, "purge")
    library.authorise(caller, "A purge")
    return [run_purge(library, caller, job, []) for job in library.store.backend.purges.pending()]


def run_purge(
    library: Library,
    caller: Caller,
    job: PurgeJob,
    versions: Sequence[str],
    *,
    edit_copies: bool = False,
) -> Purged:
    """Do every step of a job. Each can be done again. The job ends with the last."""
    store, done = library.store, Purged(job.kind, list(versions))
    purged = {*job.blobs, *blobs_with(store, job.texts)}
    affected = {head.id for head, _, _ in _find_places(store, purged)}
    store.backend.learned.forget(_find_purged_whole(store, job))
    store.backend.learned.refuse_texts(text.decode("utf-8", "replace") for text in job.texts)
    # Copies in watched folders first, and synced: a later sync would else import the old bytes
    # again.
    done.edited = list(_edit_copies(library, job)) if edit_copies else []
    if done.edited:
        library.working_copies.sync()
    _renew_heads(library, caller, job)
    # After the heads have a version without the texts, so that no head loses its content.
    done.blobs = purge_content(store, job)
    forget_vectors(store.home, affected)
    # The index holds words of the purged text; it is built again from what is left.
    _forget_index(library)
    done.files = list(_sweep(store, job))
    done.remains = _list_remains(library, job)
    # The job stays open while another process may still hold the old bytes in the log of the
    # database.
    if not store.backend.purges.finish(job):
        hint = "another process reads it; close it and run `evolvable care purge --resume`"
        done.remains.append(f"{store.backend.path}-wal: {hint}")
    return done


def _list_remains(library: Library, job: PurgeJob) -> list[str]:
    """Return each place that still holds a text or may hold it, and what to do there."""
    store = library.store
    copies = _find_copies_with(library, job.texts, job.blobs)
    operations = store.backend.purges.operations_with
    return [
        *_find_versions_left(library, job),
        *(f"{path}: a watched folder; edit or delete it there" for path in copies),
        *(
            f"operation {operation}: its reason; version hashes cover it"
            for operation in operations(job.texts)
        ),
        *(f"{path}: {why}" for path, why in _find_files_with(store, job.texts, job.blobs)),
        *(
            f"{path}: it may hold it; delete it or make it again"
            for path in known_copies(store.home)
        ),
        *(
            f"{remote.url}: the history of the remote {remote.name} may hold it; {_REWRITE}"
            for remote in _list_remotes(store)
        ),
    ]


def _find_versions_left(library: Library, job: PurgeJob) -> Iterator[str]:
    """Yield each version and path that still holds a text, and keep it as an open finding."""
    store = library.store
    for text in job.texts:
        left = blobs_with(store, [text])
        if left:
            id = leak_id(text.decode("utf-8", "replace"))
            found_secrets(library).add_left(left, DetectedSecret(id, job.kind, 0))
        for head, number, path in _find_places(store, left):
            hint = f"`evolvable care purge {head.ref}@{number} {path}` removes the file whole"
            yield (
                f"{head.ref}@{number} {path}: inside an archive or an encoding that cannot be "
                f"rewritten; {hint}"
            )


_REWRITE = "push the tombstone, and have who owns the repository rewrite it"


def _list_remotes(store: Store) -> list[RemoteState]:
    """Return the remotes that the library was synchronised with, after their mirrors in the home
    are deleted.
    """
    for mirror in (store.home / MIRRORS).glob("*.git"):
        shutil.rmtree(mirror, ignore_errors=True)
    return [remote for remote in store.backend.remotes.all() if remote.seen]


def _find_purged_whole(store: Store, job: PurgeJob) -> list[int]:
    """Return the resources whose main file is purged: what was learned of them goes with it."""
    return [
        head.id
        for head, _, path in _find_places(store, job.blobs)
        if path.casefold() == main_file(head.kind, head.name).casefold()
    ]


def _renew_heads(library: Library, caller: Caller, job: PurgeJob) -> None:
    """Make a new version, without the texts, of each living resource that lies in no watched
    folder.

    Of one that does, the person's file is theirs to change. A version of it is made when they do.
    """
    store = library.store
    for head in store.heads() if job.texts else ():
        if store.backend.bindings.of_resources([head.id]):
            continue
        files = store.files(head)
        changed = {
            path: type(file)(cleaned, file.mode)
            for path, file in files.items()
            if store.manifest(head)[path].sha256 not in job.blobs
            and (cleaned := without_texts(file.data, job.texts, job.mark)) != file.data
        }
        if changed:
            with library.transaction(caller, f"purged: {job.reason}") as tx:
                tx.put(head.ref, {**files, **changed}, expected_version=head.version, carries=True)


def _forget_index(library: Library) -> None:
    """Remove the text index and the judge's answers.

    Both are made again.
    """
    # A cached property: it is not opened only to be closed.
    if "index" in library.__dict__:
        library.index.close()
        del library.__dict__["index"]
    for name, end in product(_INDEXES, (*_ENDS, ".damaged")):
        (library.store.home / f"{name}{end}").unlink(missing_ok=True)


# Files below the home


def _walk_files(home: Path) -> Iterator[Path]:
    # The database purges itself, and the index was removed above.
    own = {f"{name}{end}" for name, end in product((LIBRARY_FILE, *_INDEXES), _ENDS)}
    for folder, _, names in os.walk(home, followlinks=False):
        for name in sorted(names):
            path = Path(folder) / name
            is_own = Path(folder) == home and name in own
            if not is_own and path.is_file() and not path.is_symlink():
                yield path


def _find_files_with(
    store: Store, texts: Sequence[bytes], blobs: Collection[str]
) -> Iterator[tuple[Path, str]]:
    """Yield the files below the home that hold a text or are one of the purged files, each with why
    it may stay.
    """
    for path in _walk_files(store.home):
        if path.stat().st_size > MAX_READ:
            yield path, "too large to be looked into"
        elif _holds(path, texts, blobs):
            yield path, "it could not be changed"


def _holds(path: Path, texts: Sequence[bytes], blobs: Collection[str]) -> bool:
    try:
        data = read_regular(path)
    except OSError:
        return False
    if holds_text(data, texts) or _is_purged(data, blobs):
        return True
    return bool(blobs) and any(_is_purged(part, blobs) for part in unpack_archive(data))


def _is_purged(data: bytes, blobs: Collection[str]) -> bool:
    return bool(blobs) and hashlib.sha256(data).hexdigest() in blobs


def _sweep(store: Store, job: PurgeJob) -> Iterator[str]:
    """Take the job's bytes out of every file below the home; yield each file with what was done."""
    for path in list(_walk_files(store.home)):
        if path.stat().st_size > MAX_READ or not _holds(path, job.texts, job.blobs):
            continue
        data = read_regular(path)
        if path.name == LIBRARY_FILE:
            yield f"{path}: {_purge_backup(path, job)}"
        elif data.startswith(_WHOLE) or zipfile.is_zipfile(path):
            path.unlink()
            yield f"{path}: removed"
        elif _LEDGER.match(data) is not None:
            if _chain_again(path, job):
                yield f"{path}: edited, its lines are chained again"
        elif hashlib.sha256(data).hexdigest() in job.blobs:
            _write(path, job.notice)
            yield f"{path}: replaced by a notice"
        else:
            cleaned = without_texts(data, job.texts, job.mark)
            if holds_text(cleaned, job.texts):
                cleaned = job.notice
            if (run := _find_run(path)) is not None:
                _note_purge(run, path, job, cleaned)
            _write(path, cleaned)
            yield f"{path}: edited"


def _purge_backup(path: Path, job: PurgeJob) -> str:
    with Store.open(path.parent) as store:
        again = store.backend.purges.begin(
            store.now(), job.actor, job.reason, job.kind, job.texts, job.blobs
        )
        purge_content(store, again)
        store.backend.purges.finish(again)
    return "purged as a library of its own"


def _chain_again(path: Path, job: PurgeJob) -> bool:
    """Take the texts out of a ledger and chain its lines again.

    Return False while a run writes it.
    """
    try:
        # A run that writes its ledger holds this lock; the file is then named among what remains.
        with FileLock(f"{path}.lock", timeout=0, thread_local=False):
            ledger = _rewrite_ledger(read_regular(path), job)
            # Before the file is replaced: the note holds the hash of the old bytes too.
            _note_purge(path.parent, path, job, ledger)
            _write(path, ledger)
    except Timeout:
        return False
    return True


def _note_purge(run: Path, path: Path, job: PurgeJob, data: bytes) -> None:
    """Write down in a run's folder what was purged from one of its files, so that its new hash is
    known.
    """
    details = {"at": job.at, "actor": job.actor, "reason": job.reason, "purged": job.kind}
    hashes = {
        "before": hashlib.sha256(read_regular(path)).hexdigest(),
        "after": hashlib.sha256(data).hexdigest(),
    }
    row = {"file": path.relative_to(run).as_posix(), **details, **hashes}
    with open(run / NOTES, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


def _find_run(path: Path) -> Path | None:
    """Return the folder of the evolution run that a file belongs to, None for any other file."""
    return next((folder for folder in path.parents if (folder / "ledger.jsonl").exists()), None)


def _rewrite_ledger(data: bytes, job: PurgeJob) -> bytes:
    """Return a ledger without the job's texts, each line with the hash that follows from the one
    before.
    """
    last, lines = b"0" * 64, list[bytes]()
    for line in data.split(b"\n"):
        head = _LEDGER.match(line)
        if head is None or not line.endswith(b"}"):
            lines.append(without_texts(line, job.texts, job.mark))
            continue
        record = without_texts(line[head.end() : -1], job.texts, job.mark)
        # Each hash covers the one before, so every line after the first edited one gets a new hash.
        last = hashlib.sha256(last + record).hexdigest().encode()
        lines.append(b'{"length":%d,"sha256":"%b","record":%b}' % (len(record), last, record))
    return b"\n".join(lines)


def _write(path: Path, data: bytes) -> None:
    """Replace a file whole, with its mode."""
    mode = path.stat().st_mode & 0o777
    with open_atomic(path) as stream:
        stream.write(data)
    os.chmod(path, mode)


# Copies elsewhere


def note_copy(home: Path, path: Path) -> None:
    """Note where a copy of the library went, so that a purge can name it."""
    with open(home / COPIES, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(str(path.absolute())) + "\n")


def known_copies(home: Path) -> list[Path]:
    """Return the backups and exports of this library that are still where they were written,
    outside of its home.
    """
    try:
        lines = (home / COPIES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(Path(json.loads(line)) for line in lines)
    return [path for path in paths if path.exists() and not path.is_relative_to(home)]


# Watched folders


def _find_copies_with(
    library: Library, texts: Sequence[bytes], blobs: Collection[str]
) -> Iterator[Path]:
    for folder in library.folders():
        if folder.path.is_dir():
            for path in _walk_files(folder.path):
                if path.stat().st_size <= MAX_READ and _holds(path, texts, blobs):
                    yield path


def _edit_copies(library: Library, job: PurgeJob) -> Iterator[str]:
    for path in list(_find_copies_with(library, job.texts, job.blobs)):
        data = read_regular(path)
        cleaned = (
            job.notice if _is_purged(data, job.blobs) else without_texts(data, job.texts, job.mark)
        )
        if cleaned != data:
            _write(path, cleaned)
            yield str(path)
