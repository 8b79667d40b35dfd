"""What headless clients have in common: a private place, one run in it, and what came of that."""

import asyncio
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.brains.prices import Price, usage_of
from evolvable_tools.evolve.commands import LIMIT_REACHED, run_command, run_confined
from evolvable_tools.evolve.executors.seen import Ending, Seen, ending
from evolvable_tools.evolve.rollout import Outcome, Rollout, Usage
from evolvable_tools.evolve.task import Task
from evolvable_tools.llm import printable_line
from evolvable_tools.llm.command_model import ChildProcesses, ProcessResult
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.sandbox import Confinement, ModelAccess, Sandbox, SandboxOutputError, environment_inside, exchange
from evolvable_tools.untrusted_text import REVIEWING_MARK

MOST = 64 * 2**20
"""Bytes of the events of one run."""

REVIEWING = "EVOLVABLE_REVIEWING"
"""Set in what we start: a server or a hook that finds it takes no session in."""

_ASKING = 60.0  # seconds for a client to say its version
_NOT_HANDED_ON = (
    *("CLAUDECODE", "CLAUDE_PROJECT_DIR", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT"),
    *("CLAUDE_CODE_PLUGIN_DIRS", "AI_AGENT", "CODEX_HOME", "HOME", "PWD", "OLDPWD"),
)


_TUNING = (
    *("API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "MAX_THINKING_TOKENS", "RUST_LOG"),
    *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    *("ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_BETAS"),
)
"""Of the environment what tunes a client; inside a sandbox it gets nothing else of it."""


class ClientTrouble(EvolvableError):
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

    @property
    def label(self) -> str:
        """What stands beside every figure."""
        return "scripted" if self.scripted else f"real model {self.model}"

    def fingerprint(self, kind: str, flags: tuple[str, ...]) -> str:
        """Names all that decides a result; addresses and configuration by their digest, keys not at all."""
        addresses = {name: value for name, value in self.environment.items() if name.endswith("_URL")}
        rest = json.dumps([flags, self.arguments, self.config, addresses, self.scripted], sort_keys=True)
        digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()[:12]
        apart = f" sandbox={self.sandbox.name}" if self.sandbox is not None else ""
        return f"{kind} {self.version} model={self.model} tools={','.join(self.tools)} flags={digest}{apart}"


def version_of(binary: str, environment: Mapping[str, str]) -> str:
    """Returns the version that a client says it is. Raises ClientTrouble. Takes a second: not for an event loop."""
    hint = "Install it, and see that it is on the PATH."
    try:
        ran = ChildProcesses().run([binary, "--version"], b"", _ASKING, environment=dict(environment))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name or its environment has a zero byte"
        raise ClientTrouble(f"{printable_line(binary)} cannot be started: {why}.", hint) from None
    said = printable_line(ran.out.decode("utf-8", "replace").strip())
    if ran.code != 0 or not said:
        raise ClientTrouble(f"{printable_line(binary)} --version ended with {ran.code} and said nothing of use.", hint)
    return said


@dataclass(frozen=True, slots=True)
class Place:
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
class Call:
    """One run as it is started: the command, what is set besides, and how its events are read.

    model: what it may ask of the model from inside a sandbox.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    read: Callable[[bytes], Seen]
    model: ModelAccess | None = None


def refused(why: str) -> Rollout:
    """Returns that a program is not run here, and why. That is no verdict on it."""
    return Rollout("", outcome=Outcome.REFUSED, detail=why)


async def run_client(
    settings: ClientSettings, task: Task, workspace: Path, prepare: Callable[[Place], Call | Rollout]
) -> Rollout:
    """Returns what came of one task. The private place lies beside the workspace and goes with the run.

    prepare: writes what the client reads and returns how it is started, or why it is not.
    """
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="client-", dir=workspace.parent))
    place = Place(root)
    try:
        try:
            call = await asyncio.to_thread(_prepared, place, prepare)
        except (OSError, ValueError) as error:
            return Rollout("", outcome=Outcome.INFRA_ERROR, detail=f"the program could not be installed: {error}")
        return call if isinstance(call, Rollout) else await _ran(settings, task, workspace, place, call)
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


def environment_of(settings: ClientSettings, place: Place, more: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a run: what was given, without what a client around us has set.

    Nothing in it leads to the library: the answers to the tasks lie there.
    """
    given = {
        name: value
        for name, value in settings.environment.items()
        if name not in _NOT_HANDED_ON and not name.startswith("EVOLVABLE_")
    }
    own = {"HOME": place.home, "USERPROFILE": place.home, "TMPDIR": place.temporary, "TEMP": place.temporary}
    return given | {name: str(path) for name, path in own.items()} | {REVIEWING: "1", **more}


def prompt_of(task: Task) -> str:
    """Returns what the model is told: the task, and a mark by which a review of sessions passes this one over."""
    return f"{task.prompt}\n\n<{REVIEWING_MARK} trial/>\n"


def _prepared(place: Place, prepare: Callable[[Place], Call | Rollout]) -> Call | Rollout:
    place.home.mkdir()
    place.config.mkdir()
    place.temporary.mkdir()
    return prepare(place)


async def _ran(settings: ClientSettings, task: Task, workspace: Path, place: Place, call: Call) -> Rollout:
    began = time.monotonic()
    try:
        ran = await _run(settings, task, workspace, place, call)
    except SandboxOutputError as error:
        return Rollout("", outcome=Outcome.INFRA_ERROR, detail=error.text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Rollout(
            "", outcome=Outcome.INFRA_ERROR, detail=f"{settings.binary} cannot be started: {printable_line(why)}"
        )
    wall = time.monotonic() - began
    seen = call.read(ran.out)
    if ran.too_long:
        end = Ending(Outcome.AGENT_TIMEOUT, f"it wrote more than {MOST:,} bytes")
    elif settings.sandbox is not None and ran.code == LIMIT_REACHED:
        end = Ending(Outcome.AGENT_TIMEOUT, printable_line(ran.err.decode("utf-8", "replace")[-400:]))
    else:
        last = ran.err.decode("utf-8", "replace")[-400:] or ran.out.decode("utf-8", "replace")[-400:]
        end = ending(seen, timed_out=ran.code is None, code=ran.code, last_words=last)
    redactor = Redactor(settings.patterns)
    return Rollout(
        output=seen.output,
        trace=redactor.redact(seen.trace)[0],
        usage=_usage(seen, settings.price),
        wall=wall,
        read=tuple(seen.read),
        outcome=end.outcome,
        detail=redactor.redact(end.detail)[0],
        retry_after=end.wait,
    )


async def _run(settings: ClientSettings, task: Task, workspace: Path, place: Place, call: Call) -> ProcessResult:
    prompt = prompt_of(task).encode("utf-8", "replace")
    if settings.sandbox is None:
        environment = environment_of(settings, place, call.environment)
        return await run_command(
            call.command, prompt, timeout=task.timeout_s, folder=workspace, environment=environment, most=MOST
        )
    own = {name: value for name, value in settings.environment.items() if name in _TUNING}
    environment = environment_inside(settings.environment, str(place.home)) | own
    environment |= {"TMPDIR": str(place.temporary), REVIEWING: "1", **call.environment}
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
        return await run_confined(what, settings.sandbox, prompt, most=MOST)
    async with exchange(call.model) as socket:
        return await run_confined(replace(what, model_socket=socket), settings.sandbox, prompt, most=MOST)


def _usage(seen: Seen, price: Price | None) -> Usage:
    return usage_of(seen.given, seen.got, seen.calls, price, seen.cost)
