"""The one door to all scorers."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.rollout import Score, Usage
from evolvable_tools.evolve.scorers.answers import ANSWERS, answer_in, json_in
from evolvable_tools.evolve.scorers.command import SECONDS, command_score
from evolvable_tools.evolve.scorers.json_subset import json_subset
from evolvable_tools.evolve.scorers.judge import Judge
from evolvable_tools.evolve.scorers.numeric import numeric_strict
from evolvable_tools.evolve.scorers.officeqa import officeqa_compat, officeqa_graded
from evolvable_tools.evolve.scorers.patterns import compiled, matches
from evolvable_tools.evolve.scorers.trouble import ScorerTrouble
from evolvable_tools.evolve.task import ScorerSpec, Task
from evolvable_tools.sandbox import Sandbox

SAMPLES: Mapping[str, Any] = {"type": "array", "items": {"type": ["string", "object"]}}
_COMMON = {"answer": {"enum": list(ANSWERS)}, "good": SAMPLES, "bad": SAMPLES}
_TOLERANCE = {"type": "number", "minimum": 0, "maximum": 1}
_TEXT = {"type": "string", "minLength": 1}

SCORERS: Mapping[str, Mapping[str, Any]] = {
    "exact": {"ignore_case": {"type": "boolean"}, "trim": {"type": "boolean"}},
    "officeqa_compat": {"rel_tol": _TOLERANCE, "graded": {"type": "boolean"}},
    "numeric_strict": {"rel_tol": _TOLERANCE},
    "regex": {"pattern": _TEXT, "flags": {"type": "string"}, "whole": {"type": "boolean"}},
    "json_subset": {"rel_tol": _TOLERANCE, "unordered": {"type": "boolean"}, "partial": {"type": "boolean"}},
    "command": {
        "argv": {"type": "array", "minItems": 1, "items": _TEXT},
        "name": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]{0,63}\Z"},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
    },
    "judge": {"rubric": _TEXT},
}
"""Each type of scorer with the JSON schema of its arguments; all of them take `answer`, `good` and `bad` besides."""

_REQUIRED = {"judge": ["rubric"]}
_NEEDS_EXPECTED = ("exact", "officeqa_compat", "numeric_strict", "json_subset")


def argument_problem(spec: ScorerSpec, expected: str | None) -> str:
    """Returns what is wrong with a scorer as a task names it, or '' when it can score."""
    from evolvable_tools.llm import schema_problem

    if spec.type not in SCORERS:
        return f"there is no scorer {ascii(spec.type)[:60]}; there are {', '.join(SCORERS)}"
    schema = {
        "type": "object",
        "properties": {**SCORERS[spec.type], **_COMMON},
        "required": _REQUIRED.get(spec.type, []),
        "additionalProperties": False,
    }
    if fault := schema_problem(dict(spec.args), schema):
        return f"the arguments of its scorer {spec.type} are wrong: {fault}"
    if spec.type == "command" and ("argv" in spec.args) == ("name" in spec.args):
        return "its scorer command has either argv, a command, or name, a scorer that a person registered"
    if spec.type in _NEEDS_EXPECTED and not (expected or "").strip():
        return f"its scorer {spec.type} needs an expected answer"
    try:
        if spec.type == "json_subset":
            json.loads(expected or "")
        elif spec.type == "regex":
            compiled(_pattern(spec, expected), str(spec.args.get("flags", "")))
    except ValueError as error:
        return f"its scorer {spec.type} cannot be used: {error}"
    return ""


async def score(
    spec: ScorerSpec,
    task: Task,
    output: str,
    *,
    workspace: Path | None = None,
    files: Mapping[str, bytes] | None = None,
    usage: Usage | None = None,
    transcript: str = "",
    environment: Mapping[str, str] | None = None,
    judge: Judge | None = None,
    sandbox: Sandbox | None = None,
    registered: Mapping[str, Sequence[str]] | None = None,
) -> Score:
    """Returns how good the output is. Raises ScorerTrouble when the scorer cannot say.

    workspace: as the run left it; a command scorer gets a copy. files: of the task set, for a command. transcript: of
    the run, redacted. environment: all that a command scorer's process gets, by default ours. sandbox: what it runs
    in. registered: the commands of scorers that tasks name, by name. The feedback of the scorers here never tells the
    expected answer.
    """
    if fault := argument_problem(spec, task.expected):
        raise ScorerTrouble(f"Task {task.id} cannot be scored: {fault}.", "`evolvable taskset check` finds this early.")
    args = spec.args
    if spec.type == "command":
        # The files of the task set are for commands that it brings and a person approved with them.
        return await command_score(
            _argv(task, args, registered or {}),
            task,
            output,
            workspace=workspace,
            files={} if "name" in args else files or {},
            usage=usage or Usage(),
            transcript=transcript,
            seconds=float(str(args.get("timeout_s", SECONDS))),
            environment=environment,
            sandbox=sandbox,
        )
    answer = answer_in(output, str(args.get("answer", "whole")))
    if spec.type == "judge":
        if judge is None:
            raise ScorerTrouble(f"Task {task.id} is scored by a judge, and there is none.", "Name who is to judge.")
        return await judge.score(str(args["rubric"]), task, answer)
    if spec.type == "regex":
        options = {"flags": str(args.get("flags", "")), "whole": bool(args.get("whole", False))}
        return _binary(await matches(_pattern(spec, task.expected), answer, **options), "the pattern")  # type: ignore[arg-type]
    return _AT_ONCE[spec.type](task, answer, args)


def _argv(task: Task, args: Mapping[str, Any], registered: Mapping[str, Sequence[str]]) -> list[str]:
    if "name" not in args:
        return [str(part) for part in _list(args["argv"])]
    words = registered.get(str(args["name"]))
    if words is None:
        text = f"Task {task.id} names the scorer {ascii(args['name'])}, and no scorer is registered by that name."
        raise ScorerTrouble(text, "A person registers it.")
    return list(words)


def _pattern(spec: ScorerSpec, expected: str | None) -> str:
    pattern = str(spec.args.get("pattern", expected or ""))
    if not pattern:
        raise ValueError("it has neither a pattern nor an expected answer, which then is the pattern")
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
    tolerance = float(args.get("rel_tol", 0.0))
    return _binary(
        numeric_strict(task.expected or "", answer, rel_tol=tolerance, context=task.prompt) == 1, "the expected answer"
    )


def _json(task: Task, answer: str, args: Mapping[str, Any]) -> Score:
    try:
        given = json_in(answer)
    except ValueError:
        return Score(0.0, "The answer has no JSON object or array.")
    expected = json.loads(task.expected or "")
    options: dict[str, Any] = {key: args[key] for key in ("rel_tol", "unordered") if key in args}
    right, all_ = json_subset(expected, given, **options)
    value = right / all_ if args.get("partial", False) else float(right == all_)
    if right == all_:
        return Score(value)
    return Score(value, f"{right} of {all_} values are as expected{_wrong(task.prompt, expected, given, options)}.")


def _wrong(prompt: str, expected: Any, given: Any, options: Mapping[str, Any]) -> str:
    """Returns which keys are missing or wrong, of those that the task itself names: no others may be told."""
    if not isinstance(expected, dict) or not isinstance(given, dict):
        return ""
    told = [key for key in expected if key and key in prompt]
    missing = [key for key in told if key not in given]
    wrong = [key for key in told if key in given and not _whole(json_subset(expected[key], given[key], **options))]
    parts = [f"{what}: {', '.join(keys)}" for what, keys in (("missing", missing), ("wrong", wrong)) if keys]
    return f" ({'; '.join(parts)})" if parts else ""


def _whole(counted: tuple[int, int]) -> bool:
    return counted[0] == counted[1]


def _binary(right: bool, what: str) -> Score:
    return Score(1.0) if right else Score(0.0, f"The answer does not give {what}.")


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


_AT_ONCE: Mapping[str, Callable[[Task, str, Mapping[str, Any]], Score]] = {
    "exact": _exact,
    "officeqa_compat": _officeqa,
    "numeric_strict": _numeric,
    "json_subset": _json,
}
