"""The verbs that move the stable channel: status, publish, withdraw, set the policy, and a
changelog of its moves.

A person moves the channel. An agent decides what hosts see only where the person's policy allows
it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store import Manifest
from evolvable_store.errors import InvalidArgument, NoSuchResource, NoSuchVersion, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import (
    Channel,
    ChannelEntry,
    ChannelMove,
    ChannelState,
    MoveNote,
    Placement,
    ReleasePolicy,
)
from evolvable_tools.authors import reason_notice
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import changed_files
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import HeldBack, check_anything_leaves, held_back
from evolvable_tools.untrusted_text import UNMARKED, AnswerMarks
from evolvable_tools.verbs.host_catalog import HostCatalog
from evolvable_tools.verbs.versions import VersionOrigin


@dataclass(frozen=True, slots=True)
class ChannelStep:
    """Where one skill goes or went on the channel. None: not there.

    what: new, newer, older, removed, withdrawn or back. left_out: why hosts are not offered it even
    so.
    """

    ref: str
    before: int | None
    after: int | None
    what: str
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ChannelStatus:
    """The channel now. seen: skills that hosts see. waiting: what `publish` would do. withdrawn:
    what was taken off.

    left_out: of the skills seen, those that are not offered, each with every reason; before and
    after are equal.
    """

    policy: str
    seen: int
    waiting: list[ChannelStep]
    withdrawn: list[str]
    left_out: list[ChannelStep]


@dataclass(frozen=True)
class Published:
    """What a move did, or with `dry_run` would do. `move` is None when nothing moved.

    left_out: skills that stay where they were, because a secret is in the version that hosts would
    see.
    """

    move: int | None
    steps: list[ChannelStep]
    unchanged: list[str]
    dry_run: bool = False
    policy: str | None = None
    left_out: list[HeldBack] = field(default_factory=list)


def channel_status(library: Library) -> ChannelStatus:
    """Return what hosts see, what waits to be published, and what is held back."""
    channel = library.store.backend.channel
    channel_entries, catalog = channel.list_entries(), HostCatalog(library.store)
    entries = [catalog.entry(skill) for skill in catalog.skills()]
    waiting = [
        skill for skill in channel_entries if skill.head != skill.version and not skill.withdrawn
    ]
    left_out = [
        ChannelStep(str(entry.ref), entry.version, entry.version, "left out", list(entry.left_out))
        for entry in entries
        if entry.left_out
    ]
    return ChannelStatus(
        policy=channel.policy().value,
        seen=len(entries),
        waiting=[_make_step(catalog, skill, skill.head) for skill in waiting],
        withdrawn=[str(skill.ref) for skill in channel_entries if skill.withdrawn],
        left_out=left_out,
    )


def publish(
    library: Library,
    caller: Caller,
    reason: str,
    *,
    refs: Sequence[Ref] | None = None,
    dry_run: bool = False,
) -> Published:
    """Move the channel: the skills named, by default all that wait, go to their heads in one move.

    A ref with a version goes there, forward or back. A removed skill leaves the channel. A
    withdrawn one comes back when it is named. A version with a secret is left out. dry_run: only
    says what would be done. Raises Refused for an agent and where a secret leaves nothing to
    publish, NoSuchResource, NoSuchVersion, InvalidArgument.
    """
    if not dry_run:
        _check_person(caller)
    channel, catalog = library.store.backend.channel, HostCatalog(library.store)
    if refs is None:
        chosen = [(skill, skill.head) for skill in channel.list_entries() if not skill.withdrawn]
    else:
        chosen = [_pick_skill(library, caller, channel, ref) for ref in refs]
    withheld = held_back(
        library, [skill.ref.at(to) for skill, to in chosen if to not in (None, skill.version)]
    )
    secret = {entry.ref for entry in withheld}
    moving = {
        skill.resource: (skill, to)
        for skill, to in chosen
        if to != skill.version and (to is None or str(skill.ref) not in secret)
    }
    steps = [_make_step(catalog, skill, to) for skill, to in moving.values()]
    unchanged: list[str] = []
    if refs is not None:
        unchanged = [str(skill.ref) for skill, to in chosen if to == skill.version]
    if dry_run:
        return Published(None, steps, unchanged, dry_run=True, left_out=withheld)
    check_anything_leaves("Publishing", withheld, [*moving, *unchanged])
    states = {resource: ChannelState(to) for resource, (_, to) in moving.items()}
    move = channel.place(_make_note(library, caller, reason), states)
    subjects = [
        f"{skill.ref}@{to}" if to else f"{skill.ref} removed" for skill, to in moving.values()
    ]
    library.record(caller, "publish", *subjects)
    return Published(move, steps, unchanged, left_out=withheld)


def withdraw_skills(
    library: Library, caller: Caller, refs: Sequence[Ref], reason: str
) -> Published:
    """Take skills off the channel while they stay in the library.

    They stay off, whatever the policy, until published. Raises Refused for an agent,
    NoSuchResource, InvalidArgument.
    """
    _check_person(caller)
    channel = library.store.backend.channel
    chosen = [_pick_skill(library, caller, channel, ref.at(None))[0] for ref in refs]
    steps = [
        ChannelStep(str(s.ref), s.version, None, "withdrawn") for s in chosen if not s.withdrawn
    ]
    unchanged = [str(skill.ref) for skill in chosen if skill.withdrawn]
    stands = {skill.resource: ChannelState(None, withdrawn=True) for skill in chosen}
    move = channel.place(_make_note(library, caller, reason), stands)
    library.record(caller, "withdraw", *(step.ref for step in steps))
    return Published(move, steps, unchanged)


def set_policy(library: Library, caller: Caller, policy: str, reason: str) -> Published:
    """Set what moves the channel by itself, for this library; `live` moves everything to its head
    at once.

    Raises Refused for an agent, InvalidArgument.
    """
    _check_person(caller)
    if policy not in set(ReleasePolicy):
        raise InvalidArgument(
            f"{ascii(policy[:40])} is no policy.", f"The policies are {', '.join(ReleasePolicy)}."
        )
    channel = library.store.backend.channel
    move = channel.set_policy(_make_note(library, caller, reason), ReleasePolicy(policy))
    library.record(caller, "set policy", f"channel {policy}")
    steps = [channel_step(placing) for placing in channel.placings([move])] if move else []
    return Published(move, steps, [], policy=policy)


def _check_person(caller: Caller) -> None:
    if not caller.decides:
        raise Refused(
            f"What hosts see is a person's decision; {caller.actor} may not move the channel.",
            "Tell the user what you would publish, and go on without it.",
        )


def _make_note(library: Library, caller: Caller, reason: str) -> MoveNote:
    if not reason.strip():
        raise InvalidArgument(
            "A move of the channel needs a reason.", "Say in a few words why it is made."
        )
    return MoveNote(library.store.now(), caller.actor, reason, caller.session)


def _pick_skill(
    library: Library, caller: Caller, channel: Channel, ref: Ref
) -> tuple[ChannelEntry, int | None]:
    """Return a skill and the version it shall be shown in, None for not at all."""
    if ref.kind is not Kind.SKILL:
        raise InvalidArgument(f"{ref} is no skill.", "Only skills are on the channel.")
    head = library.store.head_or_none(ref, caller.scopes) or library.store.head(ref, caller.scopes)
    if ref.version is not None:
        library.store.version(head, ref.version)
        if head.version is None:
            raise NoSuchVersion(
                f"{head.ref} was removed; hosts see none of its versions.", "Restore it first."
            )
    entry = channel.of(head.id)
    if entry is None:
        raise NoSuchResource(
            f"{head.ref} is not on the channel.", "`evolvable care fsck` says whether it should be."
        )
    return entry, ref.version or head.version


def _make_step(catalog: HostCatalog, skill: ChannelEntry, to: int | None) -> ChannelStep:
    reasons = list(catalog.entry(skill, to).left_out) if to is not None else []
    return ChannelStep(
        str(skill.ref), skill.version, to, _name_step(skill.version, to, False), reasons
    )


def channel_step(placing: Placement) -> ChannelStep:
    """Return where a move put one skill."""
    what = _name_step(placing.before, placing.after, placing.withdrawn)
    return ChannelStep(str(placing.ref), placing.before, placing.after, what)


def _name_step(before: int | None, after: int | None, withdrawn: bool) -> str:
    if after is None:
        return "withdrawn" if withdrawn else "removed"
    if before is None:
        return "new"
    return "newer" if after > before else "older"


MAX_MOVES = 1_000
"""Moves of one answer. Older ones are asked for by their number."""

MAX_VERSIONS = 50
"""Versions that a changelog names of one skill."""


@dataclass(frozen=True, slots=True)
class BetweenVersion(VersionOrigin):
    """One version between the two ends of a step, and its files."""

    files: list[str]


@dataclass(frozen=True)
class StepChanges:
    """What hosts see change in one skill. versions: those gained, or those given up when it went
    back, newest first.

    files: path -> added, changed or deleted, between the two ends.
    """

    ref: str
    before: int | None
    after: int | None
    what: str
    files: dict[str, str]
    versions: list[BetweenVersion]


@dataclass(frozen=True)
class MoveHeading:
    """One move of the stable channel: when, by whom and why. policy: the one it set."""

    move: int
    at: str
    actor: str
    reason: str
    operation: int
    policy: str | None


@dataclass(frozen=True)
class Changelog(MoveHeading):
    """One move, for a person. text: all of it to read, in plain lines."""

    skills: list[StepChanges]
    text: str
    notice: str = ""
    """What the marks around the reasons of others mean, '' without marks."""


@dataclass(frozen=True)
class ReleaseMove(MoveHeading):
    """One move, in short."""

    steps: list[ChannelStep]


@dataclass(frozen=True)
class ChannelLog:
    """Moves, newest first.

    notice: what the marks around the reasons of others mean, '' without marks.
    """

    moves: list[ReleaseMove]
    notice: str = ""


def channel_log(library: Library, limit: int = 20, marks: AnswerMarks = UNMARKED) -> ChannelLog:
    """Return up to `limit` moves, newest first.

    marks: of reasons that no person wrote. Raises InvalidArgument.
    """
    if not 1 <= limit <= MAX_MOVES:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_MOVES}.")
    channel = library.store.backend.channel
    moves, steps = channel.moves(limit), defaultdict[int, list[ChannelStep]](list)
    for placing in channel.placings([move.id for move in moves]):
        steps[placing.move].append(channel_step(placing))
    releases = [
        ReleaseMove(*_describe_move(library, move, marks), steps[move.id]) for move in moves
    ]
    return ChannelLog(releases, marks.notice)


def changelog(
    library: Library, move: int | None = None, marks: AnswerMarks = UNMARKED
) -> Changelog:
    """Return what a move changed for hosts, by default the newest one.

    marks: see `channel_log`. Raises NotFound.
    """
    channel = library.store.backend.channel
    channel_move = channel.move(channel.last() if move is None else move)
    about = _describe_move(library, channel_move, marks)
    skills = [
        _find_changes(library, placing, marks) for placing in channel.placings([channel_move.id])
    ]
    lines = [
        *_format_move(channel_move, about[3], skills),
        *([marks.notice] if marks.notice else []),
    ]
    return Changelog(*about, skills, "\n".join(lines) + "\n", marks.notice)


def _describe_move(
    library: Library, move: ChannelMove, marks: AnswerMarks
) -> tuple[int, str, str, str, int, str | None]:
    note = move.note
    reason = _mark_reason(library, note.operation, note.reason, marks)
    policy = note.policy.value if note.policy else None
    return move.id, note.at, note.actor, reason, note.operation, policy


def _mark_reason(library: Library, operation: int, reason: str, marks: AnswerMarks) -> str:
    """Return the reason of an operation, marked where no person answers for it."""
    if marks.on and reason_notice(library.store.operation(operation)):
        return marks.line(reason)
    return reason


def _find_changes(library: Library, placing: Placement, marks: AnswerMarks) -> StepChanges:
    before = _read_manifest(library, placing.resource, placing.before)
    after = _read_manifest(library, placing.resource, placing.after)
    how = {(False, True): "added", (True, True): "changed", (True, False): "deleted"}
    files = {path: how[path in before, path in after] for path in changed_files(before, after)}
    step = channel_step(placing)
    low, high = sorted((placing.before or 0, placing.after or 0))
    versions = _list_between(library, placing.resource, low, high, marks) if placing.after else []
    return StepChanges(step.ref, step.before, step.after, step.what, files, versions)


def _read_manifest(library: Library, resource: int, number: int | None) -> Manifest:
    return (library.store.backend.manifest(resource, number) if number else None) or Manifest({})


def _list_between(
    library: Library, resource: int, low: int, high: int, marks: AnswerMarks
) -> list[BetweenVersion]:
    """Return the versions over `low` up to `high`, newest first, at most MAX_VERSIONS."""
    rows = []
    count = min(high - low, MAX_VERSIONS)
    for version in library.store.backend.versions(resource, count, high + 1):
        operation = library.store.operation(version.operation)
        before = _read_manifest(library, resource, version.parent)
        after = _read_manifest(library, resource, version.number)
        reason = _mark_reason(library, operation.id, operation.reason, marks)
        files = changed_files(before, after)
        rows.append(BetweenVersion(version.number, operation.at, operation.actor, reason, files))
    return rows


def _format_move(move: ChannelMove, reason: str, skills: list[StepChanges]) -> list[str]:
    note = move.note
    lines = [f"Move {move.id}, {_format_moment(note.at)}, by {note.actor}: {reason}"]
    if note.policy:
        lines.append(f"From here on the policy is {note.policy}.")
    for skill in skills:
        lines += ["", *_format_skill(skill)]
    return lines


def _format_skill(skill: StepChanges) -> list[str]:
    ends = f"{skill.before or 'nothing'} -> {skill.after or 'nothing'}"
    lines = [f"{skill.ref}  {ends} ({skill.what})"]
    lines += [f"  {how}: {path}" for path, how in skill.files.items()]
    sign = "-" if skill.what == "older" else "+"
    for each in skill.versions:
        about = f"version {each.version}, {_format_moment(each.at)}, by {each.actor}"
        lines.append(f"  {sign} {about}: {each.reason} ({', '.join(each.files)})")
    return lines


def _format_moment(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"
