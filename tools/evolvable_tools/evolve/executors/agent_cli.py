"""What headless clients share: checks of a program, its installation in private directories, and one run."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.frontmatter import parse_document
from evolvable_store.paths import path_problem
from evolvable_store.resource import Kind
from evolvable_store.validation import main_path
from evolvable_tools.evolve.candidates.programs import Program, ProgramPart
from evolvable_tools.evolve.executors.base import (
    LIMIT_REACHED,
    Trajectory,
    TrajectoryEnd,
    classify_end,
    run_command,
    run_confined,
)
from evolvable_tools.evolve.run_config import HostContext, parse_price
from evolvable_tools.evolve.task import ModelUsage, Price, Rollout, Task, TrialOutcome, make_usage
from evolvable_tools.llm import printable_line
from evolvable_tools.llm.command_model import ChildProcesses, ProcessResult
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.sandbox import Confinement, ModelAccess, Sandbox, SandboxOutputError, environment_inside, relay
from evolvable_tools.untrusted_text import REVIEWING_MARK

COMMAND_TOOL = "Bash"
"""The tool that runs commands, under its best known name."""

_SCRIPTS = (".sh", ".bash", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1")
_TOOL = re.compile(r"[A-Za-z_][\w-]*")


def find_missing_tools(program: Program, tools: Collection[str]) -> list[str]:
    """Return what the parts of a program need and nobody has, each with the part that needs it.

    A part needs the tools that its main file names as allowed-tools, and one for commands when it brings scripts. A
    program that is evaluated without its means says nothing about it.
    """
    return [
        f"{part.ref} needs {tool}"
        for part in program.parts
        for tool in sorted(find_needed_tools(part))
        if tool not in tools
    ]


def find_needed_tools(part: ProgramPart) -> set[str]:
    """Return the tools that a part needs, without what they may be used for."""
    needed = (
        {COMMAND_TOOL} if part.kind is Kind.SKILL and any(path.endswith(_SCRIPTS) for path in part.files) else set()
    )
    path = main_path(part.kind, part.name, part.files)
    said = parse_document(part.files[path]).fields.get("allowed-tools") if path else None
    named = ", ".join(map(str, said)) if isinstance(said, list) else said if isinstance(said, str) else ""
    # In `Bash(git add:*), Read` the words in brackets say what for.
    return needed | set(_TOOL.findall(re.sub(r"\([^)]*\)", "", named)))


def find_shadowing_skills(program: Program, places: Sequence[Path]) -> list[str]:
    """Return the paths below these folders of skills that have the name of a part: nobody could tell which was used.

    The name is the folder's, or the one that its SKILL.md says.
    """
    names = {part.name for part in program.parts if part.kind is Kind.SKILL}
    return [str(path) for name, path in iter_skills(places) if name in names]


def iter_skills(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the skills in these folders by name, those that another name stands for too once for each."""
    for place in places:
        try:
            folders = sorted(path for path in place.iterdir() if path.is_dir())
        except OSError:
            continue
        for folder in folders:
            yield from (
                (name, folder) for name in dict.fromkeys((folder.name, _declared_name(folder / "SKILL.md"))) if name
            )


def list_ancestor_dirs(folder: Path, below: Sequence[str]) -> list[Path]:
    """Return these folders of `folder` and of every folder above it, up to the root of its repository if it has one.

    Clients look for a project's skills so.
    """
    found = [folder / name for name in below]
    above = list(folder.parents)
    root = next((place for place in (folder, *above) if (place / ".git").exists()), None)
    for place in above:
        if root is None or not place.is_relative_to(root):
            break
        found += [place / name for name in below]
    return found


def _declared_name(path: Path) -> str:
    try:
        with path.open("rb") as file:
            name = parse_document(file.read(20_000)).fields.get("name")
    except OSError:
        return ""
    return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class InstallLayout:
    """Where a client takes what it is given from. Of a kind that is None it can be given none.

    memory: the file that it reads into every session.
    """

    skills: Path
    agents: Path | None
    memory: Path


@dataclass(slots=True)
class InstalledProgram:
    """What a program has come to. prompt: what is said to the model beside the client's own words.

    places: the folder or file of each part, by its ref. unfit: refs that this client cannot be given.
    """

    prompt: str = ""
    places: dict[str, Path] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)


def install_program(program: Program, shelf: InstallLayout) -> InstalledProgram:
    """Write the parts of a program and return where they are. Raises OSError."""
    done = InstalledProgram()
    prompts, memories = [], []
    for part in program.parts:
        if part.kind is Kind.SKILL:
            done.places[part.ref] = shelf.skills / part.name
            write_part(done.places[part.ref], part)
        elif part.kind is Kind.AGENT and shelf.agents is not None:
            shelf.agents.mkdir(parents=True, exist_ok=True)
            done.places[part.ref] = shelf.agents / f"{part.name}.md"
            done.places[part.ref].write_bytes(part.files[main_path(part.kind, part.name, part.files)])
        elif part.kind is Kind.PROMPT:
            prompts.append(part_body(part))
        elif part.kind is Kind.MEMORY:
            memories.append(part_body(part))
        else:
            done.unfit.append(part.ref)
    if memories:
        shelf.memory.parent.mkdir(parents=True, exist_ok=True)
        shelf.memory.write_text("\n\n".join(memories) + "\n", encoding="utf-8")
    done.prompt = "\n\n".join(prompts)
    return done


def write_part(folder: Path, part: ProgramPart) -> None:
    """Write the files of a part below a folder. Raises ValueError for a path that would leave it, OSError."""
    for path, data in part.files.items():
        if problem := path_problem(path):
            raise ValueError(f"{part.ref} has the path {path!r}: {problem}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if data.startswith(b"#!"):
            os.chmod(target, 0o755)


def part_body(part: ProgramPart) -> str:
    """Return the body of a part's main file, without its frontmatter; '' where it has none."""
    path = main_path(part.kind, part.name, part.files)
    return parse_document(part.files[path]).body.strip() if path else ""


def part_description(part: ProgramPart) -> str:
    """Return what a part's main file says it is for; '' where it says nothing."""
    path = main_path(part.kind, part.name, part.files)
    said = parse_document(part.files[path]).fields.get("description") if path else None
    return said if isinstance(said, str) else ""


MAX_EVENT_BYTES = 64 * 2**20
"""Bytes of the events of one run."""

REVIEWING_VARIABLE = "EVOLVABLE_REVIEWING"
"""Set in what we start: a server or a hook that finds it takes no session in."""

_VERSION_TIMEOUT = 60.0  # seconds for a client to say its version
_REMOVED_VARIABLES = (
    *("CLAUDECODE", "CLAUDE_PROJECT_DIR", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT"),
    *("CLAUDE_CODE_PLUGIN_DIRS", "AI_AGENT", "CODEX_HOME", "HOME", "PWD", "OLDPWD"),
)


_TUNING_VARIABLES = (
    *("API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "MAX_THINKING_TOKENS", "RUST_LOG"),
    *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    *("ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_BETAS"),
)
"""Of the environment what tunes a client; inside a sandbox it gets nothing else of it."""


class ClientError(EvolvableError):
    """A client is not there, or does not say what it is."""


@dataclass(frozen=True)
class ClientSettings:
    """How a client is run. Everything it may see is in here: nothing of the user's own configuration is.

    binary: path of the program. version: what it says of itself. model: always named. environment: all of it, such as
    PATH and the key; home and configuration are set for each run. credentials: a file of the client's own sign-in,
    which runs are shown by a link. tools: what the model may use, by the names that the client has for them. config:
    lines of its configuration, for a client that has a file of it. price: of a million tokens, where the client does
    not tell what it cost. scripted: a stand-in plays the model, and the figures say so. patterns: a person's own
    secrets. sandbox: what each run is kept in; there it reaches the model through a relay outside, which holds the key.
    hidden: folders that it may not see.
    """

    binary: str
    version: str
    model: str
    environment: Mapping[str, str] = field(default_factory=dict)
    credentials: Path | None = None
    tools: tuple[str, ...] = ()
    config: str = ""
    arguments: tuple[str, ...] = ()
    price: Price | None = None
    scripted: bool = False
    patterns: Mapping[str, str] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()

    @classmethod
    def from_spec(cls, name: str, spec: Mapping[str, Any], host: HostContext) -> Self:
        """Return how a run's settings want a client run. Raises InvalidArgument, ClientError."""
        if not spec.get("model"):
            raise InvalidArgument(f"{name} needs a model.", "Name one: figures without it mean nothing.")
        binary = spec.get("binary") or shutil.which(name, path=host.environment.get("PATH")) or name
        return cls(
            binary,
            read_client_version(binary, host.environment),
            spec["model"],
            host.environment,
            credentials=host.credentials.get(name),
            tools=tuple(spec.get("tools", ())),
            config=spec.get("config", ""),
            price=parse_price(spec),
            scripted=bool(spec.get("scripted")),
            sandbox=host.working_sandbox,
            hidden=host.hidden,
        )

    @property
    def label(self) -> str:
        """What stands beside every figure."""
        return "scripted" if self.scripted else f"real model {self.model}"

    def fingerprint(self, kind: str, flags: tuple[str, ...]) -> str:
        """Name all that decides a result; addresses and configuration by their digest, keys not at all."""
        addresses = {name: value for name, value in self.environment.items() if name.endswith("_URL")}
        rest = json.dumps([flags, self.arguments, self.config, addresses, self.scripted], sort_keys=True)
        digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()[:12]
        apart = f" sandbox={self.sandbox.name}" if self.sandbox is not None else ""
        return f"{kind} {self.version} model={self.model} tools={','.join(self.tools)} flags={digest}{apart}"


def read_client_version(binary: str, environment: Mapping[str, str]) -> str:
    """Return the version that a client says it is. Raises ClientError. Takes a second: not for an event loop."""
    hint = "Install it, and see that it is on the PATH."
    try:
        ran = ChildProcesses().run([binary, "--version"], b"", _VERSION_TIMEOUT, environment=dict(environment))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name or its environment has a zero byte"
        raise ClientError(f"{printable_line(binary)} cannot be started: {why}.", hint) from None
    said = printable_line(ran.out.decode("utf-8", "replace").strip())
    if ran.code != 0 or not said:
        raise ClientError(f"{printable_line(binary)} --version ended with {ran.code} and said nothing of use.", hint)
    return said


@dataclass(frozen=True, slots=True)
class ClientDirs:
    """The private folders of one run: nothing of the user's is read there and nothing stays."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"


@dataclass(frozen=True)
class ClientCall:
    """One run as it is started: the command, what is set besides, and how its events are read.

    model: what it may ask of the model from inside a sandbox.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    read: Callable[[bytes], Trajectory]
    model: ModelAccess | None = None


def refuse_program(why: str) -> Rollout:
    """Return that a program is not run here, and why. That is no verdict on it."""
    return Rollout("", outcome=TrialOutcome.REFUSED, detail=why)


async def run_client(
    settings: ClientSettings, task: Task, workspace: Path, prepare: Callable[[ClientDirs], ClientCall | Rollout]
) -> Rollout:
    """Return what came of one task. The private place lies beside the workspace and goes with the run.

    prepare: writes what the client reads and returns how it is started, or why it is not.
    """
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="client-", dir=workspace.parent))
    place = ClientDirs(root)
    try:
        try:
            call = await asyncio.to_thread(_prepare_dirs, place, prepare)
        except (OSError, ValueError) as error:
            return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail=f"the program could not be installed: {error}")
        return call if isinstance(call, Rollout) else await _run_and_read(settings, task, workspace, place, call)
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


def build_environment(settings: ClientSettings, place: ClientDirs, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run: what was given, without what a client around us has set.

    Nothing in it leads to the library: the answers to the tasks lie there.
    """
    given = {
        name: value
        for name, value in settings.environment.items()
        if name not in _REMOVED_VARIABLES and not name.startswith("EVOLVABLE_")
    }
    own = {"HOME": place.home, "USERPROFILE": place.home, "TMPDIR": place.temporary, "TEMP": place.temporary}
    return given | {name: str(path) for name, path in own.items()} | {REVIEWING_VARIABLE: "1", **more}


def build_prompt(task: Task) -> str:
    """Return what the model is told: the task, and a mark by which a review of sessions passes this one over."""
    return f"{task.prompt}\n\n<{REVIEWING_MARK} trial/>\n"


def _prepare_dirs(place: ClientDirs, prepare: Callable[[ClientDirs], ClientCall | Rollout]) -> ClientCall | Rollout:
    place.home.mkdir()
    place.config.mkdir()
    place.temporary.mkdir()
    return prepare(place)


async def _run_and_read(
    settings: ClientSettings, task: Task, workspace: Path, place: ClientDirs, call: ClientCall
) -> Rollout:
    began = time.monotonic()
    try:
        ran = await _run_command(settings, task, workspace, place, call)
    except SandboxOutputError as error:
        return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail=error.text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Rollout(
            "", outcome=TrialOutcome.INFRA_ERROR, detail=f"{settings.binary} cannot be started: {printable_line(why)}"
        )
    wall = time.monotonic() - began
    seen = call.read(ran.out)
    if ran.too_long:
        end = TrajectoryEnd(TrialOutcome.AGENT_TIMEOUT, f"it wrote more than {MAX_EVENT_BYTES:,} bytes")
    elif settings.sandbox is not None and ran.code == LIMIT_REACHED:
        end = TrajectoryEnd(TrialOutcome.AGENT_TIMEOUT, printable_line(ran.err.decode("utf-8", "replace")[-400:]))
    else:
        last = ran.err.decode("utf-8", "replace")[-400:] or ran.out.decode("utf-8", "replace")[-400:]
        end = classify_end(seen, timed_out=ran.code is None, code=ran.code, last_words=last)
    redactor = Redactor(settings.patterns)
    return Rollout(
        output=seen.output,
        trace=redactor.redact(seen.trace)[0],
        usage=_client_usage(seen, settings.price),
        wall=wall,
        read=tuple(seen.read),
        outcome=end.outcome,
        detail=redactor.redact(end.detail)[0],
        retry_after=end.wait,
    )


async def _run_command(
    settings: ClientSettings, task: Task, workspace: Path, place: ClientDirs, call: ClientCall
) -> ProcessResult:
    prompt = build_prompt(task).encode("utf-8", "replace")
    if settings.sandbox is None:
        environment = build_environment(settings, place, call.environment)
        return await run_command(
            call.command,
            prompt,
            timeout=task.timeout_s,
            folder=workspace,
            environment=environment,
            most=MAX_EVENT_BYTES,
        )
    own = {name: value for name, value in settings.environment.items() if name in _TUNING_VARIABLES}
    environment = environment_inside(settings.environment, str(place.home)) | own
    environment |= {"TMPDIR": str(place.temporary), REVIEWING_VARIABLE: "1", **call.environment}
    what = Confinement(
        call.command,
        workspace,
        environment,
        task.timeout_s,
        readable=(settings.credentials,) if settings.credentials is not None else (),
        writable=(place.root,),
        hidden=settings.hidden,
    )
    if call.model is None:
        return await run_confined(what, settings.sandbox, prompt, most=MAX_EVENT_BYTES)
    async with relay(call.model) as socket:
        return await run_confined(replace(what, model_socket=socket), settings.sandbox, prompt, most=MAX_EVENT_BYTES)


def _client_usage(seen: Trajectory, price: Price | None) -> ModelUsage:
    return make_usage(seen.given, seen.got, seen.calls, price, seen.cost)
