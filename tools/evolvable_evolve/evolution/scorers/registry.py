"""All scorers by name (exact, JSON, pattern, numeric, command and judge), and the part of an output
that they score.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import executors
from evolvable_evolve.evolution.scorers import external_scorers
from evolvable_evolve.evolution.scorers.numeric import (
    find_final_answer,
    numeric_strict,
    officeqa_compat,
    officeqa_graded,
)
from evolvable_evolve.evolution.task import (
    RegisteredScorer,
    Rollout,
    Score,
    ScorerError,
    ScorerSpec,
    Task,
)
from evolvable_server.plugins import plugin_scorers
from evolvable_tools.llm import schema_problem

_SEARCHED = 200_000
"""Characters at the end of an output in which JSON between other words is looked for."""

# Bounds the time, because each try may read to the end.
_TRIES = 500
"""Brackets at which reading JSON is tried."""

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n```", re.DOTALL)


def extract_answer(output: str, part: str) -> str:
    """Return the part of the output that is the answer; '' where that part is missing."""
    if part == "last_line":
        return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    if part == "tagged":
        try:
            answer = find_final_answer(output)
        except ValueError:
            return ""
        # All of the output: it has no tags.
        return "" if answer == output else answer
    return output


def extract_json(output: str) -> Any:
    """Return the JSON value of an output: all of it, else the last fenced block, else the last
    object or array between words.

    Raises ValueError when there is none.
    """
    # The last one counts: models often show a draft before their answer.
    for text in (output, *reversed(_FENCED.findall(output))):
        try:
            return executors.parse_strict_json(text)
        except (ValueError, RecursionError):
            continue
    if values := list(_iter_embedded(output[-_SEARCHED:])):
        return values[-1]
    raise ValueError("The output has no JSON object or array.")


def _iter_embedded(text: str) -> Iterator[Any]:
    at = 0
    for _ in range(_TRIES):
        start = re.compile(r"[{\[]").search(text, at)
        if not start:
            return
        try:
            value, at = executors.STRICT_JSON.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
        else:
            yield value


def match_json_subset(
    expected: Any, actual: Any, *, rel_tol: float = 0.0, unordered: bool = False
) -> tuple[int, int]:
    """Return how many of the expected leaves the actual value has, and how many there are.

    Objects may hold more keys than expected. Arrays must have the same length, and the same order
    unless `unordered`. 1 and 1.0 are equal, 1 and true are not. An empty object or array is a leaf
    of its own.
    """
    if not isinstance(expected, dict | list) or not expected:
        return int(_are_equal(expected, actual, rel_tol)), 1
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(expected, dict) and isinstance(actual, dict):
        pairs = [(value, actual[key]) for key, value in expected.items() if key in actual]
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        pairs = zip(expected, actual, strict=True)
        if unordered:
            pairs = _match_unordered(expected, actual, rel_tol)
    matched = 0
    for value, actual_value in pairs:
        right, _ = match_json_subset(value, actual_value, rel_tol=rel_tol, unordered=unordered)
        matched += right
    return matched, count_leaves(expected)


def count_leaves(value: Any) -> int:
    """Return how many leaves a JSON value has: values that are neither a filled object nor a filled
    array.
    """
    if isinstance(value, dict) and value:
        return sum(map(count_leaves, value.values()))
    return sum(map(count_leaves, value)) if isinstance(value, list) and value else 1


def _match_unordered(
    expected: list[Any], actual: list[Any], rel_tol: float
) -> Iterator[tuple[Any, Any]]:
    """Yield each expected element with an actual one of its own: one that matches wholly where
    there is one, else a remaining one.
    """
    remaining = list(actual)
    missed = []
    # Whole matches first, so that a partial match does not take the element of a whole one.
    for element in expected:
        for at, candidate in enumerate(remaining):
            right, total = match_json_subset(element, candidate, rel_tol=rel_tol, unordered=True)
            if right == total:
                yield element, remaining.pop(at)
                break
        else:
            missed.append(element)
    yield from zip(missed, remaining, strict=True)


def _are_equal(expected: Any, actual: Any, rel_tol: float) -> bool:
    # In Python True equals 1.
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        try:
            return expected == actual or abs(expected - actual) <= rel_tol * abs(expected)
        # A whole number beyond any float, beside a float.
        except OverflowError:
            return False
    return type(expected) is type(actual) and bool(expected == actual)


# Only nested repetitions take so long, and those may take years.
PATTERN_SECONDS = 5.0
"""Seconds that a pattern may take on one answer, with the start of its process."""

MAX_PATTERN = 2_000
"""Characters of a pattern."""

PATTERN_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}

# In a process of its own, because a match of Python's `re` cannot be interrupted.
_PROGRAM = """
import json, re, sys
given = json.load(sys.stdin.buffer)
found = re.compile(given["pattern"], given["flags"])
print(int(bool((found.fullmatch if given["whole"] else found.search)(given["text"]))))
"""


def compile_pattern(pattern: str, flags: str) -> "re.Pattern[str]":
    """Return the compiled pattern. Raises ValueError with the reason."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(
            f"the pattern has {len(pattern):,} characters, the limit is {MAX_PATTERN:,}"
        )
    if unknown := set(flags) - set(PATTERN_FLAGS):
        raise ValueError(
            f"{''.join(sorted(unknown))!r} are no flags; there are {', '.join(PATTERN_FLAGS)}"
        )
    try:
        return re.compile(pattern, _flag_bits(flags))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern cannot be read: {error}") from None


async def match_pattern(
    pattern: str,
    text: str,
    *,
    flags: str = "",
    whole: bool = False,
    seconds: float = PATTERN_SECONDS,
) -> bool:
    """Return whether the text has a match of the pattern, with `whole` whether it matches as a
    whole.

    The engine is Python's on every machine: a score must not depend on what else is installed.
    Raises ScorerError where it takes longer than `seconds`.
    """
    request = {"pattern": pattern, "flags": _flag_bits(flags), "whole": whole, "text": text}
    # -I and -S: nothing of the user's is imported, and the process starts faster.
    command = (sys.executable, "-I", "-S", "-c", _PROGRAM)
    try:
        ran = await executors.run_command(command, json.dumps(request).encode(), timeout=seconds)
    except OSError as error:
        raise ScorerError(
            f"The process for a pattern cannot be started: {executors.start_problem(error)}."
        ) from None
    if ran.code is None:
        raise ScorerError(
            f"The pattern took longer than {seconds:g} s on an answer of {len(text):,} characters.",
            "Take nested repetitions out of it, such as (a+)+.",
        )
    if ran.code or ran.out.strip() not in (b"0", b"1"):
        raise ScorerError(
            f"The process for a pattern failed: {ran.err.decode(errors='replace')[-200:]}"
        )
    return ran.out.strip() == b"1"


def _flag_bits(flags: str) -> int:
    return int(sum(PATTERN_FLAGS[flag] for flag in set(flags)))


_SAMPLES = {"type": "array", "items": {"type": ["string", "object"]}}
_COMMON_ARGUMENTS = {
    "answer": {"enum": ["whole", "last_line", "tagged"]},
    "good": _SAMPLES,
    "bad": _SAMPLES,
}
"""Arguments of every scorer.

answer: the part of the output that is scored: the whole, its last line with text, or the text in
FINAL_ANSWER tags. good, bad: known answers.
"""


@cache
def scorer_types() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of scorers.toml, and those of plugins, which cannot replace ours."""
    path = Path(__file__).with_name("scorers.toml")
    own: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    of_plugins = {
        name: {
            "arguments": scorer.arguments,
            "required": list(scorer.required),
            "needs_expected": scorer.needs_expected,
        }
        for name, scorer in plugin_scorers().items()
    }
    return {**of_plugins, **own}


def argument_problem(spec: ScorerSpec, expected: str | None) -> str:
    """Return what is wrong with a scorer as a task names it, '' where it can score."""
    kind = scorer_types().get(spec.type)
    if kind is None:
        return f"there is no scorer {ascii(spec.type)[:60]}; there are {', '.join(scorer_types())}"
    properties, required = {**kind["arguments"], **_COMMON_ARGUMENTS}, kind.get("required", [])
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if fault := schema_problem(dict(spec.args), schema):
        return f"the arguments of its scorer {spec.type} are wrong: {fault}"
    if spec.type == "command" and ("argv" in spec.args) == ("name" in spec.args):
        return (
            "its scorer command has either argv, a command, or name, a scorer that a person "
            "registered"
        )
    if kind.get("needs_expected") and not (expected or "").strip():
        return f"its scorer {spec.type} needs an expected answer"
    try:
        if spec.type == "json_subset":
            json.loads(expected or "")
        elif spec.type == "regex":
            compile_pattern(_choose_pattern(spec, expected), str(spec.args.get("flags", "")))
    except ValueError as error:
        return f"its scorer {spec.type} cannot be used: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class TaskSetScorer:
    """A scorer of a task set, which scores each task by the scorer that it names.

    The feedback never tells the expected answer. files: those of the task set that scorers need,
    without those that workspaces begin with. host: runs command scorers. judge: scores the tasks
    with a rubric. registered: the command scorers that tasks name.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    host: executors.CommandHost = executors.UNCONFINED
    judge: external_scorers.JudgeScorer | None = None
    registered: Mapping[str, RegisteredScorer] = field(default_factory=dict)

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path | None = None) -> Score:
        """Return the score of the output. Raises ScorerError where the scorer cannot tell.

        workspace: as the trial left it; a command scorer gets a copy.
        """
        spec, args = task.scorer, task.scorer.args
        if fault := argument_problem(spec, task.expected):
            hint = "`evolvable evolve taskset check` finds this early."
            raise ScorerError(f"Task {task.id} cannot be scored: {fault}.", hint)
        if spec.type == "command":
            # The files of the task set are for commands that it brings and a person approved with
            # them.
            files = {} if "name" in args else self.files
            seconds = float(str(args.get("timeout_s", external_scorers.COMMAND_SCORER_SECONDS)))
            argv = self._find_argv(task)
            return await external_scorers.command_score(
                argv, task, rollout, workspace, files=files, seconds=seconds, host=self.host
            )
        answer = extract_answer(rollout.output, str(args.get("answer", "whole")))
        if spec.type == "judge":
            if self.judge is None:
                raise ScorerError(
                    f"Task {task.id} is scored by a judge, and there is none.",
                    "Name who is to judge.",
                )
            return await self.judge.score(str(args["rubric"]), task, answer)
        if spec.type == "regex":
            pattern = _choose_pattern(spec, task.expected)
            flags, whole = str(args.get("flags", "")), bool(args.get("whole", False))
            matches = await match_pattern(pattern, answer, flags=flags, whole=whole)
            return _make_binary(matches, "the pattern")
        if spec.type in _PURE_SCORERS:
            return _PURE_SCORERS[spec.type](task, answer, args)
        return _score_by_plugin(task, answer, args)

    def known_answer(self, task: Task) -> tuple[str, Mapping[str, bytes]] | None:
        """Return an output, with files of the workspace, that the scorer must be able to score;
        None where there is none.

        There is one only for scorers that run on this machine.
        """
        if task.scorer.type not in ("command", "regex"):
            return None
        args = task.scorer.args
        samples = sample_list(args.get("good")) or sample_list(args.get("bad"))
        sample = samples[0] if samples else None
        if isinstance(sample, str):
            return sample, {}
        if isinstance(sample, Mapping):
            texts = sample.get("files") or {}
            files = {path: str(text).encode() for path, text in texts.items()}
            return str(sample.get("output", "")), files
        return (task.expected, {}) if task.expected else None

    def _find_argv(self, task: Task) -> Sequence[str]:
        args: Mapping[str, Any] = task.scorer.args
        if "name" not in args:
            return [str(part) for part in args["argv"]]
        if args["name"] not in self.registered:
            text = (
                f"Task {task.id} names the scorer {ascii(args['name'])}, and no scorer is "
                "registered by that name."
            )
            raise ScorerError(text, "A person registers it.")
        return self.registered[args["name"]].argv

    def digest(self, task: Task) -> str:
        """Return a hash of the task's scorer, its arguments, and the files that it may run."""
        fields = [task.scorer.type, dict(task.scorer.args)]
        spec = json.dumps(fields, sort_keys=True, default=str)
        files = judge = version = ""
        if task.scorer.type == "command":
            # A command may read any file of the task set, so all of them decide.
            lines = (
                f"{path} {hashlib.sha256(data).hexdigest()}"
                for path, data in sorted(self.files.items())
            )
            files = hashlib.sha256("\n".join(lines).encode()).hexdigest()
            own = self.registered.get(str(task.scorer.args.get("name")))
            version = f" {own.sha256}" if own else ""
        elif task.scorer.type == "judge" and self.judge:
            judge = self.judge.judge_model.name
        elif own_scorer := plugin_scorers().get(task.scorer.type):
            version = f" {own_scorer.version}"
        return hashlib.sha256(f"{spec} {files} {judge}{version}".encode()).hexdigest()


def _score_by_plugin(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    try:
        scorer = plugin_scorers()[task.scorer.type]
        value, feedback = scorer.score(task.expected or "", answer, args)
    # The code of a plugin may raise anything.
    except Exception as error:
        raise ScorerError(
            f"The scorer {task.scorer.type} of a plugin failed: {type(error).__name__}: {error}"
        ) from error
    if not 0 <= value <= 1:
        raise ScorerError(
            f"The scorer {task.scorer.type} of a plugin returned {value}, which is not from 0 to 1."
        )
    return Score(float(value), str(feedback))


def _choose_pattern(spec: ScorerSpec, expected: str | None) -> str:
    pattern = str(spec.args.get("pattern", expected or ""))
    if not pattern:
        raise ValueError(
            "it has neither a pattern nor an expected answer, which then is the pattern"
        )
    return pattern


def _score_exact(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    expected = task.expected or ""
    if args.get("trim", True):
        expected, answer = expected.strip(), answer.strip()
    if args.get("ignore_case", False):
        expected, answer = expected.lower(), answer.lower()
    return _make_binary(expected == answer, "the expected text")


def _score_officeqa(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    expected = task.expected or ""
    if not answer:
        value = 0.0
    elif args.get("graded", False):
        value = officeqa_graded(expected, answer)
    else:
        value = officeqa_compat(expected, answer, float(args.get("rel_tol", 0.0)))
    return Score(value, "" if value == 1 else "The answer is not the expected one.")


def _score_numeric(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    value = numeric_strict(
        task.expected or "", answer, rel_tol=float(args.get("rel_tol", 0.0)), context=task.prompt
    )
    return _make_binary(value == 1, "the expected answer")


def _score_json(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    try:
        actual = extract_json(answer)
    except ValueError:
        return Score(0.0, "The answer has no JSON object or array.")
    expected = json.loads(task.expected or "")
    options: dict[str, Any] = {key: args[key] for key in ("rel_tol", "unordered") if key in args}
    right, total = match_json_subset(expected, actual, **options)
    if right == total:
        return Score(1.0)
    keys = _describe_keys(task.prompt, expected, actual, options)
    value = right / total if args.get("partial", False) else 0.0
    return Score(value, f"{right} of {total} values are as expected{keys}.")


def _describe_keys(prompt: str, expected: Any, actual: Any, options: Mapping[str, Any]) -> str:
    """Return which keys are missing or wrong, of those that the task itself names.

    Other keys would tell the expected answer.
    """
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return ""
    named_keys = [key for key in expected if key and key in prompt]
    missing = [key for key in named_keys if key not in actual]
    counts = {
        key: match_json_subset(expected[key], actual[key], **options)
        for key in named_keys
        if key in actual
    }
    wrong = [key for key, (right, total) in counts.items() if right != total]
    parts = []
    if missing:
        parts.append(f"missing: {', '.join(missing)}")
    if wrong:
        parts.append(f"wrong: {', '.join(wrong)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _make_binary(right: bool, what: str) -> Score:
    return Score(1.0) if right else Score(0.0, f"The answer does not give {what}.")


_PureScorer = Callable[[Task, str, Mapping[str, Any]], Score]

_PURE_SCORERS: Mapping[str, _PureScorer] = {
    "exact": _score_exact,
    "officeqa_compat": _score_officeqa,
    "numeric_strict": _score_numeric,
    "json_subset": _score_json,
}
"""Scorers that compare texts alone, by name."""


def sample_list(value: object) -> Sequence[Any]:
    """Return the known answers that a scorer's argument `good` or `bad` lists."""
    return value if isinstance(value, list | tuple) else []


def known_samples(tasks: Sequence[Task]) -> dict[str, list[external_scorers.JudgeSample]]:
    """Return the known answers that tasks give for each rubric, at most MAX_KNOWN_ANSWERS of each
    side.
    """
    by_rubric: dict[str, list[external_scorers.JudgeSample]] = defaultdict(list)
    for task in tasks:
        if task.scorer.type != "judge":
            continue
        args = task.scorer.args
        own = by_rubric[str(args["rubric"])]
        for side, good in (("good", True), ("bad", False)):
            for sample in sample_list(args.get(side)):
                if sum(sample.good == good for sample in own) < external_scorers.MAX_KNOWN_ANSWERS:
                    output = sample if isinstance(sample, str) else str(sample.get("output", ""))
                    answer = extract_answer(output, str(args.get("answer", "whole")))
                    own.append(external_scorers.JudgeSample(task, answer, good))
    return dict(by_rubric)
