"""The verbs that move the stable channel: what waits, publish, withdraw, the policy.

Only a person moves the channel; what hosts see is never an agent's decision, but for what the policy lets through.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import InvalidArgument, NoSuchVersion, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.release_channel import (
    Channel,
    ChannelEntry,
    ChannelState,
    MoveNote,
    Placement,
    ReleasePolicy,
)
from evolvable_tools.leaks import check_may_leave
from evolvable_tools.library import Caller, Library
from evolvable_tools.shown import Shown


@dataclass(frozen=True, slots=True)
class Step:
    """Where one skill goes or went on the channel. None: not there.

    what: new, newer, older, removed, withdrawn or back. left_out: why hosts are not offered it even so.
    """

    ref: str
    before: int | None
    after: int | None
    what: str
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ChannelStatus:
    """The channel now. seen: skills that hosts see. waiting: what `publish` would do. withdrawn: what was taken off.

    left_out: of the skills seen, those that are not offered, each with every reason; before and after are equal.
    """

    policy: str
    seen: int
    waiting: list[Step]
    withdrawn: list[str]
    left_out: list[Step]


@dataclass(frozen=True)
class Published:
    """What a move did, or with `dry_run` would do. `move` is None when nothing moved."""

    move: int | None
    steps: list[Step]
    unchanged: list[str]
    dry_run: bool = False
    policy: str | None = None


def status(library: Library) -> ChannelStatus:
    """Returns what hosts see, what waits to be published, and what is held back."""
    channel = Channel(library.store.backend)
    held, shown = channel.held(), Shown(library.store)
    entries = [shown.entry(skill) for skill in shown.skills()]
    return ChannelStatus(
        channel.policy().value,
        len(entries),
        [_step(shown, skill, skill.head) for skill in held if skill.head != skill.version and not skill.withdrawn],
        [str(skill.ref) for skill in held if skill.withdrawn],
        [Step(str(e.ref), e.version, e.version, "left out", list(e.left_out)) for e in entries if e.left_out],
    )


def publish(
    library: Library, caller: Caller, reason: str, *, refs: Sequence[Ref] | None = None, dry_run: bool = False
) -> Published:
    """Moves the channel: the skills named, by default all that wait, go to their heads in one move.

    A ref with a version goes there, forward or back; a removed skill leaves the channel; a withdrawn one comes back
    when it is named. dry_run: only says what would be done. Raises Refused for an agent, NoSuchResource,
    NoSuchVersion, InvalidArgument.
    """
    if not dry_run:
        _only_a_person(caller)
    channel, shown = Channel(library.store.backend), Shown(library.store)
    if refs is None:
        chosen = [(skill, skill.head) for skill in channel.held() if not skill.withdrawn]
    else:
        chosen = [_chosen(library, caller, channel, ref) for ref in refs]
    moving = {skill.resource: (skill, to) for skill, to in chosen if to != skill.version}
    steps = [_step(shown, skill, to) for skill, to in moving.values()]
    unchanged = [str(skill.ref) for skill, to in chosen if to == skill.version] if refs is not None else []
    if dry_run:
        return Published(None, steps, unchanged, dry_run=True)
    check_may_leave(library, "Publishing", [skill.ref for skill, to in moving.values() if to is not None])
    move = channel.place(_note(library, caller, reason), {key: ChannelState(to) for key, (_, to) in moving.items()})
    return Published(move, steps, unchanged)


def withdraw(library: Library, caller: Caller, refs: Sequence[Ref], reason: str) -> Published:
    """Takes skills off the channel while they stay in the library; they stay off, whatever the policy, until published.

    Raises Refused for an agent, NoSuchResource, InvalidArgument.
    """
    _only_a_person(caller)
    channel = Channel(library.store.backend)
    chosen = [_chosen(library, caller, channel, ref.at(None))[0] for ref in refs]
    steps = [Step(str(s.ref), s.version, None, "withdrawn") for s in chosen if not s.withdrawn]
    unchanged = [str(skill.ref) for skill in chosen if skill.withdrawn]
    stands = {skill.resource: ChannelState(None, withdrawn=True) for skill in chosen}
    return Published(channel.place(_note(library, caller, reason), stands), steps, unchanged)


def set_policy(library: Library, caller: Caller, policy: str, reason: str) -> Published:
    """Sets what moves the channel by itself, for this library; `live` moves everything to its head at once.

    Raises Refused for an agent, InvalidArgument.
    """
    _only_a_person(caller)
    if policy not in set(ReleasePolicy):
        raise InvalidArgument(f"{ascii(policy[:40])} is no policy.", f"The policies are {', '.join(ReleasePolicy)}.")
    channel = Channel(library.store.backend)
    move = channel.set_policy(_note(library, caller, reason), ReleasePolicy(policy))
    steps = [placed(placing) for placing in channel.placings([move])] if move else []
    return Published(move, steps, [], policy=policy)


def _only_a_person(caller: Caller) -> None:
    if not caller.decides:
        raise Refused(
            f"What hosts see is a person's decision; {caller.actor} may not move the channel.",
            "Tell the user what you would publish, and go on without it.",
        )


def _note(library: Library, caller: Caller, reason: str) -> MoveNote:
    if not reason.strip():
        raise InvalidArgument("A move of the channel needs a reason.", "Say in a few words why it is made.")
    return MoveNote(library.store.now(), caller.actor, reason, caller.session, 0)


def _chosen(library: Library, caller: Caller, channel: Channel, ref: Ref) -> tuple[ChannelEntry, int | None]:
    """Returns a skill and the version it shall be shown in, None for not at all."""
    if ref.kind is not Kind.SKILL:
        raise InvalidArgument(f"{ref} is no skill.", "Only skills are on the channel.")
    head = library.store.head_or_none(ref, caller.scopes) or library.store.head(ref, caller.scopes)
    if ref.version is not None:
        library.store.version(head, ref.version)
        if head.version is None:
            raise NoSuchVersion(f"{head.ref} was removed; hosts see none of its versions.", "Restore it first.")
    held = channel.of(head.id)
    assert held is not None  # it is a skill
    return held, ref.version or head.version


def _step(shown: Shown, skill: ChannelEntry, to: int | None) -> Step:
    reasons = list(shown.entry(skill, to).left_out) if to is not None else []
    return Step(str(skill.ref), skill.version, to, _what(skill.version, to, False), reasons)


def placed(placing: Placement) -> Step:
    """Returns where a move put one skill."""
    what = _what(placing.before, placing.after, placing.withdrawn)
    return Step(str(placing.ref), placing.before, placing.after, what)


def _what(before: int | None, after: int | None, withdrawn: bool) -> str:
    if after is None:
        return "withdrawn" if withdrawn else "removed"
    if before is None:
        return "new"
    return "newer" if after > before else "older"
