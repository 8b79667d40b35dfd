"""Signals of how work ended: a person's words, tests that pass or fail, commits. English only; no
model is asked.

`classify_verdict` counts whole clauses, for evidence: "it works" does, "make sure it works" does
not. `corrects`, `accepts` and `states` search anywhere, for reviews. Both read a message without
its quotes, code and pasted texts. The end of a test counts only where its exit code or its own
summary shows it. The phrases are in patterns.toml.
"""

import math
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.storage import Outcome, OutcomeSignal
from evolvable_tools.outcomes.shell_commands import (
    COMMAND_TOOLS,
    VIEWERS,
    SimpleCommand,
    git_command,
    simple_commands,
)
from evolvable_tools.sessions import command_line

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session, Span


MAX_READ = 2_000
"""Characters of a message that are read: feedback comes first, and what follows is often pasted."""

MAX_WORDS = 600
"""Characters of a message in which its verdict is looked for: what follows is mostly
the next task.
"""

# A line break ends a sentence too: people write lists and short lines.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# A verdict may stand in one clause and its opposite in the next: "it works, but the tests fail".
_CLAUSE = re.compile(r"\s*(?:[,;:.!()]|\s[-–—]+\s|\bbut\b|\bhowever\b|\bthough\b|\bexcept\b)\s*")


def _compile_section(section: str, flags: re.RegexFlag = re.NOFLAG) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a section of patterns.toml by name."""

    def join_alternatives(alternatives: list[str]) -> str:
        return re.sub(
            r"\{\{(\w+)\}\}",
            lambda part: join_alternatives(_TABLES["parts"][part[1]]),
            "|".join(alternatives),
        )

    return {
        name: re.compile(join_alternatives(alternatives), flags)
        for name, alternatives in _TABLES[section].items()
    }


_TABLES = tomllib.loads(Path(__file__).with_name("patterns.toml").read_text("utf-8"))
_WORDS, _OUTPUT = _compile_section("words", re.IGNORECASE), _compile_section("output", re.MULTILINE)
_COMMANDS, _QUOTES = _compile_section("commands"), _compile_section("quotes")


def classify_verdict(text: str) -> Outcome | None:
    """Return SUCCEEDED or FAILED by a message's clauses, UNKNOWN for both, None for neither."""
    # Most messages have no word of a verdict, which one search over their beginning tells.
    if not _WORDS["hint"].search(text, 0, 10 * MAX_WORDS):
        return None
    one_spaced = re.sub(r"[^\S\n]+", " ", _replace_quotes(text))
    verdicts = set()
    for sentence in _SENTENCE.split(one_spaced.casefold().strip()[:MAX_WORDS]):
        # A question says nothing of how the work ended.
        if not sentence.rstrip().endswith("?"):
            for clause in _CLAUSE.split(sentence):
                verdicts.add(_judge_clause(clause.strip(" .!")))
    verdicts.discard(None)
    if len(verdicts) > 1:
        return Outcome.UNKNOWN
    return verdicts.pop() if verdicts else None


def _judge_clause(clause: str) -> Outcome | None:
    if _WORDS["bad_clause"].fullmatch(clause):
        return Outcome.FAILED
    return Outcome.SUCCEEDED if _WORDS["good_clause"].fullmatch(clause) else None


# Several functions below ask about one message.
@lru_cache(8)
def _replace_quotes(text: str) -> str:
    """Return the beginning of a message in its lines, with a mark for each quote, without what is
    pasted below.
    """
    # A few times the length that is read, since quotes are taken out of it.
    text = unicodedata.normalize("NFKC", text[: 3 * MAX_READ]).replace("’", "'")
    announced = _WORDS["announced"].search(text)
    text = text[: announced.start("pasted")] if announced else text
    for quoted in _QUOTES.values():
        text = quoted.sub(" … ", text)
    return text


def unquoted_text(text: str) -> str:
    """Return the beginning of a message on one line, without quotes and pasted texts."""
    return " ".join(_replace_quotes(text).replace("…", " ")[:MAX_READ].split())


def corrects(text: str, is_answer: bool = False) -> bool:
    """Return whether the words correct the work.

    is_answer: they answer a question of the agent's.
    """
    # A question such as "can you fix it" asks for work and corrects none.
    message = _WORDS["asks"].sub(" ", unquoted_text(text))
    if is_answer:
        message = _WORDS["answer"].sub("", message)
    return bool(_WORDS["correction"].search(_WORDS["harmless"].sub(" ", message)))


def accepts(text: str) -> bool:
    """Return whether the words accept the work, and correct nothing."""
    return bool(_WORDS["acceptance"].search(unquoted_text(text))) and not corrects(text)


def states(text: str) -> bool:
    """Return whether the words state something that holds beyond this task."""
    message = unquoted_text(text)
    if wishes_skill(text) or message.rstrip().endswith("?"):
        return False
    return bool(_WORDS["statement"].search(_WORDS["harmless"].sub(" ", message)))


def wishes_skill(text: str) -> bool:
    """Return whether the words ask for a new skill."""
    return bool(_WORDS["skill_wish"].search(unquoted_text(text)))


BROKEN_PIPE = 141
"""The exit code of a program whose output nobody reads any more."""

MAX_PRINTED = 4_000
"""Characters at the end of the output of tests that are read: their summary comes last."""

_TESTS, _TESTS_OF = (
    frozenset(_TABLES["programs"][name].split()) for name in ("tests", "with_test")
)
"""Programs that run tests, and those whose tests are run by their argument `test`."""

_TESTS_NOTHING = frozenset(("--help", "--version", "--collect-only", "--co", "--list", "--no-run"))
"""Options with which a run executes no test."""

# Options that change what a run of tests prints and not what it tests, so that runs with and
# without them compare.
_LOUD = re.compile(r"-(?:q+|v+|s|x)|--(?:quiet|verbose|tb=\w+|color(?:=\w+)?|no-header)")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool and its result, None when the session ended before.

    commands: those of the line of shell that it runs; none for another tool.
    """

    span: "Span"
    result: "Span | None"
    commands: tuple[SimpleCommand, ...]

    @property
    def has_failed(self) -> bool:
        """Whether the tool reported a failure, or never answered."""
        return self.result is None or self.result.is_error or bool(self.exit_code)

    @property
    def exit_code(self) -> int | None:
        if self.result is None:
            return None
        # The line with the exit code stands at the beginning of a client's result.
        match = _OUTPUT["exit_code"].search(self.result.text[:400])
        if match is not None:
            return int(match[1])
        return 1 if self.result.is_error else 0


Moment = tuple[int, int]
"""Where in a session something happened: the index of a span, and the place of a command in its
line of shell.
"""

BEGIN: Moment = (-1, 0)
"""Before everything in a session."""


@dataclass(frozen=True, slots=True)
class _Run:
    at: Moment
    turn: int
    test: str
    passed: bool
    copied: bool


@dataclass(frozen=True, slots=True)
class SessionEnds:
    """Every signal of an end in one session.

    What another session had first only shows what was before.
    """

    runs: tuple[_Run, ...]
    commits: tuple[tuple[Moment, OutcomeSignal], ...]
    undone: tuple[Moment, ...]
    words: tuple[OutcomeSignal, ...]
    worked: tuple[int, ...]

    def between(self, first: Moment, last_turn: int | None = None) -> tuple[OutcomeSignal, ...]:
        """Return the signals after the moment `first`, in turns up to `last_turn`; of each kind the
        last counts.
        """
        end = math.inf if last_turn is None else last_turn
        within: dict[str, list[_Run]] = defaultdict(list)
        for run in self.runs:
            if run.at > first and run.turn <= end and not run.copied:
                within[run.test].append(run)
        tests = (
            _judge_runs(runs, [run for run in self.runs if run.test == test])
            for test, runs in within.items()
        )
        # After a reset the commits before it are gone; only those after the last one count.
        undone = max((first, *self.undone[-1:]))
        commits = [commit for at, commit in self.commits if at > undone and commit.turn <= end]
        # A verdict is on work of the session, so it has to come after the first call of a tool.
        begun = next(iter(self.worked[bisect_left(self.worked, first[0]) :]), math.inf)
        words = [word for word in self.words if word.turn <= end and begun < word.span]
        # People may change their minds, so the last verdict counts.
        settled = [word for word in words[-1:] if word.outcome is not Outcome.UNKNOWN]
        return (*(signal for signal in tests if signal is not None), *commits[-1:], *settled)


def _judge_runs(within: Sequence[_Run], runs: Sequence[_Run]) -> OutcomeSignal | None:
    """Return the signal of the runs of one test. within: those that count.

    It failed and passes now, or passed and fails now, or ran again and still fails.
    """
    last = within[-1]
    # Runs of before the use count here: they show that the test failed then.
    before = [run for run in runs if run.at < last.at]
    if last.passed and any(not run.passed for run in before):
        return OutcomeSignal("tests", Outcome.SUCCEEDED, last.at[0], last.turn)
    if not last.passed and (any(run.passed for run in before) or len(within) > 1):
        return OutcomeSignal("tests", Outcome.FAILED, last.at[0], last.turn)
    return None


def outcome_of(signals: Iterable[OutcomeSignal]) -> Outcome | None:
    """Return the outcome of all signals: UNKNOWN where they contradict each other, None without
    any.
    """
    ends = {signal.outcome for signal in signals}
    if not ends:
        return None
    return ends.pop() if len(ends) == 1 else Outcome.UNKNOWN


def pair_calls(spans: Sequence["Span"]) -> Iterator[tuple["Span", "Span | None"]]:
    """Yield the calls of tools in a session, in order, each with its first result, None where it
    has none.
    """
    results: dict[str, Span] = {}
    for span in spans:
        if span.call_id is not None and span.input is None:
            # A result may come twice in a transcript that was resumed.
            results.setdefault(span.call_id, span)
    return (
        (span, results.get(span.call_id or ""))
        for span in spans
        if span.tool and span.input is not None
    )


def calls_of(session: "Session") -> list[ToolCall]:
    """Return the calls of tools in a session, in order, each with its result and its commands."""
    return [
        ToolCall(
            call,
            result,
            simple_commands(command_line(call.input or {})) if call.tool in COMMAND_TOOLS else (),
        )
        for call, result in pair_calls(session.spans)
    ]


def ends_of(session: "Session", calls: Sequence[ToolCall]) -> SessionEnds:
    """Return every signal of an end in a session."""
    runs: list[_Run] = []
    commits: list[tuple[Moment, OutcomeSignal]] = []
    undone: list[Moment] = []
    for call in calls:
        # Without a result nothing shows that the command ran.
        for number, simple in enumerate(call.commands if call.result is not None else ()):
            at: Moment = (call.span.index, number)
            test = _name_test(simple)
            if test is not None and (passed := _has_passed(call, simple)) is not None:
                runs.append(_Run(at, call.span.turn, test, passed, call.span.copied))
            elif _is_commit(simple) and not call.span.copied and _has_committed(call, simple):
                commits.append(
                    (at, OutcomeSignal("commit", Outcome.SUCCEEDED, at[0], call.span.turn))
                )
            elif _is_undo(simple) and not call.has_failed:
                undone.append(at)
    words = [
        OutcomeSignal("words", verdict, span.index, span.turn)
        for span in session.spans
        if span.typed and not span.copied and (verdict := classify_verdict(span.text)) is not None
    ]
    worked = tuple(call.span.index for call in calls)
    return SessionEnds(tuple(runs), tuple(commits), tuple(undone), tuple(words), worked)


def _name_test(simple: SimpleCommand) -> str | None:
    """Return the name of a run of tests, the same for each run of them; None for
    another command.
    """
    words = [simple.program, *simple.words[1:]]
    # `python -m pytest` is pytest; `npm run test` and `cargo nextest run` are runs of their
    # program's tests.
    if words[0] in ("python", "python3") and words[1:3] in (["-m", "pytest"], ["-m", "unittest"]):
        words = words[2:]
    elif words[0] in _TESTS_OF and (words[1:2] == ["run"] or words[1:2] == ["nextest"]):
        script = words[2] if len(words) > 2 else ""
        words = [words[0], "test" if words[1] == "nextest" else script, *words[3:]]
    is_tester = words[0] in _TESTS or words[0] == "unittest"
    has_test = words[0] in _TESTS_OF and words[1:] and words[1].partition(":")[0] == "test"
    if not is_tester and not has_test:
        return None
    if not _TESTS_NOTHING.isdisjoint(words):
        return None
    return " ".join(word for word in words if not _LOUD.fullmatch(word))


def _has_passed(call: ToolCall, simple: SimpleCommand) -> bool | None:
    if call.result is None:
        return None
    text = call.result.text[-MAX_PRINTED:]
    # A client stopped the output or the program, so its summary is missing.
    if _OUTPUT["stopped"].search(text):
        return None
    failed = _OUTPUT["tests_failed"].search(text) is not None
    passed = _OUTPUT["tests_passed"].search(text) is not None
    code = call.exit_code
    if code == BROKEN_PIPE:
        return None  # a later program of the pipe had seen enough
    # No test was found, which an exit code of 0 would make a success.
    if not failed and not passed and _OUTPUT["nothing_ran"].search(text):
        return None
    # The exit code of the line is that of this command.
    if code == 0 and simple.succeeds_with_line:
        return True
    if code and simple.fails_with_line:
        return False
    # The exit code is another command's, so the summary of the tests counts. A bad one always does,
    # a good one only where the line shows what the tests printed.
    if failed:
        return None if passed and not code else False
    return True if passed and not code and simple.is_shown else None


def closing_verdict(text: str) -> bool | None:
    """Return whether a check succeeded by the line with which its program ends, None where it has
    none.

    It counts where the exit code is another command's. Where one line says yes and another no,
    nothing is known.
    """
    end = text[-MAX_PRINTED:]
    if _OUTPUT["stopped"].search(end):
        return None
    bad = _OUTPUT["tests_failed"].search(end) or _OUTPUT["check_failed"].search(end)
    good = _OUTPUT["tests_passed"].search(end) or _OUTPUT["check_passed"].search(end)
    if bad:
        return False
    return True if good else None


def _is_commit(simple: SimpleCommand) -> bool:
    # With one of these options git only shows what it would do.
    return git_command(simple) == "commit" and not {"--dry-run", "--help", "-h"} & set(simple.words)


def _has_committed(call: ToolCall, simple: SimpleCommand) -> bool:
    # Part of a line that failed elsewhere may have committed; without its own message nothing shows
    # that.
    if call.has_failed or call.result is None:
        return False
    if _OUTPUT["stopped"].search(call.result.text[-MAX_PRINTED:]):
        return False
    return simple.succeeds_with_line or _OUTPUT["committed"].search(call.result.text) is not None


def _is_undo(simple: SimpleCommand) -> bool:
    if git_command(simple) == "revert":
        return True
    # A reset to an earlier commit takes commits back; one of the index or a file does not.
    is_reset = git_command(simple) == "reset"
    return is_reset and any(map(_EARLIER_COMMIT.match, simple.words))


_EARLIER_COMMIT = re.compile(r"(?:HEAD|@)[~^]|ORIG_HEAD|origin/|[0-9a-f]{7,40}$")


# What a command is, and how it ended


def is_check(command: str) -> bool:
    """Return whether the exit code of a command says if the work is right: tests, types, lint,
    build.
    """
    return any(_COMMANDS["check"].search(text) for text in _list_commands(command))


def is_passed_check(command: str) -> bool:
    """Return whether a check passed where the whole line did, as the operators of the
    line tell it.
    """
    return any(
        _COMMANDS["check"].search(" ".join(simple.words))
        for simple in simple_commands(command)
        if simple.is_shown
    )


# Several questions are asked of one command in a row.
@lru_cache(64)
def only_looks(command: str) -> bool:
    """Return whether a command only shows something, which is no step of a procedure."""
    texts = _list_commands(command)
    return bool(texts) and all(_COMMANDS["look"].search(text) for text in texts)


@lru_cache(64)
def _list_commands(command: str) -> tuple[str, ...]:
    """Return the simple commands of a line as texts, without changes of folder and pipes that only
    show.
    """
    texts: list[str] = []
    for simple in simple_commands(command):
        # A viewer at the end of a pipe only shortens what the command prints.
        only_shows = texts and simple.piped and simple.program in VIEWERS
        if simple.program != "cd" and not only_shows:
            texts.append(" ".join(simple.words))
    return tuple(texts)


def undoes(command: str) -> bool:
    """Return whether a command reverts changes of files."""
    return any(
        git == "restore"
        or git == "revert"
        or (git == "checkout" and "--" in simple.words)
        or (git == "reset" and "--hard" in simple.words)
        for simple in simple_commands(command)
        if (git := git_command(simple)) is not None
    )


def commits(command: str) -> bool:
    """Return whether a command makes a commit."""
    return any(_is_commit(simple) for simple in simple_commands(command))


def reports_failure(text: str, is_error: bool) -> bool:
    """Return whether the output of a command reports a failure."""
    # Compilers and tests report at the end, shells at the beginning; the middle of a long output is
    # text.
    return is_error or bool(
        _OUTPUT["failed"].search(text[:4_000]) or _OUTPUT["failed"].search(text[-4_000:])
    )


def ended_badly(command: str, text: str, is_error: bool) -> bool:
    """Return whether a command failed.

    One that only shows something may show failures, and may find nothing.
    """
    if not only_looks(command):
        return reports_failure(text, is_error) and not (is_error and _found_nothing(command, text))
    # A search without a match ends with 1 and has not failed.
    return is_error and not _found_nothing(command, text)


def _found_nothing(command: str, text: str) -> bool:
    """Return whether the last command of a line is a search that printed nothing."""
    printed = _OUTPUT["client_lines"].sub("", text[:2_000]).strip()
    last = _list_commands(command)[-1:]
    return not printed and any(map(_COMMANDS["search"].search, last))


def was_refused(text: str) -> bool:
    """Return whether a result says that a person or a setting refused the call."""
    return _OUTPUT["refused"].search(text[:600]) is not None
