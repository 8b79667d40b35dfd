"""What the exit status of a line of shell tells about its parts: which ran, and which succeeded or
failed.

The parts are evaluated for each way in which the line can end; what holds in all of them is known.
What the operators do not tell, such as the branch of an `if`, is unknown. A line that changes the
rules (`trap`, functions) tells nothing. Errors and pipes are those of bash, with `set -e` and
`pipefail`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

MAX_DEPTH = 40
"""Groups within groups that are read; each level costs a few frames of Python's stack."""


class Status(Enum):
    """What is known of a part: that it ran, and how it ended."""

    RAN = "ran"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class UnclearLine(Exception):
    """A line of which nothing can be told about its parts."""


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command.

    number: its place among those of the line; words: without programs that start another.
    """

    number: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parts joined by `|`; negated: by `!`."""

    stages: tuple["Node", ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """Pipelines joined by `&&` and `||`: each with the operator before it, '' of the first.

    background: by `&`.
    """

    links: tuple[tuple[str, Pipeline], ...]
    background: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Chains one after the other.

    own: in a shell of its own; options: those that another process starts with.
    """

    chains: tuple[Chain, ...]
    own: bool = False
    options: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Branches:
    """A loop or a condition. certain: what runs at least once; possible: what may run."""

    certain: tuple[Group, ...]
    possible: tuple[Group, ...]


Node = Part | Group | Branches
_Facts = Mapping[int, Status]
_Ends = dict[tuple[bool, bool], _Facts]
"""What is known in each way to end: (whether it succeeded, whether the shell ended with it)."""

# Commands that hardly ever fail: a line that failed is not attributed to them.
_UNFAILING = frozenset(
    ("cd", "export", "source", ".", "set", "pushd", "mkdir", "echo", "printf", "true", ":")
)
# Commands after which the order or the status of the others cannot be followed.
_RULES = frozenset(
    ("trap", "eval", "alias", "return", "break", "continue")
    + ("shopt", "enable", "function", "coproc")
)


def tell_statuses(line: Group) -> tuple[_Facts, _Facts]:
    """Return what is known of the parts of a line that succeeded, and of one that failed.

    Raises UnclearLine.
    """
    # What a line begins with is tested by nobody, so `set -e` counts.
    ends = _close(_Shell().group(line, {}, tested=False))
    return ends.get((True, False), {}), ends.get((False, False), {})


def _common_facts(facts: Iterable[_Facts]) -> _Facts:
    """Return what several facts have in common."""
    first, *others = facts
    common = dict(first)
    for other in others:
        common = {
            # Where the two disagree on success, it is still known that the part ran.
            part: status if status is other[part] else Status.RAN
            for part, status in common.items()
            if part in other
        }
    return common


def _mark_ran(facts: _Facts) -> _Facts:
    return dict.fromkeys(facts, Status.RAN)


def _add(ends: _Ends, way: tuple[bool, bool], facts: _Facts) -> None:
    ends[way] = _common_facts([ends[way], facts]) if way in ends else facts


def _close(ends: _Ends) -> _Ends:
    """Return the ends of a shell of its own, as the shell around it sees them."""
    closed: _Ends = {}
    for (succeeded, _), facts in ends.items():
        _add(closed, (succeeded, False), facts)
    return closed


class _Shell:
    """The options of a shell while a line runs."""

    def __init__(self, options: frozenset[str] = frozenset()) -> None:
        self.options = set(options)

    def group(self, group: Group, facts: _Facts, *, tested: bool) -> _Ends:
        """Return how a group ends.

        tested: something looks at its status, so that `set -e` does not count.
        """
        if group.own:
            if group.options is not None:
                # Another process has the options it was started with, and a caller's test does not
                # reach into it.
                return _close(_Shell(group.options)._chains(group, facts, tested=False))
            return _close(_Shell(frozenset(self.options))._chains(group, facts, tested=tested))
        return self._chains(group, facts, tested=tested)

    def _chains(self, group: Group, facts: _Facts, *, tested: bool) -> _Ends:
        ends: _Ends = {(True, False): facts}
        for chain in group.chains:
            # Ends after which the shell goes on; the others are final.
            alive = [way_facts for (_, over), way_facts in ends.items() if not over]
            if not alive:
                break
            before = _common_facts(alive)
            ends = {way: way_facts for way, way_facts in ends.items() if way[1]}
            # A command in the background has no status that the line waits for, and it may not have
            # ended.
            after: _Ends = {(True, False): before}
            if not chain.background:
                after = self._chain(chain, before, tested=tested)
            for way, way_facts in after.items():
                _add(ends, way, way_facts)
        return ends

    def _chain(self, chain: Chain, facts: _Facts, *, tested: bool) -> _Ends:
        ends: _Ends = {(True, False): facts}
        last = len(chain.links) - 1
        for place, (operator, pipeline) in enumerate(chain.links):
            # After `||` a command runs if those before failed, else (`&&` or the first) if they
            # succeeded.
            entered = operator != "||"
            before = ends.pop((entered, False), None)
            if before is not None:
                is_tested = tested or place < last
                after = self._pipeline(pipeline, before, is_tested, place == 0)
                for way, way_facts in after.items():
                    _add(ends, way, way_facts)
        return ends

    def _pipeline(self, pipeline: Pipeline, facts: _Facts, tested: bool, plain: bool) -> _Ends:
        tested = tested or pipeline.negated
        if len(pipeline.stages) > 1:
            ends = self._pipe_ends(pipeline.stages, facts, tested=tested)
        else:
            ends = self._node(pipeline.stages[0], facts, tested, plain and not pipeline.negated)
        if pipeline.negated:
            return {
                (succeeded if over else not succeeded, over): way_facts
                for (succeeded, over), way_facts in ends.items()
            }
        [*_, node] = pipeline.stages
        # `set -e` looks at the status of simple commands, pipes and subshells, not at that of
        # compound commands.
        simple = (
            len(pipeline.stages) > 1
            or isinstance(node, Part)
            or (isinstance(node, Group) and node.own)
        )
        if "errexit" in self.options and not tested and simple and (False, False) in ends:
            _add(ends, (False, True), ends.pop((False, False)))
        return ends

    def _pipe_ends(self, stages: tuple[Node, ...], facts: _Facts, *, tested: bool) -> _Ends:
        ends: dict[bool, _Facts] = {True: facts}
        for node in stages:
            # Each stage of a pipe runs in a subshell: its `set` and `exit` end there.
            inner = _Shell(frozenset(self.options))
            stage_ends = _close(inner._node(node, {}, tested, False))
            own = {succeeded: way_facts for (succeeded, _), way_facts in stage_ends.items()}
            joined: _Ends = {}
            for before, earlier in ends.items():
                for succeeded, way_facts in own.items():
                    # Without `pipefail` the status of a pipe is that of its last stage.
                    together = (before and succeeded) if "pipefail" in self.options else succeeded
                    _add(joined, (together, False), {**earlier, **way_facts})
            ends = {way[0]: way_facts for way, way_facts in joined.items()}
        return {(succeeded, False): way_facts for succeeded, way_facts in ends.items()}

    def _node(self, node: Node, facts: _Facts, tested: bool, plain: bool) -> _Ends:
        if isinstance(node, Part):
            return self._part(node, facts, plain=plain)
        if isinstance(node, Group):
            return self.group(node, facts, tested=tested)
        return self._branches(node, facts, tested=tested)

    def _branches(self, node: Branches, facts: _Facts, *, tested: bool) -> _Ends:
        over: _Ends = {}
        options = set(self.options)
        for place, group in enumerate((*node.certain, *node.possible)):
            ends = self.group(group, facts, tested=tested)
            for way, way_facts in ends.items():
                if way[1]:
                    # A body may run several times, so of its parts it is only known that they ran.
                    _add(over, way, _mark_ran(way_facts))
            alive = [way_facts for way, way_facts in ends.items() if not way[1]]
            if place < len(node.certain) and alive:
                facts = {**_mark_ran(_common_facts(alive)), **facts}
        # Options that a branch changed hold or not, depending on the branch.
        if options != self.options:
            raise UnclearLine
        return {(True, False): facts, (False, False): facts, **over}

    def _part(self, part: Part, facts: _Facts, *, plain: bool) -> _Ends:
        program = part.words[0]
        # `set` within a pipe or a condition may change options or not.
        if program in _RULES or (program == "set" and not plain and len(part.words) > 1):
            raise UnclearLine
        if program == "set":
            self._set(part.words[1:])
        done = {**facts, part.number: Status.SUCCEEDED}
        failed = {**facts, part.number: Status.FAILED}
        if program == "exit":
            # `exit` without a number takes the status of the command before.
            code = part.words[1] if len(part.words) > 1 else "$?"
            if not code.isdigit():
                return {(True, True): facts, (False, True): facts}
            # The status of a process has eight bits.
            return {(int(code) % 256 == 0, True): facts}
        if program in _UNFAILING:
            return {(True, False): done}
        if program == "false":
            return {(False, False): failed}
        return {(True, False): done, (False, False): failed}

    def _set(self, words: tuple[str, ...]) -> None:
        """Follow `set -e`, `set -euo pipefail`, `set +e`."""
        names = {"e": "errexit"}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word[:1] not in ("-", "+") or word in ("-", "--"):
                return
            for letter in word[1:]:
                name = (rest.pop(0) if rest else "") if letter == "o" else names.get(letter, "")
                (self.options.add if word[0] == "-" else self.options.discard)(name)
