"""A program on this machine: the tools it needs, its files where a client reads them, and the
canary.

The canary is a skill whose only effect is a word that cannot be guessed. The answer must have the
word with the skill and must not have it without; otherwise the executor does not measure the
program.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import Program, ProgramPart, make_part
from evolvable_evolve.evolution.executors.base import Executor, write_below
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    ScorerSpec,
    Split,
    Task,
    TrialOutcome,
    add_usage,
)
from evolvable_store import Document, main_path, parse_document, regular_file
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import bound_text
from evolvable_tools.llm import ModelAttempt
from evolvable_tools.verbs import FOLDER, RunSpec, run_spec

COMMAND_TOOL = "Bash"
"""The tool that runs commands, under its best known name."""

# Files by which a skill needs a tool for commands.
_SCRIPTS = (".sh", ".bash", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1")
_TOOL = re.compile(r"[A-Za-z_][\w-]*")


def find_missing_tools(program: Program, tools: Collection[str]) -> list[str]:
    """Return the tools that parts of a program need and that are not available, each with the part
    that needs it.

    A part needs the tools that its main file names as allowed-tools, and one for commands where it
    brings scripts. An evaluation without these tools would measure another program.
    """
    missing = (
        (part.ref, tool)
        for part in program.parts
        for tool in sorted(find_needed_tools(part) - set(tools))
    )
    return [f"{ref} needs {tool}" for ref, tool in missing]


def find_needed_tools(part: ProgramPart) -> set[str]:
    """Return the tools that a part needs, without the conditions on their use."""
    scripts = part.kind is Kind.SKILL and any(path.endswith(_SCRIPTS) for path in part.files)
    declared = _main_document(part).fields.get("allowed-tools")
    text = declared if isinstance(declared, str) else ""
    if isinstance(declared, list):
        text = ", ".join(map(str, declared))
    # In `Bash(git add:*), Read` the words in brackets are conditions.
    needed = set(_TOOL.findall(re.sub(r"\([^)]*\)", "", text)))
    return {*needed, COMMAND_TOOL} if scripts else needed


_STARTED = ("hooks", "mcpServers", "mcp-servers", "mcp_servers")
"""Fields of an agent that name programs which a client starts by itself."""


def find_started_programs(program: Program) -> list[str]:
    """Return the agents of a program that bring hooks or servers, which run without a request of
    the model.
    """
    agents = (part for part in program.parts if part.kind is Kind.AGENT)
    return [
        part.ref
        for part in agents
        if any(_main_document(part).fields.get(name) for name in _STARTED)
    ]


def find_shadowing_skills(program: Program, places: Sequence[Path]) -> list[str]:
    """Return the paths of the skills in these folders that have the name of a part.

    With such a skill the trace does not tell which of both was used. The name is the folder's, or
    the one in its SKILL.md.
    """
    names = {part.name for part in program.parts if part.kind is Kind.SKILL}
    return [str(path) for name, path in iter_skills(places) if name in names]


def iter_skills(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the skills in these folders by name.

    One whose SKILL.md has another name is yielded under both.
    """
    for place in places:
        try:
            folders = sorted(path for path in place.iterdir() if path.is_dir())
        except OSError:
            continue
        for folder in folders:
            names = dict.fromkeys((folder.name, _declared_name(folder / "SKILL.md")))
            yield from ((name, folder) for name in names if name)


def list_ancestor_dirs(folder: Path, below: Sequence[str]) -> list[Path]:
    """Return these folders of `folder` and of every folder above it, up to the root of its
    repository if it has one.

    Clients look for a project's skills in these folders.
    """
    paths = [folder / name for name in below]
    above = list(folder.parents)
    root = next((place for place in (folder, *above) if (place / ".git").exists()), None)
    for place in above:
        # Without a repository only the folder itself is the project.
        if root is None or not place.is_relative_to(root):
            break
        paths += [place / name for name in below]
    return paths


def _declared_name(path: Path) -> str:
    try:
        with open(path, "rb", opener=regular_file) as file:
            # The head of a SKILL.md is at its beginning. `regular_file` refuses a pipe, which would
            # block.
            name = parse_document(file.read(20_000)).fields.get("name")
    except OSError:
        return ""
    return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class InstallLayout:
    """The places where a client reads the parts of a program. A kind without one does not fit it.

    memory: the file that it reads into every session. tools: the folder for the files of tools.
    """

    skills: Path
    agents: Path | None
    memory: Path
    tools: Path | None = None


@dataclass(slots=True)
class InstalledProgram:
    """A program after its installation.

    prompt: the text for the model beside the client's own. places: the folder or file of each part,
    by its ref. unfit: refs of the parts that do not fit this client. tools: the installed tools, as
    `tool_server` reads them.
    """

    prompt: str = ""
    places: dict[str, Path] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    server: list[str] = field(default_factory=list)
    """The command that starts the server of these tools, empty without any."""


def install_program(program: Program, shelf: InstallLayout) -> InstalledProgram:
    """Write the parts of a program and return where they are. Raises OSError."""
    installed = InstalledProgram()
    prompts, memories = list[str](), list[str]()
    for part in program.parts:
        spec = find_run_spec(part) if part.kind is Kind.TOOL else None
        if part.kind is Kind.SKILL:
            folder = installed.places[part.ref] = shelf.skills / part.name
            write_part(folder, part)
        elif part.kind is Kind.AGENT and shelf.agents is not None:
            shelf.agents.mkdir(parents=True, exist_ok=True)
            file = installed.places[part.ref] = shelf.agents / f"{part.name}.md"
            file.write_bytes(part.files[main_path(part.kind, part.name, part.files)])
        elif spec is not None and shelf.tools is not None:
            folder = installed.places[part.ref] = shelf.tools / part.name
            write_part(folder, part)
            installed.tools.append(tool_entry(part, spec, folder))
        # The texts of these kinds are joined into one each, because they have no place of their
        # own.
        elif part.kind is Kind.PROMPT:
            prompts.append(part_body(part))
        elif part.kind is Kind.MEMORY:
            memories.append(part_body(part))
        else:
            installed.unfit.append(part.ref)
    if memories:
        shelf.memory.parent.mkdir(parents=True, exist_ok=True)
        shelf.memory.write_text("\n\n".join(memories) + "\n", encoding="utf-8")
    installed.prompt = "\n\n".join(prompts)
    return installed


TOOL_SERVER = "library"
"""The name of the MCP server with the program's tools, as clients see it."""


def find_run_spec(part: ProgramPart) -> RunSpec | None:
    """Return how a tool is run, None for one that cannot be run."""
    try:
        return run_spec(Ref(Kind.TOOL, part.name), part.main or b"")
    except InvalidArgument:
        return None


def tool_entry(part: ProgramPart, spec: RunSpec, folder: Path) -> dict[str, Any]:
    """Return a tool as `tool_server` reads it. folder: where its files are."""
    return {
        "name": part.name,
        # A model reads the description, and the program may be untrusted.
        "description": bound_text(part_description(part), trusted=False),
        "schema": dict(spec.schema),
        "argv": [word.replace(FOLDER, str(folder)) for word in spec.argv],
        "seconds": spec.timeout_s,
    }


def install_tool_server(installed: InstalledProgram, folder: Path, python: str) -> list[str]:
    """Write the server of a program's tools and its data, and return the command that starts it.

    python: the interpreter where the client runs. Raises OSError.
    """
    script = folder / "tool_server.py"
    # A copy, because a container may have no installation of this package.
    shutil.copyfile(Path(__file__).with_name("tool_server.py"), script)
    (folder / "tools.json").write_text(json.dumps(installed.tools), encoding="utf-8")
    # -I and -S: nothing of the user's or of the workspace is imported.
    return [python, "-I", "-S", str(script), str(folder / "tools.json")]


def program_tool_names(program: Program) -> list[str]:
    """Return the names of a program's tools, as Claude Code writes tools of MCP servers."""
    return [f"mcp__{TOOL_SERVER}__{part.name}" for part in program.parts if part.kind is Kind.TOOL]


def find_used_tool(name: str, server: str, places: Mapping[str, Path]) -> str:
    """Return the ref of the program's tool that a call of an MCP tool used, '' for another tool."""
    ref = f"{Kind.TOOL}:{name}"
    return ref if server == TOOL_SERVER and ref in places else ""


def write_part(folder: Path, part: ProgramPart) -> None:
    """Write the files of a part below a folder, scripts as programs.

    Raises InvalidPath, OSError.
    """
    write_below(folder, part.files)
    for path, data in part.files.items():
        # A program has no modes of files, so a first line with #! decides.
        if data.startswith(b"#!"):
            os.chmod(folder / path, 0o755)


def _main_document(part: ProgramPart) -> Document:
    """Return the parsed main file of a part; an empty document where it has none."""
    path = main_path(part.kind, part.name, part.files)
    return parse_document(part.files[path] if path else b"")


def part_body(part: ProgramPart) -> str:
    """Return the body of a part's main file, without its frontmatter; '' where it has none."""
    return _main_document(part).body.strip()


def part_description(part: ProgramPart) -> str:
    """Return the description in a part's main file; '' where it has none."""
    description = _main_document(part).fields.get("description")
    return description if isinstance(description, str) else ""


CANARY_SKILL = "canary-word"
"""The name of the canary's skill."""

CANARY_PROMPT = (
    "What is the canary word? It stands in the skill canary-word, if you have that skill. Answer "
    "with the word alone. If you have no such skill, answer NONE, and look nowhere else."
)


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """The result of the canary for an executor.

    why: the fault, '' where it passed. installed, empty: the answers with the skill and without.
    attempts: requests to a model, of an executor that makes them itself.
    """

    fingerprint: str
    passed: bool
    why: str
    installed: str
    empty: str
    usage: ModelUsage
    attempts: tuple[ModelAttempt, ...] = ()


class CanaryFailed(EvolvableError):
    """An executor does not show the effect of a program; nothing may be measured with it."""


def make_canary_word() -> str:
    """Return a word that cannot be guessed."""
    return f"kestrel-{secrets.token_hex(6)}"


def canary_program(token: str) -> Program:
    """Return a program of one skill, which contains this word."""
    template = Path(__file__).with_name("canary_skill.md").read_text(encoding="utf-8")
    text = template.format(word=token)
    return Program((make_part(Kind.SKILL, CANARY_SKILL, {"SKILL.md": text.encode()}),))


async def run_canary(
    executor: Executor, folder: Path, token: str = "", timeout: float = 300.0
) -> CanaryResult:
    """Return the executor's result on the canary, with its skill and without.

    Two runs, in fresh folders below `folder`, which are removed. token: by default a new one.
    timeout: seconds of each.
    """
    token = token or make_canary_word()
    task = Task(
        "canary",
        CANARY_PROMPT,
        ScorerSpec("exact"),
        Split.TRAIN,
        "canary",
        expected=None,
        timeout_s=timeout,
    )
    program = canary_program(token)
    # The empty arm first, because traces of the other arm must not help it.
    empty = await _run_canary_arm(executor, task, Program(), folder / "canary-empty")
    installed = await _run_canary_arm(executor, task, program, folder / "canary-installed")
    why = _find_canary_fault(token, installed, empty)
    usage = add_usage(installed.usage, empty.usage)
    attempts = (*empty.attempts, *installed.attempts)
    return CanaryResult(
        executor.fingerprint, not why, why, installed.output, empty.output, usage, attempts
    )


async def _run_canary_arm(
    executor: Executor, task: Task, program: Program, folder: Path
) -> Rollout:
    workspace = folder / "work"
    try:
        workspace.mkdir(parents=True)
        return await executor.run(task, program, 0, workspace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_canary_fault(token: str, installed: Rollout, empty: Rollout) -> str:
    for arm, rollout in (("with the skill", installed), ("without the skill", empty)):
        if rollout.outcome is TrialOutcome.AGENT_TIMEOUT:
            return f"{arm} there was no answer in time."
        if rollout.outcome is not None:
            return f"{arm} nothing was run: {rollout.detail or rollout.outcome}"
    # First the arm without the skill: a word that it has shows that the arms share something.
    if token in empty.output:
        return "without the skill the answer has the word all the same: the arms are not apart."
    if token not in installed.output:
        return (
            "with the skill the answer does not have the word: the skill does not reach the model."
        )
    return ""
