"""The digest of some days: what agents learned, what helped, what nobody used, what was
taken back.

Each line has the command that takes it back. The terminal, the page and a file in Markdown show the
same digest.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from evolvable_store import Actor, Change, Head, Operation, format_time
from evolvable_store.errors import InvalidArgument, NoSuchOperation
from evolvable_store.resource import Kind
from evolvable_store.storage import APPROVED, Attempt, Outcome, Proposal
from evolvable_tools.authors import AuthorKind, author_words, operation_author
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes import MAX_DAYS

WEEK = 7

MAX_LINES = 50
"""Lines of one part of a digest; the newest, the most helpful or the most often shown are named."""

MAX_OPERATIONS = 10_000
"""Operations that are looked through for those of the days."""

MAX_REFS = 5
"""Resources that one line names."""

_LOADABLE = (Kind.SKILL, Kind.PROMPT, Kind.AGENT)
"""Kinds whose use is recorded: no agent loads a memory or a tool."""


@dataclass(frozen=True, slots=True)
class DigestLine:
    """One line of a digest. refs: the resources. text: what happened to them. at: when, ISO 8601 in
    UTC.

    author: in words, '' without one. reason: of the author; '' if an agent asks. undo: the command
    that takes it back. operation: the operation that `undo` takes back alone, 0 if it takes back
    more or less. more: resources beside `refs`.
    """

    refs: list[str]
    text: str
    at: str
    author: str
    reason: str
    undo: str
    more: int = 0
    operation: int = 0


@dataclass(frozen=True, slots=True)
class DigestPart:
    """One part of a digest. number: of its lines, with those beyond the limit."""

    lines: list[DigestLine]
    number: int


@dataclass(frozen=True)
class Digest:
    """The events since a time. learned: changes that agents made and that hold. helped:
    resources with good ends.

    unused: resources from before that time that nobody opened since. taken_back: undos that hold.
    """

    days: int
    since: str
    learned: DigestPart
    helped: DigestPart
    unused: DigestPart
    taken_back: DigestPart


def weekly_digest(library: Library, caller: Caller, *, days: int = WEEK) -> Digest:
    """Return what happened in the last days.

    Raise InvalidArgument for days outside of 1 to MAX_DAYS.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidArgument(f"days is {days}.", f"It may be 1 to {MAX_DAYS}.")
    # What was shown is counted in memory first; the numbers below come from the library.
    library.impressions.flush()
    store = library.store
    since = format_time(store.clock() - timedelta(days=days))
    recent = [operation for operation in store.operations(MAX_OPERATIONS) if operation.at >= since]
    undone = _undone_operations(recent)
    in_effect = [operation for operation in recent if operation.id not in undone]
    # A person approved these, but an agent proposed them: they are what agents learned.
    proposed = {
        proposal.operation: proposal
        for proposal in store.backend.proposals.in_state(APPROVED, MAX_OPERATIONS)
        if proposal.operation is not None and proposal.actor is not Actor.HUMAN
    }
    learned = [
        operation
        for operation in in_effect
        if not operation.intent.undoes and (_is_by_agent(operation) or operation.id in proposed)
    ]
    # An undo of an undo brings back what it took away, and is no loss.
    undos = [
        operation
        for operation in in_effect
        if operation.intent.undoes and not _undoes_undos(library, operation)
    ]
    heads = [head for scope in caller.scopes for head in store.heads(scope=scope)]
    uses = [
        attempt
        for attempt in store.backend.evidence.list_attempts()
        if attempt.at >= since and (attempt.loaded or attempt.used)
    ]
    describe = _Describer(library, caller, proposed)
    # A resource from these days had no time to be used.
    new = {
        str(change.ref)
        for change in store.backend.changes_of([operation.id for operation in recent])
        if change.before is None
    }
    return Digest(
        days,
        since,
        DigestPart(list(describe.operations(learned[:MAX_LINES])), len(learned)),
        _list_helped(library, heads, uses),
        _list_unused(
            library, [head for head in heads if str(head.ref) not in new], uses, since, days
        ),
        DigestPart(list(describe.operations(undos[:MAX_LINES])), len(undos)),
    )


def _undone_operations(newest_first: Iterable[Operation]) -> set[int]:
    """Return the operations that are taken back now.

    What an undo took back holds again once that undo is undone.
    """
    undone = set[int]()
    # From the newest: an undo that was itself undone takes nothing back.
    for operation in newest_first:
        if operation.id not in undone:
            undone.update(operation.intent.undoes)
    return undone


def _is_by_agent(operation: Operation) -> bool:
    kind, _ = operation_author(operation)
    return kind is AuthorKind.AGENT or (
        kind is AuthorKind.MEMBER and operation.actor is not Actor.HUMAN
    )


def _undoes_undos(library: Library, operation: Operation) -> bool:
    """Return whether an operation undoes nothing but undos."""
    try:
        return all(
            library.store.operation(undone_id).intent.undoes
            for undone_id in operation.intent.undoes
        )
    except NoSuchOperation:
        return False


class _Describer:
    """Describes operations for one caller.

    An agent is told no reasons: another agent may have written them.
    """

    def __init__(self, library: Library, caller: Caller, proposed: Mapping[int, Proposal]) -> None:
        self._library, self._proposed = library, proposed
        self._to_agent = caller.actor is not Actor.HUMAN

    def operations(self, operations: Sequence[Operation]) -> Iterator[DigestLine]:
        """Yield a line for each of these operations."""
        changes = dict[int, list[Change]]()
        for change in self._library.store.backend.changes_of(
            [operation.id for operation in operations]
        ):
            changes.setdefault(change.operation, []).append(change)
        for operation in operations:
            yield self._line(operation, changes.get(operation.id, []))

    def _line(self, operation: Operation, changes: Sequence[Change]) -> DigestLine:
        refs = list(
            dict.fromkeys(
                f"{change.ref}@{change.after}" if change.after else str(change.ref)
                for change in changes
            )
        )
        author = author_words(*operation_author(operation))
        proposal = self._proposed.get(operation.id)
        if proposal is not None:
            author = f"{proposal.actor}, approved by {author}"
        reason = operation.reason or (proposal.reason if proposal is not None else "")
        return DigestLine(
            refs[:MAX_REFS],
            _describe_operation(operation, changes),
            operation.at,
            author,
            "" if self._to_agent else reason,
            f"evolvable undo {operation.id}",
            max(len(refs) - MAX_REFS, 0),
            operation.id,
        )


def _describe_operation(operation: Operation, changes: Sequence[Change]) -> str:
    if operation.intent.undoes:
        undone_ids = [str(undone_id) for undone_id in operation.intent.undoes]
        plural = "s" if len(undone_ids) > 1 else ""
        return f"took operation{plural} {', '.join(undone_ids[:MAX_REFS])} back"
    if changes and all(change.after is None for change in changes):
        return "removed"
    return "new" if changes and all(change.before is None for change in changes) else "changed"


def _list_helped(library: Library, heads: Iterable[Head], uses: Iterable[Attempt]) -> DigestPart:
    ends = dict[int, list[Attempt]]()
    for use in uses:
        if use.used and use.outcome in (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.FAILED):
            ends.setdefault(use.resource, []).append(use)
    rows = []
    for head in heads:
        rated_uses = ends.get(head.id, [])
        good = sum(use.outcome is Outcome.SUCCEEDED for use in rated_uses)
        if good:
            rows.append((good, len(rated_uses), head, max(use.at for use in rated_uses)))
    rows.sort(key=lambda row: (-row[0], row[1], str(row[2].ref)))
    lines = [
        DigestLine(
            [f"{head.ref}@{head.version}"],
            f"helped {good} of {rated} times",
            at,
            "",
            "",
            _undo_command(library, head),
        )
        for good, rated, head, at in rows[:MAX_LINES]
    ]
    return DigestPart(lines, len(rows))


def _undo_command(library: Library, head: Head) -> str:
    """Return what takes the newest version of one resource back, and no other resource with it."""
    operation = library.store.version(head).operation
    if len(library.store.backend.changes_of([operation])) == 1:
        return f"evolvable undo {operation}"
    # It came together with others: to undo the operation would take back these too.
    return (
        f"evolvable restore {head.ref} {head.latest - 1}"
        if head.latest > 1
        else f"evolvable remove {head.ref}"
    )


def _list_unused(
    library: Library, heads: Iterable[Head], uses: Iterable[Attempt], since: str, days: int
) -> DigestPart:
    opened = {use.resource for use in uses}
    impressions = library.store.backend.evidence.count_impressions(since)
    rows = []
    for head in heads:
        if head.id not in opened and head.kind in _LOADABLE:
            impression = impressions.get(head.id)
            times, last = (impression.since, impression.last or "") if impression else (0, "")
            rows.append((times, last, str(head.ref)))
    rows.sort(key=lambda row: (-row[0], row[2]))
    lines = [
        DigestLine(
            [ref],
            _describe_shown(times, days),
            last if times else "",
            "",
            "",
            f"evolvable remove {ref}",
        )
        for times, last, ref in rows[:MAX_LINES]
    ]
    return DigestPart(lines, len(rows))


def _describe_shown(times: int, days: int) -> str:
    if not times:
        return "not shown"
    return f"shown {'once' if times == 1 else f'{times} times'}, never opened in {days} days"


PARTS = {
    "learned": ("What agents learned", "Agents changed nothing that still holds."),
    "helped": ("What helped", "No use with a good end was seen."),
    "unused": ("What nobody used", "No resource from before that time went unopened."),
    "taken_back": ("What was taken back", "Nothing was taken back."),
}
"""Part of a digest -> its title, and what stands there when it is empty."""

TITLE = "# Evolvable: the last "
"""The beginning of a digest in Markdown."""

_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&]")


def digest_markdown(digest: Digest) -> str:
    """Return a digest as a document in Markdown.

    What others wrote is escaped: it makes no link and no markup.
    """
    lines = [
        f"{TITLE}{'day' if digest.days == 1 else f'{digest.days} days'}",
        "",
        f"Since {digest.since[:16]} UTC.",
    ]
    for name, (title, nothing) in PARTS.items():
        part: DigestPart = getattr(digest, name)
        lines += ["", f"## {title}", ""]
        way = "Remove it" if name == "unused" else "Take it back"
        lines += [_format_item(line, way) for line in part.lines] or [nothing]
        if (more := part.number - len(part.lines)) > 0:
            lines += ["", f"{more:,} more."]
    return "\n".join(lines) + "\n"


def _format_item(line: DigestLine, way: str) -> str:
    more = f" and {line.more:,} more" if line.more else ""
    names = ", ".join(f"`{ref}`" for ref in line.refs) + more
    author = f", {_escape_markup(line.author)}" if line.author else ""
    when = f", {line.at[:10]}" if line.at else ""
    why = f": {_escape_markup(line.reason)}" if line.reason else ""
    return f"- {names}: {line.text}{author}{when}{why}. {way}: `{line.undo}`"


def _escape_markup(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return _MARKUP.sub(lambda sign: "\\" + sign[0], " ".join(printable.split()))
