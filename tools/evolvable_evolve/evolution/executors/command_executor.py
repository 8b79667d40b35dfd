"""Tasks run by a command of one's own: a JSON object in, a JSON object out."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import base
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.task import (
    CRASHED,
    ModelUsage,
    Rollout,
    Task,
    TrialOutcome,
    named_files,
)
from evolvable_evolve.sandbox import SandboxOutputError
from evolvable_store import check_path
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.llm import ProcessResult, schema_problem

PROGRAM_DIR = "program"
"""The folder beside the workspace that holds the program's resources, each in KIND/NAME."""


class _InvalidAnswer(Exception):
    """The command's answer is not of the agreed form. The text says why."""


class CommandExecutor:
    """Runs an argument list in the workspace of each task.

    It is given `{"task_id", "prompt", "category", "repeat", "timeout_s", "workspace", "program":
    {"digest", "folder", "resources": [{"ref", "kind", "name", "folder"}]}}` as its input, and never
    what is expected. It prints one object: `output` (a text), and if it likes `trace`, `usage`
    {`input_tokens`, `output_tokens`, `calls`, `cost`}, `read` (refs of the resources that it read),
    `outcome` (`agent_timeout`, `infra_error` or `refused`), `detail`, and `retry_after` (seconds
    that a provider asks to wait). Another exit code than 0, or another answer, is a crash, which
    counts as failed; taking longer than the task allows is a timeout of the agent, which counts
    too. A command that knows that its provider failed says so by `infra_error`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        host: base.CommandHost = base.UNCONFINED,
        label: str = "",
        version: str = "",
        free: bool = False,
        helpers: Sequence[str] = (),
    ) -> None:
        """command: an argument list, never run by a shell. folder: where its files are; arguments
        that name one stand for its full path, and a change of the file makes another executor.
        host: what it runs with; in a sandbox it sees of `folder` only the files that its arguments
        name and `helpers`. label: what its figures are. version: of what else decides a result.
        free: what it does not put a price on cost nothing; else the price is unknown. Raises
        InvalidArgument.
        """
        texts = [part for part in command or () if isinstance(part, str) and "\0" not in part]
        if not command or len(texts) < len(command) or not command[0]:
            raise InvalidArgument("A command is a list of texts.", 'Such as ["python", "run.py"].')
        # Files of the task set, by their content: a changed script is another executor.
        files = {
            part: path
            for part in command
            if folder and (path := (folder / part).resolve()).is_file()
        }
        self.command = tuple(str(files.get(part, part)) for part in command)
        self.label = (
            label or f"command {Path(command[-1] if len(command) == 2 else command[0]).name}"
        )
        hashes = {
            part: hashlib.sha256(path.read_bytes()).hexdigest() for part, path in files.items()
        }
        self.fingerprint = "command " + json.dumps([list(command), hashes, version], sort_keys=True)
        if host.sandbox is not None:
            self.fingerprint += f" sandbox={host.sandbox.name}"
        own = [folder / path for path in helpers] if folder else []
        self._host, self._free, self._shown = host, free, (*named_files(self.command), *own)

    @classmethod
    def from_spec(
        cls,
        spec: Mapping[str, Any],
        host: HostContext,
        *,
        files: Mapping[str, bytes],
        directory: Path,
        **_: object,
    ) -> Self:
        """Return the executor that a run's settings name; write the task set's files to `directory`
        first.

        Raises Refused when the person did not name the command, or names another one now.
        """
        check_named_executor(spec, host)
        places = {path: directory / path for path in files}
        # Unchanged files are not written again, because the integrity guard would hash them again.
        changed = {
            path: data
            for path, data in files.items()
            if not places[path].exists() or places[path].read_bytes() != data
        }
        base.write_below(directory, changed)
        return cls(
            spec["command"],
            folder=directory,
            host=base.CommandHost.of(host),
            label=spec.get("label")
            or next((f"command {Path(part).name}" for part in spec["command"] if part in files), "")
            or (f"command {spec['name']}" if spec.get("name") else ""),
            version=spec.get("version", ""),
            free=bool(spec.get("free")),
            helpers=[path for path in spec.get("helpers", ()) if path in files],
        )

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the rollout of a task by the command."""
        folder = write_program(program, workspace.parent / PROGRAM_DIR)
        stdin = _executor_input(task, program, repeat, workspace, folder)
        started = time.monotonic()
        # Until the command reports more: one call, and its price unknown unless it is free.
        unknown = ModelUsage(calls=1, cost=0.0 if self._free else None)
        readable = (folder, *self._shown)
        try:
            ran = await self._host.run(
                self.command, workspace, task.timeout_s, stdin, readable=readable, task=task.id
            )
        except SandboxOutputError as error:
            return Rollout("", usage=unknown, outcome=TrialOutcome.INFRA_ERROR, detail=error.text)
        except OSError as error:
            why = f"{self.command[0]} could not be started: {base.start_problem(error)}"
            return Rollout(
                "", outcome=TrialOutcome.INFRA_ERROR, detail=why, usage=ModelUsage(cost=0.0)
            )
        wall = time.monotonic() - started
        # Only a sandbox has ends of its own.
        why = _sandbox_end(ran) if self._host.sandbox is not None else ""
        if why or ran.code is None:
            why = why or f"it took longer than {task.timeout_s:g} s"
            return Rollout(
                "", usage=unknown, wall=wall, outcome=TrialOutcome.AGENT_TIMEOUT, detail=why
            )
        try:
            return _make_rollout(_parse_answer(ran), wall, unknown)
        except _InvalidAnswer as error:
            stderr_text = ran.err.decode(errors="replace").strip()[-500:]
            why = CRASHED + (f"{error}; it said: {stderr_text}" if stderr_text else str(error))
            # No infrastructure error: a program whose wrong answers end the command would be run
            # again until one fits.
            return Rollout("", usage=unknown, wall=wall, outcome=TrialOutcome.FAIL, detail=why)


def check_named_executor(spec: Mapping[str, Any], host: HostContext) -> None:
    """Raise Refused when the command of an executor is not one that the person named."""
    # Without names the caller is the person, at a terminal.
    if host.commands is None:
        return
    named_commands, name = host.commands["executors"], str(spec.get("name") or "")
    if not name:
        text = "The executor of this run is a command line, and commands are named by a person."
        raise Refused(text, f"{named_commands.hint} Then start a new run with that name.")
    # The words are compared and not the name: a person may name another command by it.
    if list(named_commands.get(name).words) != list(spec["command"]):
        hint = "Start a new run, or have the person name the command as it was."
        raise Refused(f"The executor {name} is another command now than when the run began.", hint)


def _sandbox_end(ran: ProcessResult) -> str:
    """Return why a command inside a sandbox ended before its answer, where only the program can
    have caused it.

    No process outside sends a signal inside: a program that kills what measures it fails the task.
    """
    if ran.code == base.LIMIT_REACHED:
        return (
            ran.err.decode(errors="replace").strip().rpartition("\n")[2]
            or "it reached a limit of the sandbox"
        )
    if ran.code is not None and ran.code > 128:
        return f"it was killed inside the sandbox (signal {ran.code - 128})"
    return ""


def write_program(program: Program, folder: Path) -> Path:
    """Write a program's resources into `folder`, each in KIND/NAME, and return it.

    Raises InvalidPath.
    """
    folder.mkdir()
    for part in program.parts:
        base.write_below(folder / str(part.kind) / check_path(part.name), part.files)
    return folder


def _executor_input(
    task: Task, program: Program, repeat: int, workspace: Path, folder: Path
) -> bytes:
    # All that a command gets of the task: never the expected answer or the scorer.
    resources = [
        {
            "ref": part.ref,
            "kind": str(part.kind),
            "name": part.name,
            "folder": str(folder / str(part.kind) / part.name),
        }
        for part in program.parts
    ]
    request = {
        "task_id": task.id,
        "prompt": task.prompt,
        "category": task.category,
        "repeat": repeat,
        "timeout_s": task.timeout_s,
        "workspace": str(workspace),
        "program": {"digest": program.digest, "folder": str(folder), "resources": resources},
    }
    return json.dumps(request).encode("ascii")


def _parse_answer(ran: ProcessResult) -> Mapping[str, Any]:
    if ran.too_long:
        raise _InvalidAnswer("the command printed too much")
    if ran.code != 0:
        raise _InvalidAnswer(f"the command ended with exit code {ran.code}")
    try:
        answer = base.parse_strict_json(ran.out)
    except (ValueError, RecursionError):
        raise _InvalidAnswer("the command printed no JSON") from None
    if not isinstance(answer, dict):
        raise _InvalidAnswer("the command printed no JSON object")
    schema = base.load_schema(Path(__file__).with_name("command_answer.schema.json"))
    if fault := schema_problem(answer, schema):
        raise _InvalidAnswer(f"the command printed another object than was agreed on: {fault}")
    return answer


def _make_rollout(answer: Mapping[str, Any], wall: float, unknown: ModelUsage) -> Rollout:
    """Return the rollout of an answer. unknown: its usage where the answer names none."""
    outcome, retry_after, named = (answer.get(key) for key in ("outcome", "retry_after", "usage"))
    usage = unknown
    if named is not None:
        usage = ModelUsage(
            int(named.get("input_tokens", 0)),
            int(named.get("output_tokens", 0)),
            int(named["calls"]) if "calls" in named else unknown.calls,
            unknown.cost if named.get("cost") is None else float(named["cost"]),
        )
    return Rollout(
        answer.get("output", ""),
        tuple(map(str, answer.get("read", ()))),
        float(retry_after) if retry_after is not None else None,
        trace=answer.get("trace", ""),
        usage=usage,
        wall=wall,
        outcome=TrialOutcome(outcome) if outcome is not None else None,
        detail=answer.get("detail", ""),
    )
