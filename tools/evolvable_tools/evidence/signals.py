"""What in a session tells how its work ended: a failing test that passes later, a commit, a person's own word.

Nothing is guessed: a test's end counts only where its exit code or its own summary says it, and a session in which
none of these happened has no outcome.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolvable_store.storage.evidence import Outcome
from evolvable_store.storage.observations import OutcomeSignal
from evolvable_tools.evidence.commands import Simple, simple_commands
from evolvable_tools.evidence.words import verdict

if TYPE_CHECKING:
    from evolvable_tools.sessions.session import Session, Span

COMMAND_TOOLS = frozenset(("Bash", "shell", "shell_command", "exec_command", "local_shell", "unified_exec"))

MAX_PRINTED = 4_000
"""Characters at the end of what tests printed that are looked at: their summary stands there."""

_TESTS = frozenset(
    ("pytest", "py.test", "tox", "nox", "jest", "vitest", "mocha", "ava", "rspec", "phpunit", "ctest", "gotestsum")
)
_WITH_TEST = (
    "go cargo npm pnpm yarn bun make mvn gradle gradlew dotnet mix swift rake bazel deno rails sbt zig flutter just"
)
_TESTS_OF = frozenset(_WITH_TEST.split())
"""Programs whose tests are run by their argument `test`."""

_LOUD = re.compile(r"-(?:q+|v+|s|x)|--(?:quiet|verbose|tb=\w+|color(?:=\w+)?|no-header)")
_EXIT = re.compile(r"(?:Process exited with code|Exit code:?|exit code:?)\s+(\d+)")
_FAILED = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|^(?:FAILED|FAIL)\b|test result: FAILED|^--- FAIL|"
    r"\bfailures=[1-9]|\berrors=[1-9]|^FAILURES!|BUILD FAILURE",
    re.MULTILINE,
)
_PASSED = re.compile(
    r"\b[1-9]\d* (?:passed|passing)\b|test result: ok\. [1-9]|^ok\s+\S+|^OK\b|^PASS\b|BUILD SUCCESS|\bpass [1-9]",
    re.MULTILINE,
)
_NOTHING_RAN = re.compile(r"no tests ran|collected 0 items|Ran 0 tests|no test files|No tests found|no tests found")
_STOPPED = re.compile(r"[Tt]imed out|\[Request interrupted|[Cc]ommand was aborted|^Interrupted", re.MULTILINE)
_COMMITTED = re.compile(r"^\[[^\]\n]+ [0-9a-f]{7,40}\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool and what it answered. result: None when the session ended before it.

    commands: what the line of shell runs that it was given; none for another tool.
    """

    span: "Span"
    result: "Span | None"
    commands: tuple[Simple, ...]

    @property
    def failed(self) -> bool:
        """Whether the tool said that it failed, or never answered."""
        return self.result is None or self.result.is_error or bool(self.exit_code)

    @property
    def exit_code(self) -> int | None:
        if self.result is None:
            return None
        said = _EXIT.search(self.result.text[:400])
        if said is not None:
            return int(said[1])
        return 1 if self.result.is_error else 0


@dataclass(frozen=True, slots=True)
class _Run:
    span: int
    turn: int
    test: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """Everything in one session that tells of an end, to be asked for parts of it."""

    runs: tuple[_Run, ...]
    commits: tuple[OutcomeSignal, ...]
    undone: tuple[int, ...]
    words: tuple[OutcomeSignal, ...]
    worked: tuple[int, ...]

    def between(self, first: int, last_turn: int | None = None) -> tuple[OutcomeSignal, ...]:
        """Returns the signals behind the span `first`, in turns up to `last_turn`; of each kind the last counts."""
        within = [run for run in self.runs if run.span > first and (last_turn is None or run.turn <= last_turn)]
        runs: dict[str, list[_Run]] = {run.test: [] for run in within}
        for run in self.runs:
            if run.test in runs:
                runs[run.test].append(run)
        tests = (_tested(of_one, first, last_turn) for of_one in runs.values())
        commits = [
            commit
            for commit in self.commits
            if commit.span > first and (last_turn is None or commit.turn <= last_turn)
            if not self.undone or self.undone[-1] < commit.span
        ]
        begun = next(iter(self.worked[bisect_left(self.worked, first) :]), math.inf)
        words = [word for word in self.words if (last_turn is None or word.turn <= last_turn) and begun < word.span]
        settled = [word for word in words[-1:] if word.outcome is not Outcome.UNKNOWN]
        return (*(signal for signal in tests if signal is not None), *commits[-1:], *settled)


def _tested(runs: Sequence[_Run], first: int, last_turn: int | None) -> OutcomeSignal | None:
    """Returns what the runs of one test tell: it failed and passes now, or passed before and fails now, or was
    tried again behind the span `first` and still fails."""
    within = [run for run in runs if run.span > first and (last_turn is None or run.turn <= last_turn)]
    last = within[-1]
    before = [run for run in runs if run.span < last.span]
    if last.passed and any(not run.passed for run in before):
        return OutcomeSignal("tests", Outcome.SUCCEEDED, last.span, last.turn)
    if not last.passed and (any(run.passed for run in before) or len(within) > 1):
        return OutcomeSignal("tests", Outcome.FAILED, last.span, last.turn)
    return None


def outcome_of(signals: Iterable[OutcomeSignal]) -> Outcome | None:
    """Returns what the signals say together: UNKNOWN where they contradict each other, None where there are none."""
    ends = {signal.outcome for signal in signals}
    if not ends:
        return None
    return ends.pop() if len(ends) == 1 else Outcome.UNKNOWN


def calls_of(session: "Session") -> list[Call]:
    """Returns the calls of tools in a session, in order, each with its answer."""
    answers: dict[str, Span] = {}
    for span in session.spans:
        if span.call_id is not None and span.input is None:
            answers.setdefault(span.call_id, span)
    return [
        Call(span, answers.get(span.call_id) if span.call_id is not None else None, simple_commands(_line_of(span)))
        for span in session.spans
        if span.tool is not None and span.input is not None
    ]


def _line_of(call: "Span") -> str:
    """Returns the line of shell that a call runs, '' for another tool."""
    given = call.input or {}
    if call.tool not in COMMAND_TOOLS:
        return ""
    value = given.get("command", given.get("cmd", ""))
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        # A shell that is given a line is called as a list of three words; the line is the last.
        return value[-1] if len(value) > 2 and re.fullmatch(r"-[a-z]*c", value[-2]) else " ".join(value)
    return value if isinstance(value, str) else ""


def ends_of(session: "Session", calls: Sequence[Call]) -> Ends:
    """Returns everything in a session that tells of an end."""
    runs: list[_Run] = []
    commits: list[OutcomeSignal] = []
    undone: list[int] = []
    for call in calls:
        for simple in call.commands if call.result is not None else ():
            place = (call.span.index, call.span.turn)
            test = _test_of(simple)
            if test is not None and (passed := _passed(call, simple)) is not None:
                runs.append(_Run(*place, test, passed))
            elif _is_commit(simple) and _has_committed(call, simple):
                commits.append(OutcomeSignal("commit", Outcome.SUCCEEDED, *place))
            elif _takes_back(simple) and not call.failed:
                undone.append(call.span.index)
    words = [
        OutcomeSignal("words", said, span.index, span.turn)
        for span in session.spans
        if span.origin == "user" and span.role == "user" and (said := verdict(span.text)) is not None
    ]
    worked = tuple(call.span.index for call in calls)
    return Ends(tuple(runs), tuple(commits), tuple(undone), tuple(words), worked)


def _test_of(simple: Simple) -> str | None:
    """Returns what names a run of tests, the same for each run of them; None for another command."""
    words = [simple.program, *simple.words[1:]]
    if words[0] in ("python", "python3") and words[1:3] in (["-m", "pytest"], ["-m", "unittest"]):
        words = words[2:]
    elif words[0] in _TESTS_OF and (words[1:2] == ["run"] or words[1:2] == ["nextest"]):
        words = [words[0], "test" if words[1] == "nextest" else words[2] if len(words) > 2 else "", *words[3:]]
    alone = words[0] in _TESTS or words[0] == "unittest"
    if not alone and not (words[0] in _TESTS_OF and words[1:] and words[1].partition(":")[0] == "test"):
        return None
    if any(word in ("--help", "--version", "--collect-only", "--co", "--list") for word in words):
        return None
    return " ".join(word for word in words if not _LOUD.fullmatch(word))


def _passed(call: Call, simple: Simple) -> bool | None:
    assert call.result is not None
    text = call.result.text[-MAX_PRINTED:]
    if _STOPPED.search(text):
        return None
    failed, passed = _FAILED.search(text) is not None, _PASSED.search(text) is not None
    code = call.exit_code
    if not failed and not passed and _NOTHING_RAN.search(text):
        return None
    if code == 0 and simple.alone:
        return True
    if code and simple.blamed:
        return False
    # The exit code is another command's: what the tests say of themselves counts.
    return None if failed == passed else passed


def _is_commit(simple: Simple) -> bool:
    return _git(simple) == "commit" and not {"--dry-run", "--help", "-h"} & set(simple.words)


def _has_committed(call: Call, simple: Simple) -> bool:
    if call.failed or call.result is None or _STOPPED.search(call.result.text[-MAX_PRINTED:]):
        return False
    return simple.alone or _COMMITTED.search(call.result.text) is not None


def _takes_back(simple: Simple) -> bool:
    if _git(simple) == "revert":
        return True
    earlier = re.compile(r"(?:HEAD|@)[~^]|ORIG_HEAD|origin/|[0-9a-f]{7,40}$")
    return _git(simple) == "reset" and any(earlier.match(word) for word in simple.words)


def _git(simple: Simple) -> str | None:
    """Returns git's command, None for another program."""
    if simple.program != "git":
        return None
    words = iter(simple.words[1:])
    for word in words:
        if word in ("-C", "-c"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None
