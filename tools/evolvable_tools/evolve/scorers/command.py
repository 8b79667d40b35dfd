"""The scorer that is a command: JSON in, JSON out. Whatever goes wrong with it is trouble and not a 0."""

import asyncio
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.commands import run_confined
from evolvable_tools.evolve.rollout import Check, Score, Usage
from evolvable_tools.evolve.scorers.trouble import ScorerTrouble
from evolvable_tools.evolve.task import Task
from evolvable_tools.llm import printable_line
from evolvable_tools.llm.command_model import ProcessResult
from evolvable_tools.sandbox import Confinement, Sandbox, environment_inside

SECONDS = 60.0
"""How long a scorer may take, where its argument `timeout_s` says nothing."""

MAX_TEXT = 4_000
"""Characters of the feedback and of the evidence that are kept."""

_STATES = ("ok", "pass", "fail", "infra_error")
_KINDS = ("outcome", "shape")


async def command_score(
    argv: Sequence[str],
    task: Task,
    output: str,
    *,
    workspace: Path | None,
    files: Mapping[str, bytes],
    usage: Usage,
    transcript: str = "",
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
) -> Score:
    """Runs the scorer and returns what it says. Raises ScorerTrouble.

    sandbox: runs it apart, without the network.

    It runs in a copy of the workspace; `files` are written to a fresh folder for it. In `argv` the words {taskset} and
    {python} stand for that folder and for the Python that runs here.
    """
    with tempfile.TemporaryDirectory(prefix="evolvable-scorer-", ignore_cleanup_errors=True) as made:
        # As it really is: a scorer may compare paths.
        place = Path(made).resolve()
        await asyncio.to_thread(_lay_out, place, workspace, files, transcript)
        python = sandbox.python if sandbox is not None else sys.executable
        command = [part.replace("{taskset}", str(place / "taskset")).replace("{python}", python) for part in argv]
        named = [Path(part) for part in command if os.path.isabs(part) and Path(part).is_file()]
        what = Confinement(
            tuple(command),
            place / "workspace",
            environment_inside(os.environ if environment is None else environment),
            seconds,
            readable=(place / "taskset", place / "transcript.txt", *named),
            returns=False,
        )
        given = _given(task, output, usage, place, transcript)
        try:
            ran = await run_confined(what, sandbox, given, outside=environment)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ScorerTrouble(
                f"The scorer of task {task.id} cannot be started: {printable_line(why)}.",
                "argv names a program and its arguments; {taskset} is the folder of the task set, {python} a Python.",
            ) from None
    return _read(task.id, ran, seconds)


def _lay_out(place: Path, workspace: Path | None, files: Mapping[str, bytes], transcript: str) -> None:
    if workspace is None:
        (place / "workspace").mkdir()
    else:
        try:
            shutil.copytree(workspace, place / "workspace", symlinks=True, ignore=_special)
        except (OSError, shutil.Error) as error:
            raise ScorerTrouble(
                f"The workspace cannot be copied for its scorer: {printable_line(str(error))}."
            ) from None
    (place / "taskset").mkdir()
    for path, data in files.items():
        target = place / "taskset" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    if transcript:
        (place / "transcript.txt").write_text(transcript, encoding="utf-8", errors="replace")


def _special(folder: str, names: list[str]) -> set[str]:
    """Returns what is neither file, folder nor link: a pipe would be waited for, and no scorer needs one."""
    kinds = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return {
        name for name, mode in kinds.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    }


def _given(task: Task, output: str, usage: Usage, place: Path, transcript: str) -> bytes:
    spent = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "calls": usage.calls}
    return json.dumps(
        {
            "task_id": task.id,
            "prompt": task.prompt,
            "expected": task.expected,
            "output": output,
            "workspace": str(place / "workspace"),
            "transcript_path": str(place / "transcript.txt") if transcript else None,
            "usage": {**spent, "cost": usage.cost},
        }
    ).encode()


def _read(task: str, ran: ProcessResult, seconds: float) -> Score:
    if ran.too_long:
        raise ScorerTrouble(f"The scorer of task {task} wrote too much.", "It is to print one JSON object.")
    if ran.code is None:
        raise ScorerTrouble(f"The scorer of task {task} took longer than {seconds:g} s.", "timeout_s gives it more.")
    if ran.code != 0:
        said = printable_line(ran.err.decode("utf-8", "replace")[-400:])
        raise ScorerTrouble(f"The scorer of task {task} ended with exit code {ran.code}{f': {said}' if said else '.'}")
    try:
        said_ = json.loads(ran.out)
    except (ValueError, RecursionError):
        raise ScorerTrouble(
            f"The scorer of task {task} printed no JSON: {printable_line(ran.out.decode('utf-8', 'replace'))}",
            'It is to print one object such as {"score": 1.0}, and nothing else; remarks belong on stderr.',
        ) from None
    try:
        return _score(said_)
    except ValueError as error:
        raise ScorerTrouble(f"The scorer of task {task} said what cannot be used: {error}.") from None


def _score(said: Any) -> Score:
    """Returns the score that a scorer's JSON says. Raises ValueError."""
    if not isinstance(said, dict):
        raise ValueError("it is no JSON object")
    state = said.get("status") or "ok"
    if state not in _STATES:
        raise ValueError(f"status is {printable_line(str(state))}, and not one of {', '.join(_STATES)}")
    if state == "infra_error":
        raise ValueError(
            f"it reports trouble of its own: {printable_line(_text(said, 'evidence_private')) or 'no reason given'}"
        )
    checks = said.get("checks") or []
    metrics = said.get("metrics") or {}
    if not isinstance(checks, list) or not isinstance(metrics, dict):
        raise ValueError("checks is a list and metrics an object")
    return Score(
        _number(said.get("score"), "score", within=True),
        _text(said, "feedback_public")[:MAX_TEXT],
        _text(said, "evidence_private")[:MAX_TEXT],
        tuple(map(_check, checks)),
        {str(name): _number(value, f"metric {name}") for name, value in metrics.items()},
    )


def _check(said: Any) -> Check:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not isinstance(said.get("pass"), bool):
        raise ValueError("a check has a name and pass: true or false")
    if said.get("kind", "outcome") not in _KINDS:
        raise ValueError(f"a check's kind is {' or '.join(_KINDS)}")
    return Check(said["name"], said["pass"], said.get("kind", "outcome"))


def _number(value: Any, what: str, *, within: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} is no number")
    if within and not 0 <= value <= 1:
        raise ValueError(f"{what} is {value}, and not from 0 to 1")
    return float(value)


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key) or ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")
    return value
