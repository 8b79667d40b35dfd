"""All scorers by name: exact, JSON, pattern, numeric, command and judge, and which part of an
output they score.
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

# Characters at the end of an output in which JSON between other words is looked for.
_SEARCHED = 200_000
_TRIES = 500  # brackets at which reading JSON is tried: each try may read to the end
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n```", re.DOTALL)


def extract_answer(output: str, part: str) -> str:
    """Return the part of the output that is the answer; '' where that part is missing."""
    if part == "last_line":
        return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    if part == "tagged":
        try:
            found = find_final_answer(output)
        except ValueError:
            return ""
        return "" if found == output else found
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
    if found := list(_iter_embedded(output[-_SEARCHED:])):
        return found[-1]
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
    """Return how many of the expected leaves the given value has, and how many there are.

    Objects may hold more keys than expected; arrays must have the same length, and the same order
    unless `unordered`. 1 and 1.0 are equal, 1 and true are not. An empty object or array is a leaf
    of its own.
    """
    if not isinstance(expected, dict | list) or not expected:
        return int(_equal_leaves(expected, actual, rel_tol)), 1
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(expected, dict) and isinstance(actual, dict):
        pairs = [(value, actual[key]) for key, value in expected.items() if key in actual]
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        pairs = (
            _match_unordered(expected, actual, rel_tol)
            if unordered
            else zip(expected, actual, strict=True)
        )
    else:
        pairs = []
    found = [
        match_json_subset(expected_value, actual_value, rel_tol=rel_tol, unordered=unordered)[0]
        for expected_value, actual_value in pairs
    ]
    return sum(found), count_leaves(expected)


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
    """Yield each expected element with one of its own: a whole match where there is one, else what
    is left over.
    """
    left = list(actual)
    missed = []
    # Whole matches first, so that a partial match does not take the element of a whole one.
    for element in expected:
        for at, candidate in enumerate(left):
            right, all_ = match_json_subset(element, candidate, rel_tol=rel_tol, unordered=True)
            if right == all_:
                yield element, left.pop(at)
                break
        else:
            missed.append(element)
    yield from zip(missed, left, strict=True)


def _equal_leaves(expected: Any, actual: Any, rel_tol: float) -> bool:
    # In Python True equals 1.
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        try:
            return expected == actual or abs(expected - actual) <= rel_tol * abs(expected)
        except OverflowError:  # a whole number beyond any float, beside a float
            return False
    return type(expected) is type(actual) and bool(expected == actual)


# Only nested repetitions take that long, and those may take years.
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
    """Return whether the pattern is found in the text, or fits all of it. Raises ScorerError when
    it takes longer.

    The engine is Python's on every machine: a score must not depend on what else is installed.
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

answer: all of the output, its last line with text, or the text in FINAL_ANSWER tags.
"""


@cache
def scorer_types() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of scorers.toml, and those of plugins, which cannot replace ours."""
    own: Mapping[str, Any] = tomllib.loads(
        Path(__file__).with_name("scorers.toml").read_text(encoding="utf-8")
    )
    more = {
        name: {
            "arguments": scorer.arguments,
            "required": list(scorer.required),
            "needs_expected": scorer.needs_expected,
        }
        for name, scorer in plugin_scorers().items()
    }
    return {**more, **own}


def argument_problem(spec: ScorerSpec, expected: str | None) -> str:
    """Return what is wrong with a scorer as a task names it, or '' when it can score."""
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
            compile_pattern(_pattern(spec, expected), str(spec.args.get("flags", "")))
    except ValueError as error:
        return f"its scorer {spec.type} cannot be used: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class TaskSetScorer:
    """Scores each task by the scorer that it names. The feedback never tells the expected answer.

    files: those of the task set that scorers need, without those that workspaces begin with. host:
    what command scorers run with. judge: for tasks that have one. registered: the command scorers
    that tasks name.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    host: executors.CommandHost = executors.UNCONFINED
    judge: external_scorers.JudgeScorer | None = None
    registered: Mapping[str, RegisteredScorer] = field(default_factory=dict)

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path | None = None) -> Score:
        """Return how good the output is. Raises ScorerError when the scorer cannot tell.

        workspace: as the run left it; a command scorer gets a copy.
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
            argv = self._argv(task)
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
            flags, whole = str(args.get("flags", "")), bool(args.get("whole", False))
            found = await match_pattern(
                _pattern(spec, task.expected), answer, flags=flags, whole=whole
            )
            return _binary(found, "the pattern")
        if spec.type in _PURE_SCORERS:
            return _PURE_SCORERS[spec.type](task, answer, args)
        return _score_by_plugin(task, answer, args)

    def known_answer(self, task: Task) -> tuple[str, Mapping[str, bytes]] | None:
        """Return an output, with files of the workspace, that the scorer can score; None where
        there is none.

        Only for scorers that run on this machine: a judge that fails says nothing about an output.
        """
        if task.scorer.type not in ("command", "regex"):
            return None
        samples = sample_list(task.scorer.args.get("good")) or sample_list(
            task.scorer.args.get("bad")
        )
        if samples and isinstance(samples[0], str):
            return samples[0], {}
        if samples and isinstance(samples[0], Mapping):
            files = {
                path: str(text).encode() for path, text in (samples[0].get("files") or {}).items()
            }
            return str(samples[0].get("output", "")), files
        return (task.expected, {}) if task.expected else None

    def _argv(self, task: Task) -> Sequence[str]:
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
        spec = json.dumps(
            [task.scorer.type, dict(task.scorer.args)],
            sort_keys=True,
            default=str,
        )
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
        value, feedback = plugin_scorers()[task.scorer.type].score(
            task.expected or "", answer, args
        )
    except Exception as error:  # the code of a plugin may raise anything
        raise ScorerError(
            f"The scorer {task.scorer.type} of a plugin failed: {type(error).__name__}: {error}"
        ) from error
    if not 0 <= value <= 1:
        raise ScorerError(
            f"The scorer {task.scorer.type} of a plugin returned {value}, which is not from 0 to 1."
        )
    return Score(float(value), str(feedback))


def _pattern(spec: ScorerSpec, expected: str | None) -> str:
    pattern = str(spec.args.get("pattern", expected or ""))
    if not pattern:
        raise ValueError(
            "it has neither a pattern nor an expected answer, which then is the pattern"
        )
    return pattern


def _exact(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    expected = task.expected or ""
    if args.get("trim", True):
        expected, answer = expected.strip(), answer.strip()
    if args.get("ignore_case", False):
        expected, answer = expected.lower(), answer.lower()
    return _binary(expected == answer, "the expected text")


def _officeqa(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    expected = task.expected or ""
    if not answer:
        value = 0.0
    elif args.get("graded", False):
        value = officeqa_graded(expected, answer)
    else:
        value = officeqa_compat(expected, answer, float(args.get("rel_tol", 0.0)))
    return Score(value, "" if value == 1 else "The answer is not the expected one.")


def _numeric(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    value = numeric_strict(
        task.expected or "", answer, rel_tol=float(args.get("rel_tol", 0.0)), context=task.prompt
    )
    return _binary(value == 1, "the expected answer")


def _json(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    try:
        actual = extract_json(answer)
    except ValueError:
        return Score(0.0, "The answer has no JSON object or array.")
    expected = json.loads(task.expected or "")
    options: dict[str, Any] = {key: args[key] for key in ("rel_tol", "unordered") if key in args}
    right, all_ = match_json_subset(expected, actual, **options)
    if right == all_:
        return Score(1.0)
    keys = _wrong_keys(task.prompt, expected, actual, options)
    value = right / all_ if args.get("partial", False) else 0.0
    return Score(value, f"{right} of {all_} values are as expected{keys}.")


def _wrong_keys(prompt: str, expected: Any, actual: Any, options: Mapping[str, Any]) -> str:
    """Return which keys are missing or wrong, among those that the task itself names: others must
    not be revealed.
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
    wrong = [key for key, (right, all_) in counts.items() if right != all_]
    parts = [
        f"{what}: {', '.join(keys)}"
        for what, keys in (("missing", missing), ("wrong", wrong))
        if keys
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _binary(right: bool, what: str) -> Score:
    return Score(1.0) if right else Score(0.0, f"The answer does not give {what}.")


_PURE_SCORERS: Mapping[
    str,
    Callable[
        [Task, str, Mapping[str, Any]],
        Score,
    ],
] = {
    "exact": _exact,
    "officeqa_compat": _officeqa,
    "numeric_strict": _numeric,
    "json_subset": _json,
}


def sample_list(value: object) -> Sequence[Any]:
    """Return the known answers that a scorer's argument `good` or `bad` lists."""
    return value if isinstance(value, list | tuple) else []


def known_samples(tasks: Sequence[Task]) -> dict[str, list[external_scorers.JudgeSample]]:
    """Return the known answers that tasks give for each rubric, at most MAX_KNOWN_ANSWERS of each
    side.
    """
    found: dict[str, list[external_scorers.JudgeSample]] = defaultdict(list)
    for task in tasks:
        if task.scorer.type != "judge":
            continue
        own = found[str(task.scorer.args["rubric"])]
        for side, good in (("good", True), ("bad", False)):
            for known_answer in sample_list(task.scorer.args.get(side)):
                if sum(sample.good == good for sample in own) < external_scorers.MAX_KNOWN_ANSWERS:
                    text = (
                        known_answer
                        if isinstance(known_answer, str)
                        else str(known_answer.get("output", ""))
                    )
                    answer = extract_answer(text, str(task.scorer.args.get("answer", "whole")))
                    own.append(external_scorers.JudgeSample(task, answer, good))
    return dict(found)
