"""What moved the stable channel: its moves, and for each a changelog that a person can read."""

from dataclasses import dataclass

from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import Manifest
from evolvable_store.storage.release_channel import Channel, ChannelMove, Placement
from evolvable_tools.history import changed_files
from evolvable_tools.library import Library
from evolvable_tools.publishing import Step, placed

MAX_MOVES = 1_000

MAX_VERSIONS = 50
"""Versions that a changelog names of one skill."""


@dataclass(frozen=True, slots=True)
class BetweenVersion:
    """One version between the two ends of a step: when, by whom and why it was made, and its files."""

    version: int
    at: str
    actor: str
    reason: str
    files: list[str]


@dataclass(frozen=True)
class StepChanges:
    """What hosts see change in one skill. versions: those gained, or those given up when it went back, newest first.

    files: path -> added, changed or deleted, between the two ends.
    """

    ref: str
    before: int | None
    after: int | None
    what: str
    files: dict[str, str]
    versions: list[BetweenVersion]


@dataclass(frozen=True)
class Changelog:
    """One move, for a person. policy: the one it set. text: all of it to read, in plain lines."""

    move: int
    at: str
    actor: str
    reason: str
    operation: int
    policy: str | None
    skills: list[StepChanges]
    text: str


@dataclass(frozen=True, slots=True)
class Moved:
    """One move, in short."""

    move: int
    at: str
    actor: str
    reason: str
    operation: int
    policy: str | None
    steps: list[Step]


@dataclass(frozen=True)
class ChannelLog:
    """Moves, newest first."""

    moves: list[Moved]


def log(library: Library, limit: int = 20) -> ChannelLog:
    """Returns up to `limit` moves, newest first. Raises InvalidArgument."""
    if not 1 <= limit <= MAX_MOVES:
        raise InvalidArgument(f"limit is {limit}.", f"It may be 1 to {MAX_MOVES}.")
    channel = Channel(library.store.backend)
    moves = channel.moves(limit)
    steps: dict[int, list[Step]] = {}
    for placing in channel.placings([move.id for move in moves]):
        steps.setdefault(placing.move, []).append(placed(placing))
    return ChannelLog([_moved(move, steps.get(move.id, [])) for move in moves])


def changelog(library: Library, move: int | None = None) -> Changelog:
    """Returns what a move changed for hosts, by default the newest one. Raises NotFound."""
    channel = Channel(library.store.backend)
    made = channel.move(channel.last() if move is None else move)
    skills = [_changes(library, placing) for placing in channel.placings([made.id])]
    note, policy = made.note, made.note.policy.value if made.note.policy else None
    text = "\n".join(_lines(made, skills)) + "\n"
    return Changelog(made.id, note.at, note.actor, note.reason, note.operation, policy, skills, text)


def _moved(move: ChannelMove, steps: list[Step]) -> Moved:
    note = move.note
    policy = note.policy.value if note.policy else None
    return Moved(move.id, note.at, note.actor, note.reason, note.operation, policy, steps)


def _changes(library: Library, placing: Placement) -> StepChanges:
    before, after = (_manifest(library, placing.resource, number) for number in (placing.before, placing.after))
    files = {path: _how(path, before, after) for path in changed_files(before, after)}
    step = placed(placing)
    low, high = sorted((placing.before or 0, placing.after or 0))
    versions = _between(library, placing.resource, low, high) if placing.after else []
    return StepChanges(step.ref, step.before, step.after, step.what, files, versions)


def _manifest(library: Library, resource: int, number: int | None) -> Manifest:
    return (library.store.backend.manifest(resource, number) if number else None) or Manifest({})


def _how(path: str, before: Manifest, after: Manifest) -> str:
    return "added" if path not in before else "changed" if path in after else "deleted"


def _between(library: Library, resource: int, low: int, high: int) -> list[BetweenVersion]:
    """Returns the versions over `low` up to `high`, newest first, at most MAX_VERSIONS."""
    rows = []
    for version in library.store.backend.versions(resource, min(high - low, MAX_VERSIONS), high + 1):
        made = library.store.operation(version.operation)
        files = changed_files(
            _manifest(library, resource, version.parent), _manifest(library, resource, version.number)
        )
        rows.append(BetweenVersion(version.number, made.at, made.actor, made.reason, files))
    return rows


def _lines(move: ChannelMove, skills: list[StepChanges]) -> list[str]:
    note = move.note
    lines = [f"Move {move.id}, {_moment(note.at)}, by {note.actor}: {note.reason}"]
    if note.policy:
        lines.append(f"From here on the policy is {note.policy}.")
    for skill in skills:
        lines += ["", *_skill_lines(skill)]
    return lines


def _skill_lines(skill: StepChanges) -> list[str]:
    ends = f"{skill.before or 'nothing'} -> {skill.after or 'nothing'}"
    lines = [f"{skill.ref}  {ends} ({skill.what})"]
    lines += [f"  {how}: {path}" for path, how in skill.files.items()]
    sign = "-" if skill.what == "older" else "+"
    for v in skill.versions:
        lines.append(f"  {sign} version {v.version}, {_moment(v.at)}, by {v.actor}: {v.reason} ({', '.join(v.files)})")
    return lines


def _moment(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"
