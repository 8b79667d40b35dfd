"""What headless clients share: their settings, private directories, and one run."""

import asyncio
import hashlib
import json
import shutil
import sys
import tempfile
import time
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import urlsplit

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.executors import base, installation
from evolvable_evolve.evolution.run_config import HostContext, parse_price
from evolvable_evolve.evolution.task import Price, Rollout, Task, TrialOutcome, make_usage
from evolvable_evolve.sandbox import (
    MODEL_PORT,
    Confinement,
    ModelAccess,
    Sandbox,
    SandboxOutputError,
    environment_inside,
    relay,
)
from evolvable_store.errors import EvolvableError, InvalidArgument, InvalidPath
from evolvable_store.resource import Kind
from evolvable_tools import REVIEWING_MARK
from evolvable_tools.llm import ChildProcesses, ProcessResult, printable_line
from evolvable_tools.redaction import Redactor

# Far above any real run; a client that loops must not fill the memory.
MAX_EVENT_BYTES = 64 * 2**20
"""Bytes of the events of one run."""

REVIEWING_VARIABLE = "EVOLVABLE_REVIEWING"
"""Set in every process that we start: a server or a hook that finds it records no session."""

_VERSION_TIMEOUT = 60.0
"""Seconds for a client to report its version."""

CLIENTS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("clients.toml").read_text("utf-8")
)
"""The tables of clients.toml."""


class ClientError(EvolvableError):
    """A client is not installed, or does not give its version."""


@dataclass(frozen=True)
class ClientSettings:
    """How a client is run. It sees nothing but this: nothing of the user's own configuration.

    binary: path of the program. version: as it reports itself. model: always named. environment:
    all of it, such as PATH and the key; home and configuration are set for each run. credentials: a
    file of the client's own sign-in, which runs see by a link. tools: what the model may use, by
    the client's names. config: lines of its configuration, for a client that has a file of it.
    price: of a million tokens, where the client does not report its cost. scripted: a script plays
    the model, and the figures say so. patterns: a person's own secrets. sandbox: where each run is
    confined; there it reaches the model through a relay outside, which holds the key. hidden:
    folders that it may not see. links: by task, folders of dependencies that it sees in its
    workspace.
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
    links: Mapping[str, tuple[tuple[str, Path], ...]] = field(default_factory=dict)

    @classmethod
    def from_spec(cls, name: str, spec: Mapping[str, Any], host: HostContext) -> Self:
        """Return the settings of a client by a run's settings.

        Raises InvalidArgument, ClientError.
        """
        if not spec.get("model"):
            raise InvalidArgument(
                f"{name} needs a model.", "Name one: figures without it mean nothing."
            )
        on_path = shutil.which(name, path=host.environment.get("PATH"))
        binary = spec.get("binary") or on_path or name
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
            links=host.links,
        )

    @property
    def label(self) -> str:
        """What stands beside every figure."""
        return "scripted" if self.scripted else f"real model {self.model}"

    def fingerprint(self, kind: str, flags: Sequence[str]) -> str:
        """Return a text that names all that decides a result; addresses and configuration by their
        digest, keys not at all.
        """
        # An address decides which model answers; a key beside it must not be in a record.
        addresses = {
            name: value for name, value in self.environment.items() if name.endswith("_URL")
        }
        rest = json.dumps(
            [flags, self.arguments, self.config, addresses, self.scripted], sort_keys=True
        )
        digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()[:12]
        apart = f" sandbox={self.sandbox.name}" if self.sandbox is not None else ""
        return (
            f"{kind} {self.version} model={self.model} tools={','.join(self.tools)} "
            f"flags={digest}{apart}"
        )


def read_client_version(binary: str, environment: Mapping[str, str]) -> str:
    """Return the version that a client reports.

    Raises ClientError. Takes a second: not for an event loop.
    """
    hint = "Install it, and see that it is on the PATH."
    try:
        ran = ChildProcesses().run(
            [binary, "--version"], b"", _VERSION_TIMEOUT, environment=dict(environment)
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name or its environment has a zero byte"
        raise ClientError(f"{printable_line(binary)} cannot be started: {why}.", hint) from None
    version = printable_line(ran.out.decode("utf-8", "replace").strip())
    if ran.code != 0 or not version:
        raise ClientError(
            f"{printable_line(binary)} --version ended with {ran.code} and said nothing of use.",
            hint,
        )
    return version


class ClientDirs(NamedTuple):
    """Private folders of one run: nothing of the user's is read there, and nothing stays."""

    root: Path
    home: Path
    config: Path
    temporary: Path


@dataclass(frozen=True)
class ClientCall:
    """One run as it is started: the command, its variables, and how its events are read.

    model: what it may ask of the model from inside a sandbox.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    read: Callable[[bytes], base.Trajectory]
    model: ModelAccess | None = None


def relay_address(address: str) -> str:
    """Return where a sandboxed client reaches the relay for the model at this address."""
    return f"http://127.0.0.1:{MODEL_PORT}{urlsplit(address).path.rstrip('/')}"


def refuse_program(why: str) -> Rollout:
    """Return the rollout of a program that is not run here, and why. That is no verdict on it."""
    return Rollout("", outcome=TrialOutcome.REFUSED, detail=why)


class ClientExecutor(ABC):
    """Runs tasks with a headless client. Every run has a fresh home and configuration with only the
    program in it.

    A subclass holds what is particular to its client.
    """

    name: ClassVar[str]
    """The client in the settings of runs, in clients.toml, and its program."""

    def __init__(self, settings: ClientSettings) -> None:
        """settings.tools: by default those of the client."""
        self._client = CLIENTS[self.name]
        self._settings = (
            settings if settings.tools else replace(settings, tools=tuple(self._client["tools"]))
        )
        fixed = [
            word
            for part in ("flags", "variables", "overrides")
            for word in self._client.get(part, ())
        ]
        fixed += [self._client["agent_tool"]] if "agent_tool" in self._client else []
        self.fingerprint = self._settings.fingerprint(self._client["kind"], fixed)
        self.label = self._settings.label

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], host: HostContext, **_: object) -> Self:
        """Return the executor that a run's settings name. Raises InvalidArgument, ClientError."""
        return cls(ClientSettings.from_spec(cls.name, spec, host))

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the rollout of one task; see Executor. REFUSED where the client cannot run the
        program as it is.

        The private directories lie beside the workspace and are removed at the end.
        """
        if why := self._unfit(program, workspace):
            return refuse_program(why)
        root = Path(
            await asyncio.to_thread(tempfile.mkdtemp, prefix="client-", dir=workspace.parent)
        )
        place = ClientDirs(root, root / "home", root / "config", root / "tmp")
        try:
            try:
                call = await asyncio.to_thread(self._prepare, program, place, workspace)
            except (OSError, ValueError, InvalidPath) as error:
                why = f"the program could not be installed: {error}"
                return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail=why)
            if isinstance(call, Rollout):
                return call
            return await _run_and_read(self._settings, task, workspace, place, call)
        finally:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    def _unfit(self, program: Program, workspace: Path) -> str:
        tools = (*self._settings.tools, *installation.program_tool_names(program))
        if missing := installation.find_missing_tools(program, tools):
            return f"{'; '.join(missing)}, which the model may not use here"
        # Hooks and servers run without the model's asking, with the rights of the client.
        started = (
            installation.find_started_programs(program) if self._settings.sandbox is None else []
        )
        if started:
            return (
                f"{', '.join(started)} brings hooks or servers, and this machine has no "
                "sandbox for them"
            )
        # Without the tool that reads skills the trial would measure a program without them.
        reads = self._client.get("skill_tool")
        if reads and reads not in tools and any(part.kind is Kind.SKILL for part in program.parts):
            return f"the program has skills, and the model may not use {reads} here"
        shadowing = installation.find_shadowing_skills(program, self.skill_dirs(workspace))
        return f"another skill has the name of a part: {', '.join(shadowing)}" if shadowing else ""

    def _prepare(
        self, program: Program, place: ClientDirs, workspace: Path
    ) -> ClientCall | Rollout:
        for folder in (place.home, place.config, place.temporary):
            folder.mkdir()
        installed = installation.install_program(program, self.layout(place.config))
        if installed.unfit:
            unfit = ", ".join(installed.unfit)
            return refuse_program(
                f"{self._client['title']} cannot be given {unfit} as part of a program"
            )
        if installed.tools:
            sandbox = self._settings.sandbox
            python = sandbox.python if sandbox is not None else sys.executable
            installed.server = installation.install_tool_server(installed, place.root, python)
        # A link, so that a sign-in that the client renews is renewed for all runs.
        if self._settings.credentials is not None:
            (place.config / self._client["sign_in_file"]).symlink_to(self._settings.credentials)
        return self.make_call(installed, place, workspace)

    @abstractmethod
    def skill_dirs(self, workspace: Path) -> list[Path]:
        """Return the folders of skills that the client reads although they are not part of the
        program.
        """

    @abstractmethod
    def layout(self, config: Path) -> installation.InstallLayout:
        """Return where the client reads the parts of a program, below its configuration."""

    @abstractmethod
    def make_call(
        self, installed: installation.InstalledProgram, place: ClientDirs, workspace: Path
    ) -> ClientCall:
        """Write the client's other files and return how it is started."""


def build_environment(
    settings: ClientSettings, place: ClientDirs, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a run: the given one, without the variables of a client that we run
    in.

    Nothing in it leads to the library: the answers to the tasks lie there.
    """
    removed = CLIENTS["environment"]["removed"]
    names = {
        name
        for name in settings.environment
        if name not in removed and not name.startswith("EVOLVABLE_")
    }
    inherited = {name: value for name, value in settings.environment.items() if name in names}
    own = {
        "HOME": place.home,
        "USERPROFILE": place.home,
        "TMPDIR": place.temporary,
        "TEMP": place.temporary,
    }
    private = {name: str(path) for name, path in own.items()}
    return inherited | private | {REVIEWING_VARIABLE: "1", **more}


def build_prompt(task: Task) -> str:
    """Return the prompt: the task, and a mark by which a review of sessions passes this
    one over.
    """
    return f"{task.prompt}\n\n<{REVIEWING_MARK} trial/>\n"


async def _run_and_read(
    settings: ClientSettings, task: Task, workspace: Path, place: ClientDirs, call: ClientCall
) -> Rollout:
    began = time.monotonic()
    try:
        ran = await _run_command(settings, task, workspace, place, call)
    except SandboxOutputError as error:
        return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail=error.text)
    except (OSError, ValueError) as error:
        why = f"{settings.binary} cannot be started: {printable_line(base.start_problem(error))}"
        return Rollout("", outcome=TrialOutcome.INFRA_ERROR, detail=why)
    wall = time.monotonic() - began
    seen = call.read(ran.out)
    last_error = ran.err.decode("utf-8", "replace")[-400:]
    if ran.too_long:
        why = f"it wrote more than {MAX_EVENT_BYTES:,} bytes"
        end = base.TrajectoryEnd(TrialOutcome.AGENT_TIMEOUT, why)
    # The sandbox ended it for what it used, not for a fault of the provider.
    elif settings.sandbox is not None and ran.code == base.LIMIT_REACHED:
        end = base.TrajectoryEnd(TrialOutcome.AGENT_TIMEOUT, printable_line(last_error))
    else:
        # Clients write their last error to either of the two.
        last = last_error or ran.out.decode("utf-8", "replace")[-400:]
        end = base.classify_end(seen, timed_out=ran.code is None, code=ran.code, last_words=last)
    return make_rollout(seen, end, wall, settings.price, settings.patterns)


def make_rollout(
    seen: base.Trajectory,
    end: base.TrajectoryEnd,
    wall: float,
    price: Price | None,
    patterns: Mapping[str, str],
) -> Rollout:
    """Return the rollout of a run, without secrets. patterns: a person's own secrets."""
    redactor = Redactor(patterns)
    return Rollout(
        output=seen.output,
        trace=redactor.redact(seen.trace)[0],
        usage=make_usage(seen.input_tokens, seen.output_tokens, seen.calls, price, seen.cost),
        wall=wall,
        read=tuple(seen.read),
        outcome=end.outcome,
        detail=redactor.redact(end.detail)[0],
        retry_after=end.wait,
        attempts=tuple(seen.attempts),
    )


async def _run_command(
    settings: ClientSettings, task: Task, workspace: Path, place: ClientDirs, call: ClientCall
) -> ProcessResult:
    # Variables of the client's own tuning are not secrets, and decide how it runs.
    own = {
        name: value
        for name, value in settings.environment.items()
        if name in CLIENTS["environment"]["tuning"]
    }
    environment = environment_inside(settings.environment, str(place.home)) | own
    environment |= {"TMPDIR": str(place.temporary), REVIEWING_VARIABLE: "1", **call.environment}
    reached: AbstractAsyncContextManager[Path | None] = (
        relay(call.model) if call.model else nullcontext()
    )
    async with reached as socket:
        what = Confinement(
            call.command,
            workspace,
            environment,
            task.timeout_s,
            readable=(settings.credentials,) if settings.credentials is not None else (),
            writable=(place.root,),
            hidden=settings.hidden,
            model_socket=socket,
            linked=settings.links.get(task.id, ()),
        )
        prompt = build_prompt(task).encode("utf-8", "replace")
        outside = build_environment(settings, place, call.environment)
        return await base.run_confined(
            what, settings.sandbox, prompt, outside=outside, most=MAX_EVENT_BYTES
        )
