"""Signals of how work ended: a person's words, tests that pass or fail, commits. English only; no model is asked.

`classify_verdict` counts whole clauses, for evidence: "it works" does, "make sure it works" does not. `corrects`,
`accepts` and `states` search anywhere, for reviews. Both read a message without its quotes, code and pasted texts. The
end of a test counts only where its exit code or its own summary shows it.
"""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from evolvable_store.storage.evidence import Outcome
from evolvable_store.storage.observations import OutcomeSignal
from evolvable_tools.outcomes.shell_commands import COMMAND_TOOLS, SimpleCommand, git_command, simple_commands
from evolvable_tools.sessions.taint import command_line

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session, Span


MAX_READ = 2_000
"""Characters of a message that are read: feedback comes first, and what follows is often pasted."""

MAX_WORDS = 600
"""Characters of a message in which a verdict counts."""

_QUOTED = (
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    re.compile(r"~~~.*?(?:~~~|\Z)", re.DOTALL),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"(?m)^\s*>.*$"),
    re.compile(r"(?m)^(?: {4}|\t).*$"),
    re.compile(r'"[^"]*"|“[^”]*”|«[^»]*»|‘[^\'\n]*\''),
    re.compile(r"(?<!\w)'[^'\n]*'(?!\w)"),
    re.compile(r"<(\w[\w-]*)[^>]*>.*?</\1>", re.DOTALL),
    re.compile(r"https?://\S+"),
)
_PRAISE = r"perfect|excellent|lgtm|looks\s+(?:good|great|perfect)|well\s+done|(?:good|great)\s+job"
_NOT_WANTED = r"not\s+what\s+i\s+(?:asked|meant|wanted|needed|said)"
_UNDO = r"(?:undo|revert|roll\s+back)\s+(?:it|that|this|the|your)"
_STILL = r"(?:fails|failing|broken|wrong|doesn'?t|does\s+not)"
_WRONG = r"(?:wrong|broken|incorrect|worse)"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE = re.compile(r"\s*(?:[,;:.!()]|\s[-–—]+\s|\bbut\b|\bhowever\b|\bthough\b|\bexcept\b)\s*")
_LEAD = (
    r"(?:(?:and|ok|okay|yes|yep|yeah|yay|no|nope|hm+|ah|oh|great|nice|cool|awesome|thanks|thank\s+you|thx|sorry|so|well|"
    r"actually|unfortunately|sadly|confirmed|now)\s+)*"
)
_IT = (
    r"(?:it|that|this|everything|all\s+of\s+it|all|your\s+(?:fix|change|solution|version)|"
    r"the\s+(?:fix|change|result|output))"
)
_TAIL = (
    r"(?:\s+(?:now|again|perfectly|fine|great|well|too|nicely|as\s+expected|like\s+a\s+charm|for\s+me|to\s+me|thanks))*"
)
_GOOD = re.compile(
    rf"""{_LEAD}(?:
        {_IT}\s+(?:all\s+)?(?:now\s+)?(?:works|worked|passes|fixed\s+(?:it|that)|solved\s+(?:it|that)|did\s+it|helped)
      | {_IT}(?:'s|\s+is|\s+was)\s+(?:all\s+)?(?:now\s+)?(?:working|fixed|solved|perfect|correct|right|good)
      | {_IT}\s+looks\s+(?:good|great|right|perfect|correct)
      | (?:works|worked|fixed|solved|{_PRAISE})
      | (?:(?:great|nice)\s+work|exactly\s+what\s+i\s+(?:wanted|needed|asked\s+for))
    ){_TAIL}""",
    re.VERBOSE,
)
_NOT = r"(?:(?:does|did|is|was)(?:n't|nt|\s+not)|'s\s+not|won't)"
_BAD = re.compile(
    rf"""{_LEAD}(?:
        {_IT}\s*(?:still\s+|really\s+|quite\s+)*{_NOT}\s+(?:(?:even|quite|really|at\s+all)\s+)*
            (?:work|working|help|helped|fix|fixed|solve|right|correct|good|what\s+i\s+(?:asked|wanted|meant|needed))\b.*
      | (?:{_IT}(?:'s|\s+is)?\s+)?still\s+(?:
            fails|failing|broken|wrong|not\s+(?:working|fixed|right)|doesn'?t\s+work
            |(?:(?:get|getting|see|seeing|shows?)\s+)?the\s+same\s+error)\b.*
      | {_IT}(?:'s|\s+is|\s+was)\s+{_WRONG}(?:\s+(?:now|again|too))*
      | you\s+broke\s+(?:it|that|this|the\s+\w+)
      | (?:please\s+)?(?:undo|revert|roll\s+back)\s+(?:it|that|this|your\s+changes?|all\s+of\s+(?:it|that))
            (?:\s+please)?
      | {_NOT_WANTED}(?:\s+for)?
    )""",
    re.VERBOSE,
)


# No message without one of these can match.
_HINT = re.compile(
    r"work|pass|fix|solve|did|help|perfect|correct|right|good|great|excellent|lgtm|done|job|nice|exactly|broke|wrong|worse|"
    r"still|not|n.t|undo|revert|roll",
    re.IGNORECASE,
)


def classify_verdict(text: str) -> Outcome | None:
    """Return SUCCEEDED or FAILED by a message's clauses, UNKNOWN for both, None for neither."""
    if not _HINT.search(text, 0, 10 * MAX_WORDS):
        return None
    found = set()
    own = re.sub(r"[^\S\n]+", " ", _without_quotes(text)).casefold().strip()[:MAX_WORDS]
    for sentence in _SENTENCE.split(own):
        if not sentence.rstrip().endswith("?"):
            for clause in _CLAUSE.split(sentence):
                found.add(_of(clause.strip(" .!")))
    found.discard(None)
    if len(found) > 1:
        return Outcome.UNKNOWN
    return found.pop() if found else None


def _of(clause: str) -> Outcome | None:
    if _BAD.fullmatch(clause):
        return Outcome.FAILED
    return Outcome.SUCCEEDED if _GOOD.fullmatch(clause) else None


_ANNOUNCED = re.compile(
    r"\b(?:this|these|the|that|following|an?|his|her|their)\s+(?:\w+\s+){0,2}(?:e?-?mail|message|letter|text|log|output|error|"
    r"article|post|comment|ticket|issue|traceback)s?\b[^\n:.]{0,40}:[ \t]*\n(?P<pasted>.*)",
    re.DOTALL | re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:^|(?<=[.!?]\s))(?:(?:and|but|so|ok|okay)\W+)?(?!why\s+(?:don't|not|didn't))"
    r"(?:why|what|how|which|where|when|who|is|are|was|were|do|does|did|has|have)\s[^.!?]*\?",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:nothing|not|isn't|isnt|is there anything|anything|what(?:'s| is| went)|why(?:'s| is)?|find out)\s+(?:\w+\s+)?(?:wrong|broken)\b"
    r"|\bno\s+(?:problem|worries|need|rush|changes?|idea|longer|more)\b|\bdon't\s+(?:worry|know|mind|think|have)\b"
    r"|\bnever\s+mind\b|\bwhy not\b|\bwithout\b|\bno\.?\s*\d"
    r"|^\W*no\W+(?:thanks|(?:that|this|it|all)(?:'s|\s+is)\s+(?:fine|ok|okay|good|all|alright|right|great|enough))\b"
    r"|\b(?:don't|do\s+not)\s[^.!?\n]{0,60}\b(?:yet|for\s+now)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^\W*(?:no|nope|nein|non|wrong|incorrect|undo|revert)\b[\s,.!:;–—-]"
    r"|^\W*stop\b(?:\s*(?:[,.!:;–—-]|$)|\s+(?:it|that|this|there|right|\w+ing)\b)|\bi(?:'d|\s+would)\s+(?:rather|prefer)\b"
    r"|\bthat(?:'s| is| was)\s+(?:not\s+(?:what|right|correct|how)|wrong|incorrect)"
    rf"|\b{_NOT_WANTED}"
    r"|\bi\s+(?:said|told\s+you|asked\s+(?:you\s+)?(?:for|not))\b"
    r"|\byou\s+(?:should(?:n't| not)?\s+have|forgot|missed|broke|ignored|keep\s+\w+ing)\b"
    r"|\b(?:don't|do\s+not|never|stop)\s+(?:use|do|add|edit|touch|change|run|write|put|remove|delete|commit|create|call|mock|skip|rename|push)\w*\b"
    r"|\binstead\s+of\b|\buse\s+[\w./@-]+\s*,?\s*not\s+\w|\b(?:still|again)\s+"
    rf"{_STILL}\b|\b{_UNDO}\b"
    r"|\bthat\s+(?:doesn't|does\s+not|didn't)\s+work\b"
    r"|\b(?:could|can|would)\s+you\s+(?:please\s+)?(?:keep|leave|restore|revert|undo|go\s+back|(?:put|change)\s+\w+\s+back)\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"^\W*(?:no|nope|nein|non)\b\W*", re.IGNORECASE)
_ACCEPTANCE = re.compile(
    rf"^\W*(?:{_PRAISE}|thanks|thank\s+you|thx|danke|merci|gracias|great|awesome|nice|"
    r"exactly|yes,?\s+(?:that|perfect|great|works)|that\s+works|it\s+works|works\s+(?:now|great|for\s+me)|"
    r"all\s+good|ship\s+it|approved)\b|\b(?:that|it|this|everything)\s+works\s+(?:now|perfectly|great)\b"
    r"|\blooks\s+good\s+to\s+me\b|\bthanks,?\s+that\b",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"\b(?:remember\s+(?:that|this|to|:)|from\s+now\s+on|in\s+(?:the\s+)?future|going\s+forward|for\s+next\s+time|"
    r"next\s+time,?\s+(?:please|you|i|we|use|run|do|don't|ask|first)|so\s+you\s+know|for\s+the\s+record|by\s+the\s+way|"
    r"fyi|for\s+your\s+information|from\s+(?:here|this\s+point)\s+on|"
    r"keep\s+in\s+mind|make\s+a\s+note|note\s+that\s+(?:we|i)\b|as\s+a\s+rule)\b"
    r"|\bi\s+(?:always|never|usually|prefer|like|hate|want\s+you\s+to\s+always)\b|\bwe\s+(?:always|never|prefer|use)\b"
    r"|\bour\s+(?:convention|policy|standard|style|team)\b|\bmy\s+(?:name|editor|timezone|role|team|company|machine)\s+is\b"
    r"|\bcall\s+me\b|\bi(?:'m| am)\s+(?:a|an|the|based|working)\b|^\W*(?:always|never)\b|(?<=[.!,;]\s)(?:always|never)\s+\w+",
    re.IGNORECASE | re.MULTILINE,
)
_SKILL_WISH = re.compile(
    r"\b(?:make|create|write|save|turn|add|record|capture)\b[^.?!\n]{0,60}\b(?:a|as|into|new|this)\s+(?:\w+\s+)?skill\b"
    r"|\bskill\s+for\s+(?:this|that|it|next\s+time)\b",
    re.IGNORECASE,
)


@lru_cache(8)
def _without_quotes(text: str) -> str:
    """Return the beginning of a message in its lines, with a mark for each quote, without what is pasted below."""
    text = unicodedata.normalize("NFKC", text[: 3 * MAX_READ]).replace("’", "'")
    announced = _ANNOUNCED.search(text)
    text = text[: announced.start("pasted")] if announced else text
    for quoted in _QUOTED:
        text = quoted.sub(" … ", text)
    return text


def unquoted_text(text: str) -> str:
    """Return the beginning of a message on one line, without quotes and pasted texts."""
    return " ".join(_without_quotes(text).replace("…", " ")[:MAX_READ].split())


def corrects(text: str, asked: bool = False) -> bool:
    """Return whether the words correct the work. asked: they answer a question of the agent's."""
    said = _ASKS.sub(" ", unquoted_text(text))
    if asked:
        said = _ANSWER.sub("", said)
    return bool(_CORRECTION.search(_HARMLESS.sub(" ", said)))


def accepts(text: str) -> bool:
    """Return whether the words accept the work, and correct nothing."""
    return bool(_ACCEPTANCE.search(unquoted_text(text))) and not corrects(text)


def states(text: str) -> bool:
    """Return whether the words state something that holds beyond this task."""
    said = unquoted_text(text)
    if wishes_skill(text) or said.rstrip().endswith("?"):
        return False
    return bool(_STANDING.search(_HARMLESS.sub(" ", said)))


def wishes_skill(text: str) -> bool:
    """Return whether the words ask for a new skill."""
    return bool(_SKILL_WISH.search(unquoted_text(text)))


MAX_PRINTED = 4_000
"""Characters at the end of the output of tests that are read: their summary comes last."""

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
class ToolCall:
    """A call of a tool and its result, None when the session ended before.

    commands: those of the line of shell that it runs; none for another tool.
    """

    span: "Span"
    result: "Span | None"
    commands: tuple[SimpleCommand, ...]

    @property
    def failed(self) -> bool:
        """Whether the tool reported a failure, or never answered."""
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
class SessionEnds:
    """Every signal of an end in one session."""

    runs: tuple[_Run, ...]
    commits: tuple[OutcomeSignal, ...]
    undone: tuple[int, ...]
    words: tuple[OutcomeSignal, ...]
    worked: tuple[int, ...]

    def between(self, first: int, last_turn: int | None = None) -> tuple[OutcomeSignal, ...]:
        """Return the signals after the span `first`, in turns up to `last_turn`; of each kind the last counts."""
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
    """Return the signal of the runs of one test.

    It failed and passes now, or passed and fails now, or ran again after the span `first` and still fails.
    """
    within = [run for run in runs if run.span > first and (last_turn is None or run.turn <= last_turn)]
    last = within[-1]
    before = [run for run in runs if run.span < last.span]
    if last.passed and any(not run.passed for run in before):
        return OutcomeSignal("tests", Outcome.SUCCEEDED, last.span, last.turn)
    if not last.passed and (any(run.passed for run in before) or len(within) > 1):
        return OutcomeSignal("tests", Outcome.FAILED, last.span, last.turn)
    return None


def outcome_of(signals: Iterable[OutcomeSignal]) -> Outcome | None:
    """Return the outcome of all signals: UNKNOWN where they contradict each other, None without any."""
    ends = {signal.outcome for signal in signals}
    if not ends:
        return None
    return ends.pop() if len(ends) == 1 else Outcome.UNKNOWN


def calls_of(session: "Session") -> list[ToolCall]:
    """Return the calls of tools in a session, in order, each with its result."""
    answers: dict[str, Span] = {}
    for span in session.spans:
        if span.call_id is not None and span.input is None:
            answers.setdefault(span.call_id, span)
    return [
        ToolCall(
            span,
            answers.get(span.call_id) if span.call_id is not None else None,
            simple_commands(command_line(span.input)) if span.tool in COMMAND_TOOLS else (),
        )
        for span in session.spans
        if span.tool is not None and span.input is not None
    ]


def ends_of(session: "Session", calls: Sequence[ToolCall]) -> SessionEnds:
    """Return every signal of an end in a session."""
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
        if span.origin == "user" and span.role == "user" and (said := classify_verdict(span.text)) is not None
    ]
    worked = tuple(call.span.index for call in calls)
    return SessionEnds(tuple(runs), tuple(commits), tuple(undone), tuple(words), worked)


def _test_of(simple: SimpleCommand) -> str | None:
    """Return the name of a run of tests, the same for each run of them; None for another command."""
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


def _passed(call: ToolCall, simple: SimpleCommand) -> bool | None:
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
    # The exit code is another command's, so the summary of the tests counts.
    return None if failed == passed else passed


def _is_commit(simple: SimpleCommand) -> bool:
    return git_command(simple) == "commit" and not {"--dry-run", "--help", "-h"} & set(simple.words)


def _has_committed(call: ToolCall, simple: SimpleCommand) -> bool:
    if call.failed or call.result is None or _STOPPED.search(call.result.text[-MAX_PRINTED:]):
        return False
    return simple.alone or _COMMITTED.search(call.result.text) is not None


def _takes_back(simple: SimpleCommand) -> bool:
    if git_command(simple) == "revert":
        return True
    earlier = re.compile(r"(?:HEAD|@)[~^]|ORIG_HEAD|origin/|[0-9a-f]{7,40}$")
    return git_command(simple) == "reset" and any(earlier.match(word) for word in simple.words)
