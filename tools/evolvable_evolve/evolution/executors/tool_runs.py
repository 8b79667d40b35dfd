"""Run the command of a tool once in the sandbox: its input on stdin, its limits, and its output."""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors.base import LIMIT_REACHED, remove_tree, run_confined
from evolvable_evolve.sandbox import Confinement, ResourceLimits, Sandbox, environment_inside
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools import bound_text
from evolvable_tools.llm import ProcessResult, schema_problem
from evolvable_tools.verbs import RunSpec

MAX_INPUT, MAX_OUTPUT = 256 * 1024, 200_000
"""Bytes of a tool's input as JSON, and of its output, at most."""

MAX_ERROR = 600
"""Characters at the end of a failed tool's stderr that its caller gets."""

_MEGABYTE = 2**20


class ToolFailed(EvolvableError):
    """A tool ran and failed, or reached a limit."""


@dataclass(frozen=True)
class ToolSandbox:
    """The sandbox of tools. environment: of this process. hidden: folders that they do not see."""

    sandbox: Sandbox
    environment: Mapping[str, str] = field(repr=False)
    hidden: tuple[Path, ...] = ()


def encode_input(name: str, spec: RunSpec, arguments: Mapping[str, Any]) -> bytes:
    """Return the input of a tool as JSON.

    Raise InvalidArgument where it is too long or does not fit the schema.
    """
    try:
        data = json.dumps(arguments, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(
            f"The input of {name} is no JSON.", "It is one JSON object."
        ) from None
    if len(data) > MAX_INPUT:
        raise InvalidArgument(
            f"The input of {name} has {len(data):,} bytes.", f"The limit is {MAX_INPUT:,}."
        )
    # A dict, because the schema's validator knows no other mapping.
    if fault := schema_problem(dict(arguments), spec.schema):
        raise InvalidArgument(f"The input does not fit the schema of {name}: {fault}.")
    return data


async def run_tool_command(
    name: str,
    spec: RunSpec,
    command: tuple[str, ...],
    folder: Path,
    stdin: bytes,
    host: ToolSandbox,
) -> str:
    """Return the output of a tool's command. Raise ToolFailed where it fails or reaches a limit.

    folder: its files, which it sees read-only. It works in a folder of its own, which is removed.
    """
    # Without links in its path, because a sandbox shows it under its real one.
    trial = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="evolvable-tool-")).resolve()
    try:
        work = trial / "work"
        work.mkdir()
        what = Confinement(
            command,
            work,
            environment_inside(host.environment),
            spec.timeout_s,
            readable=(folder,),
            hidden=host.hidden,
            limits=_make_limits(spec.timeout_s),
            # Its folder is removed, so nothing has to come back.
            returns=False,
        )
        ran = await run_confined(what, host.sandbox, stdin, most=MAX_OUTPUT)
    except OSError as error:
        raise ToolFailed(f"{name} could not be started: {error.strerror or error}.") from None
    finally:
        await asyncio.to_thread(remove_tree, trial)
    return _read_output(name, spec, ran)


def _make_limits(seconds: float) -> ResourceLimits:
    """Return the limits of one run of a tool: 64 MiB of files, 2 GiB of memory, and its own time of
    the processor.
    """
    # 128 processes and 512 open files: enough for an interpreter with helpers, and not for a fork
    # bomb.
    return ResourceLimits(
        64 * _MEGABYTE,
        64 * _MEGABYTE,
        2048 * _MEGABYTE,
        128,
        512,
        max(1, int(seconds) + 1),
    )


def _read_output(name: str, spec: RunSpec, ran: ProcessResult) -> str:
    """Return the output of a tool. Raises ToolFailed."""
    # An error message may hold instructions for the model that reads it.
    message = (
        bound_text(" ".join(ran.err.decode("utf-8", "replace")[-MAX_ERROR:].split())).strip()
        or "it said nothing"
    )
    if ran.too_long:
        raise ToolFailed(f"{name} wrote more than {MAX_OUTPUT:,} bytes and was stopped.")
    if ran.code is None:
        raise ToolFailed(f"{name} took longer than {spec.timeout_s:g} s and was stopped.")
    if ran.code == LIMIT_REACHED:
        raise ToolFailed(f"{name} used up what a run may use: {message}.")
    if ran.code:
        raise ToolFailed(
            f"{name} ended with exit code {ran.code}: {message}.",
            "Check the input, or repair the tool.",
        )
    return ran.out.decode("utf-8", "replace")
