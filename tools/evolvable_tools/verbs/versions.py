"""The verb that shows a resource's versions, and the difference between two of them.

The verb that takes changes back: one operation, or everything a session did.
"""

import difflib
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from evolvable_store import Actor, File, Head, Manifest, TreeEntry
from evolvable_store.errors import InvalidArgument, NoSuchOperation, Refused, Unsafe
from evolvable_store.resource import Ref
from evolvable_tools.approvals import check_change, finding_messages, needs_person
from evolvable_tools.authors import operation_author, reason_notice, version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import changed_files, decode_text
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import is_env_file, is_released
from evolvable_tools.untrusted_text import AnswerMarks
from evolvable_tools.verbs.reverse_merge import (
    RevertStep,
    UndoConflict,
    approvals_led_to,
    plan_revert,
)

MAX_LIMIT = 100

CONTEXT = 3

MAX_DIFF = 40_000
"""Characters of a diff. Clients cut longer results in the middle."""

CUT = "... cut here; compare fewer versions, or read the files with get_resource.\n"
"""The last line of a diff that is longer."""

# difflib takes quadratic time in the worst case.
MAX_DIFF_FILE = 512 * 1024
"""Bytes of a file that is still compared line by line."""


@dataclass(frozen=True, slots=True)
class VersionOrigin:
    """One version: when, by whom and why it was made."""

    version: int
    at: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class PastVersion(VersionOrigin):
    """One version, the operation that made it, and the files it changed against the one before.

    evidence: what its operation states about itself, such as a conflict with the version before.
    principal, via: who answers for it, and how that is known; '' in versions before 0.2. author,
    by: whose it is for the reader, in words.
    """

    operation: int
    session: str | None
    files: list[str]
    evidence: list[str]
    principal: str = ""
    via: str = ""
    author: str = ""
    by: str = ""


@dataclass(frozen=True)
class History:
    """Versions, newest first. `head` is None when the resource is removed; `diff` is a unified diff
    or None.

    notice: what the marks around reasons and evidence mean, '' where there are none.
    """

    ref: str
    head: int | None
    versions: list[PastVersion]
    diff: str | None = None
    notice: str = ""


def resource_history(
    library: Library,
    caller: Caller,
    ref: Ref,
    *,
    from_version: int | None = None,
    to_version: int | None = None,
    limit: int = 20,
    below: int | None = None,
) -> History:
    """Return up to `limit` versions and, when a version is named, the diff from one to the other.

    below: only versions under this one, for the next page. from_version alone compares with the
    newest, to_version alone with the one before it. Works for removed resources too. What nobody
    the user trusts wrote reaches an agent between marks. Raises NoSuchResource, NoSuchVersion,
    InvalidArgument.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_LIMIT}.")
    store = library.store
    head = store.head_or_none(ref, caller.scopes) or store.head(ref, caller.scopes)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN)
    rows = _describe_versions(library, caller, head, limit, below, marks)
    text = None
    if from_version is not None or to_version is not None:
        new = to_version or head.latest
        old = from_version if from_version is not None else new - 1
        before = store.manifest(head, old) if old > 0 else Manifest({})
        text = diff(library, before, store.manifest(head, new), (str(old), str(new)))
        if marks.on and (marking_reason := _find_marking_reason(library, caller, head, old, new)):
            text = marks.block(text, f"diff of {head.ref} from {old} to {new}", marking_reason)
    return History(str(head.ref), head.version, rows, text, marks.notice)


def _describe_versions(
    library: Library, caller: Caller, head: Head, limit: int, below: int | None, marks: AnswerMarks
) -> list[PastVersion]:
    """Return what the history says of each version.

    marks: of the answer.
    """
    store, proposals = library.store, library.store.backend.proposals
    pasts = store.history(head, limit, below)
    operations = [past.operation.id for past in pasts]
    proposed = proposals.reasons(head.ref, operations)
    beside = proposals.approved_beside(head.ref, operations)
    own = {proposal.reason for proposal in proposals.about(head.ref)} if beside else set()
    rows = []
    for past in pasts:
        number = past.version.number
        parent = store.manifest(head, number - 1) if number > 1 else Manifest({})
        changed = changed_files(parent, store.manifest(head, number))
        operation = past.operation
        reason = "; ".join(dict.fromkeys(proposed.get(operation.id, ()))) or operation.reason
        others = [
            (f"proposal {identity} by ", "" if why in own else why)
            for identity, why in beside.get(operation.id, ())
        ]
        evidence = [text for text in operation.intent.evidence if not _is_about(text, others)]
        if marks.on and reason_notice(operation):
            reason, evidence = marks.line(reason), [marks.line(text) for text in evidence]
        author_fields = (
            operation.principal or "",
            "" if operation.arrived else operation.intent.via,
            *operation_author(operation, caller),
        )
        rows.append(
            PastVersion(
                *(number, operation.at, operation.actor, reason, operation.id, operation.session),
                changed,
                evidence,
                *author_fields,
            )
        )
    return rows


def _is_about(line: str, proposals: Iterable[tuple[str, str]]) -> bool:
    """Return whether a line of evidence names one of these proposals, or is its reason."""
    return any(line.startswith(prefix) or line == why for prefix, why in proposals)


def _find_marking_reason(library: Library, caller: Caller, head: Head, *numbers: int) -> str:
    """Return why a difference of these versions reaches an agent between marks, '' where it does
    not.
    """
    reasons = (
        version_authorship(library, head, number, caller).why
        for number in reversed(numbers)
        if number > 0
    )
    return next(filter(None, reasons), "")


def diff(
    library: Library,
    before: Manifest,
    after: Manifest,
    names: tuple[str, str],
    *,
    limit: int | None = MAX_DIFF,
    unsaved: Mapping[str, bytes] = MappingProxyType({}),
    context: int = CONTEXT,
) -> str:
    """Return the unified diff between two manifests, cut at `limit` characters; `names` mark the
    two sides.

    unsaved: the bytes of what is in no version yet, by SHA-256. context: equal lines around a
    change.
    """
    parts: list[str] = []
    length = 0
    for path in changed_files(before, after):
        sides = (before.get(path), after.get(path))
        for line in _diff_file(library, path, *sides, names, unsaved, context):
            length += len(line)
            if limit is not None and length > limit:
                return "".join(parts) + CUT
            parts.append(line)
    return "".join(parts)


def _diff_file(
    library: Library,
    path: str,
    before: TreeEntry | None,
    after: TreeEntry | None,
    names: tuple[str, str],
    unsaved: Mapping[str, bytes],
    context: int,
) -> Iterator[str]:
    old, new = _read_lines(library, before, unsaved), _read_lines(library, after, unsaved)
    hashes = [entry.sha256 for entry in (before, after) if entry]
    if is_env_file(path) and not all(is_released(library, sha256) for sha256 in hashes):
        old = new = None
    was = f"{path}@{names[0]}" if before else "/dev/null"
    now = f"{path}@{names[1]}" if after else "/dev/null"
    if old is None or new is None:
        sizes = f"{before.size if before else 0} to {after.size if after else 0} bytes"
        yield (
            f"--- {was}\n+++ {now}\n(not text, too long to compare, or an environment file: "
            f"{sizes})\n"
        )
        return
    if before and after and before.mode != after.mode:
        yield f"mode of {path}: {before.mode:o} to {after.mode:o}\n"
    for line in difflib.unified_diff(old, new, was, now, n=context):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _read_lines(
    library: Library, entry: TreeEntry | None, unsaved: Mapping[str, bytes]
) -> list[str] | None:
    if entry is None:
        return []
    if entry.size > MAX_DIFF_FILE:
        return None
    data = unsaved.get(entry.sha256)
    return text_lines(File(library.store.blob(entry.sha256) if data is None else data))


def text_lines(file: File) -> list[str] | None:
    """Return the lines with their ends (only `\\n` ends one), or None when it is not text."""
    text = decode_text(file.data)
    return None if text is None else list(io.StringIO(text, newline="\n"))


@dataclass(frozen=True)
class Undone:
    """What an undo took back. `restored` lists refs with the version they now have, or 'removed'.

    undid: the operations that were taken back, none where nothing changed. waiting, proposal_ids:
    when it was only proposed, a proposal for each resource. It waits for a person.
    """

    operation: int | None
    undid: list[int]
    restored: list[str]
    conflicts: list[UndoConflict]
    warnings: list[str] = field(default_factory=list)
    proposal_ids: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


def undo(
    library: Library,
    caller: Caller,
    reason: str,
    *,
    operation: int | None = None,
    session: str | None = None,
) -> Undone:
    """Take back an operation, or all of a session, in one new operation.

    What was changed since stays. A resource where both changed the same lines is left alone and
    listed under `conflicts`, with what to do. Whether it waits for a person is asked by
    `proposal_inbox.revert_or_propose`. Raises NoSuchOperation, InvalidArgument.
    """
    undid, reason = operations_undone(library, operation, session), library.redact(reason)
    backs, conflicts = plan_revert(library, caller, undid, session)
    if caller.actor is not Actor.HUMAN:
        backs = [back for back in backs if _is_harmless(library, caller, back, conflicts)]
    with library.transaction(caller, reason, undoes=undid) as tx:
        for back in backs:
            if back.merged is not None:
                tx.put(back.ref, back.merged, expected_version=back.expected, reverts=back.undone)
            elif back.version is None:
                tx.remove(back.ref, expected_version=back.expected)
            else:
                tx.restore(back.ref, back.version, expected_version=back.expected)
    done = [written for written in tx.written if written.changed]
    warnings = library.checkout([written.ref for written in done])
    restored = [str(w.ref.at(w.version)) if w.version else f"{w.ref} removed" for w in done]
    if tx.operation is None:
        return Undone(None, [], restored, conflicts, warnings)
    return Undone(tx.operation.id, undid, restored, conflicts, warnings)


def _is_harmless(
    library: Library, caller: Caller, back: RevertStep, conflicts: list[UndoConflict]
) -> bool:
    """Return whether anybody may bring this content back, by the policy of memories and by a scan.

    If not, add the conflict that says why.
    """
    why = ""
    try:
        if needs_person(library.policies, back.ref, caller.actor):
            why = "a person decides about memories; undo with propose=true."
        elif content := back.content(library.store):
            head = library.store.head_or_none(back.ref)
            now = library.store.files(head) if head is not None and head.version else {}
            found = check_change(back.ref, now, content, caller.actor)
            if found.asks:
                message = finding_messages(found, quoted=True)[0]
                why = f"{message}; a person can bring it back, or undo with propose=true."
    except (Refused, Unsafe) as error:
        why = error.text
    if why:
        conflicts.append(UndoConflict(str(back.ref), why))
    return not why


def operations_undone(library: Library, operation: int | None, session: str | None) -> list[int]:
    """Return the operations that an undo of this one, or of this session, takes back.

    Raises NoSuchOperation, InvalidArgument.
    """
    store = library.store
    if (operation is None) == (session is None):
        raise InvalidArgument(
            "Name either an operation or a session.", "resource_history shows operations."
        )
    if operation is not None:
        return [store.operation(operation).id]
    own = {past_operation.id for past_operation in store.operations(limit=10_000, session=session)}
    undid = sorted(own.union(approvals_led_to(library, session)))
    if not undid:
        raise NoSuchOperation(
            f"Session {ascii(session)} changed nothing.", "`evolvable log` shows what did."
        )
    return undid
