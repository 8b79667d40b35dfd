"""The tools that a model behind an API is given: the program's skills to read, and the files of its workspace."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_store.resource import Kind
from evolvable_tools.evolve.commands import LIMIT_REACHED, run_command, run_confined
from evolvable_tools.evolve.executors.installing import description_of
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.llm.command_model import ProcessResult
from evolvable_tools.sandbox import Confinement, Sandbox, SandboxOutputError, environment_inside

MAX_TEXT = 100_000
"""Characters of one answer of a tool, and bytes of a file that is written."""

MAX_FILES = 2_000
"""Files that are listed."""

COMMAND_TIME = 120.0
"""Seconds of one command."""


class ToolTrouble(Exception):
    """A tool could not do what the model asked; the text is for the model."""


@dataclass
class Toolbox:
    """The tools of one run. read: refs of the parts that were read, in order.

    commands: the model may run commands in the workspace, in this environment; None: it may not. sandbox: what they run
    in. hidden: folders that they may not see.
    """

    program: Program
    workspace: Path
    commands: Mapping[str, str] | None = None
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()
    read: dict[str, None] = field(default_factory=dict)

    @property
    def skills(self) -> list[Part]:
        """The program's skills."""
        return [part for part in self.program.parts if part.kind is Kind.SKILL]

    def declared(self) -> list[dict[str, Any]]:
        """Returns the tools as the API wants them. Without skills there is none to read them."""
        tools = [
            _tool("list_files", "Lists the files of the folder you work in."),
            _tool("read_file", "Returns the text of a file of the folder you work in.", path="Its path there."),
            _tool(
                "write_file",
                "Writes a whole file in the folder you work in.",
                path="Its path there.",
                text="Its whole text.",
            ),
        ]
        if self.commands is not None:
            tools.append(
                _tool("run_command", "Runs a line of shell in the folder you work in.", command="What to run.")
            )
        if self.skills:
            names = ", ".join(part.name for part in self.skills)
            tools.append(
                _tool(
                    "read_skill",
                    "Returns a file of a skill.",
                    name=f"One of: {names}.",
                    path="SKILL.md, or another file that it names.",
                )
            )
        return tools

    def told(self) -> str:
        """Returns what the model is told of the skills at first; '' without any."""
        if not self.skills:
            return ""
        lines = "\n".join(f"- {part.name}: {description_of(part)}" for part in self.skills)
        return f"You have these skills. Read one with read_skill before you do what it is for.\n{lines}"

    async def use(self, name: str, given: object) -> str:
        """Returns what a tool says. Raises ToolTrouble."""
        values = given if isinstance(given, dict) else {}
        if name == "run_command" and self.commands is not None:
            return await self._run(_word(values, "command"))
        if name == "read_skill":
            return self._skill(_word(values, "name"), str(values.get("path") or "SKILL.md"))
        known = {"list_files": self._list, "read_file": self._read, "write_file": self._write}
        if name not in known:
            raise ToolTrouble(f"There is no tool {name[:60]}.")
        try:
            return await asyncio.to_thread(known[name], values)
        except (OSError, ValueError) as error:
            raise ToolTrouble(f"{getattr(error, 'strerror', None) or error}") from None

    def _skill(self, name: str, path: str) -> str:
        part = next((part for part in self.skills if part.name == name), None)
        if part is None:
            raise ToolTrouble(f"There is no skill {name[:60]}.")
        self.read.setdefault(part.ref)
        if path not in part.files:
            raise ToolTrouble(f"It has no file {path[:100]}. Its files: {', '.join(sorted(part.files))}.")
        return _cut(part.files[path].decode("utf-8", "replace"))

    def _inside(self, values: Mapping[str, Any]) -> Path:
        base = self.workspace.resolve()
        path = (base / _word(values, "path")).resolve()
        if path == base or not path.is_relative_to(base):
            raise ToolTrouble("Only files in the folder you work in can be used.")
        return path

    def _list(self, values: Mapping[str, Any]) -> str:
        files = sorted(str(path.relative_to(self.workspace)) for path in self.workspace.rglob("*") if path.is_file())
        more = f"\nand {len(files) - MAX_FILES} more" if len(files) > MAX_FILES else ""
        return "\n".join(files[:MAX_FILES]) + more or "There are none."

    def _read(self, values: Mapping[str, Any]) -> str:
        with self._inside(values).open("rb") as file:
            return _cut(file.read(4 * MAX_TEXT + 4).decode("utf-8", "replace"))

    def _write(self, values: Mapping[str, Any]) -> str:
        path, data = self._inside(values), str(values.get("text", "")).encode("utf-8", "replace")
        if len(data) > MAX_TEXT:
            raise ToolTrouble(f"A file has at most {MAX_TEXT:,} bytes.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{len(data)} bytes are written."

    async def _run(self, command: str) -> str:
        words = ["/bin/sh", "-c", command]
        try:
            ran = await self._ran(words)
        except SandboxOutputError as error:
            raise ToolTrouble(error.text) from None
        except (OSError, ValueError) as error:
            raise ToolTrouble(f"It cannot be started: {error}") from None
        if self.sandbox is not None and ran.code == LIMIT_REACHED:
            raise ToolTrouble(ran.err.decode("utf-8", "replace").strip()[-300:])
        if ran.code is None:
            raise ToolTrouble(f"It was stopped after {COMMAND_TIME:g} s.")
        said = (ran.out + ran.err).decode("utf-8", "replace")
        return _cut(f"exit {ran.code}\n{said}")

    async def _ran(self, words: list[str]) -> ProcessResult:
        environment = dict(self.commands or {})
        if self.sandbox is None:
            return await run_command(words, timeout=COMMAND_TIME, folder=self.workspace, environment=environment)
        inside = environment_inside(environment)
        what = Confinement(tuple(words), self.workspace, inside, COMMAND_TIME, hidden=self.hidden)
        return await run_confined(what, self.sandbox)


def _tool(name: str, description: str, /, **values: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in values.items()}
    schema = {"type": "object", "properties": properties, "required": list(values), "additionalProperties": False}
    return {"name": name, "description": description, "input_schema": schema}


def _word(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ToolTrouble(f"Give {name} as a text.")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[the rest is left out]"
