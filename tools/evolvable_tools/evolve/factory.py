"""What a run is driven with, by its settings: who runs the tasks, and who thinks."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.evolve.executors.base import Executor
from evolvable_tools.evolve.ledger.run_directory import RunDirectory
from evolvable_tools.evolve.proposers.proposer_model import HandOffModel, ProposerModel
from evolvable_tools.evolve.run_config import RunSettings
from evolvable_tools.evolve.task import Price, Task
from evolvable_tools.llm import NamedCommands
from evolvable_tools.llm.command_model import command_of
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.sandbox import Sandbox, SandboxChoice, sandbox_of

if TYPE_CHECKING:
    from evolvable_tools.evolve.proposers.proposer_model import ModelSpec

EXECUTORS = ("command", "claude", "codex", "anthropic", "simulated")

CLIENTS = ("claude", "codex")
"""Clients that only answer, by a command line of ours."""

JUDGE_ROLES = ("judges", "proposers")
"""The roles in which a judge is named: whoever thinks may judge as well."""


@dataclass(frozen=True)
class HostContext:
    """What this machine has for runs. environment: all of it that children get. key, address: of the Anthropic
    API, proxy: through which it is asked.

    credentials: of a client's own sign-in, by the client's name. redactor: takes secrets out of what leaves. sandbox:
    what a sandbox for trials is chosen by. hidden: folders that no trial may see, the library's above all. commands:
    those that the person named, by role (executors, proposers, judges, scorers); no other runs. None: the caller names
    commands itself, as a test does.
    """

    environment: Mapping[str, str]
    key: str | None = None
    address: str | None = None
    credentials: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    redactor: Redactor = field(default_factory=Redactor)
    sandbox: SandboxChoice = SandboxChoice()
    hidden: tuple[Path, ...] = ()
    commands: Mapping[str, NamedCommands] | None = None
    proxy: str | None = None

    @property
    def scorers(self) -> NamedCommands | None:
        """Return the scorers that the person registered."""
        return self.commands["scorers"] if self.commands is not None else None

    @property
    def apart(self) -> Sandbox | None:
        """Return the sandbox that works here, None where there is none."""
        return sandbox_of(self.sandbox).sandbox


class SubmittedAnswers(Mapping[str, Mapping[str, Any]]):
    """The answers that other processes left in a run's folder, by their question's id."""

    def __init__(self, folder: RunDirectory) -> None:
        self._folder = folder

    def __getitem__(self, question: str) -> Mapping[str, Any]:
        answer = self._folder.answer(question)
        if not isinstance(answer, dict):
            raise KeyError(question)
        return answer

    def __iter__(self) -> Any:
        return iter(path.stem for path in sorted((self._folder.path / "answers").glob("*.json")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def parse_executor_spec(text: str, named: NamedCommands | None = None, **more: Any) -> dict[str, Any]:
    """Returns the executor that a text names: claude, codex or anthropic with a model behind a colon, simulated, or a
    command that the person named. Without `named` it is a command as a shell reads it, in which {python} is this
    interpreter.

    more: what else that kind needs; None is left out. Raises InvalidArgument, Refused for what nobody named.
    """
    given = {name: value for name, value in more.items() if value is not None}
    kind, _, rest = text.partition(":")
    if kind in ("claude", "codex", "anthropic"):
        if not rest:
            raise InvalidArgument(f"{kind} needs a model, such as {kind}:MODEL.", "Figures without one mean nothing.")
        return {"kind": kind, "model": rest, **given}
    if text == "simulated":
        return {"kind": "simulated", **given}
    if named is not None:
        return {"kind": "command", "name": text, "command": list(named.get(text).words), **given}
    command = command_of(text)
    if not command:
        raise InvalidArgument("Nobody is named who runs the tasks.", f"It is one of {', '.join(EXECUTORS)}.")
    return {"kind": "command", "command": list(command), **given}


def _check_executor_named(spec: Mapping[str, Any], means: HostContext) -> None:
    """Raises Refused when the command of an executor is not what the person named."""
    if means.commands is None:
        return
    named, name = means.commands["executors"], str(spec.get("name") or "")
    if not name:
        text = "The executor of this run is a command line, and commands are named by a person."
        raise Refused(text, f"{named.hint} Then start a new run with that name.")
    if list(named.get(name).words) != list(spec["command"]):
        hint = "Start a new run, or have the person name the command as it was."
        raise Refused(f"The executor {name} is another command now than when the run began.", hint)


def make_executor(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    """Returns the executor that a run's settings name.

    tasks: those that a simulation knows the truth of. files: of the task set, among which a command finds its own;
    they are written to `place`. Raises InvalidArgument, ClientTrouble.
    """
    kind = str(spec.get("kind"))
    if kind not in _MAKERS:
        raise InvalidArgument(f"{ascii(kind[:40])} is no executor.", f"It is one of {', '.join(EXECUTORS)}.")
    return _MAKERS[kind](spec, means, tasks, files, place)


def _make_command(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    from evolvable_tools.evolve.executors.command_executor import CommandExecutor

    _check_executor_named(spec, means)
    for path, data in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != data:
            target.write_bytes(data)
    return CommandExecutor(
        spec["command"],
        folder=place,
        environment=means.environment,
        label=spec.get("label")
        or next((f"command {Path(part).name}" for part in spec["command"] if part in files), "")
        or (f"command {spec['name']}" if spec.get("name") else ""),
        version=spec.get("version", ""),
        free=bool(spec.get("free")),
        sandbox=means.apart,
        helpers=[path for path in spec.get("helpers", ()) if path in files],
        hidden=means.hidden,
    )


def _make_claude(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    from evolvable_tools.evolve.executors.claude_cli import ClaudeExecutor

    return ClaudeExecutor(_client_settings("claude", spec, means))


def _make_codex(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    from evolvable_tools.evolve.executors.codex_cli import CodexExecutor

    return CodexExecutor(_client_settings("codex", spec, means))


def _client_settings(name: str, spec: Mapping[str, Any], means: HostContext) -> Any:
    from evolvable_tools.evolve.executors.agent_cli import ClientSettings, read_client_version

    if not spec.get("model"):
        raise InvalidArgument(f"{name} needs a model.", "Name one: figures without it mean nothing.")
    binary = spec.get("binary") or shutil.which(name, path=means.environment.get("PATH")) or name
    return ClientSettings(
        binary,
        read_client_version(binary, means.environment),
        spec["model"],
        means.environment,
        credentials=means.credentials.get(name),
        tools=tuple(spec.get("tools", ())),
        config=spec.get("config", ""),
        price=_parse_price(spec),
        scripted=bool(spec.get("scripted")),
        sandbox=means.apart,
        hidden=means.hidden,
    )


def _make_anthropic(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    from evolvable_tools.evolve.executors.anthropic_api import AnthropicExecutor, ApiSettings
    from evolvable_tools.llm.anthropic_model import ADDRESS

    if not means.key:
        raise InvalidArgument("There is no key for the Anthropic API.", "Set ANTHROPIC_API_KEY.")
    return AnthropicExecutor(
        ApiSettings(
            means.key,
            spec["model"],
            base_url=means.address or ADDRESS,
            proxy=means.proxy,
            price=_parse_price(spec),
            scripted=bool(spec.get("scripted")),
            sandbox=means.apart,
            hidden=means.hidden,
        )
    )


def _make_simulated(
    spec: Mapping[str, Any], means: HostContext, tasks: Sequence[Task], files: Mapping[str, bytes], place: Path
) -> Executor:
    from evolvable_tools.evolve.executors.simulated import SimulatedExecutor

    return SimulatedExecutor(tasks, seed=int(spec.get("seed", 0)), price=spec.get("price"))


_MAKERS: Mapping[str, Callable[..., Executor]] = {
    "command": _make_command,
    "claude": _make_claude,
    "codex": _make_codex,
    "anthropic": _make_anthropic,
    "simulated": _make_simulated,
}


def make_proposer_model(settings: RunSettings, means: HostContext, folder: RunDirectory) -> ProposerModel:
    """Returns who thinks: whoever submits answers, the Anthropic API, or a command. Raises InvalidArgument, Refused."""
    who, _, model = settings.brain.partition(":")
    if who == "handoff":
        return HandOffModel(SubmittedAnswers(folder), model)
    return make_model_spec(settings.brain, ("proposers",), settings, means, folder)


def command_words(who: str, roles: Sequence[str], means: HostContext) -> tuple[str, ...]:
    """Returns the command of somebody who thinks: a client that only answers, or what the person named in one of these
    roles. Raises Refused, InvalidArgument."""
    if means.commands is None or who in CLIENTS:
        return command_of(who)
    for role in roles:
        if who in means.commands[role].commands:
            return means.commands[role].get(who).words
    return means.commands[roles[0]].get(who).words


def make_model_spec(
    who: str, roles: Sequence[str], settings: RunSettings, means: HostContext, folder: RunDirectory
) -> "ModelSpec":
    """Returns the Anthropic API or a command, as a brain that can be pickled. roles: in which a command is named.

    Raises InvalidArgument, Refused.
    """
    from evolvable_tools.evolve.proposers.proposer_model import ModelSpec, model_name

    opening = ModelSpec(
        who,
        folder.path.parents[1],
        means.key,
        means.address,
        tuple(sorted(means.environment.items())),
        model_price(settings.executor, model_name(who)),
        bool(settings.executor.get("scripted")),
        means.redactor,
        () if who.partition(":")[0] == "anthropic" else command_words(who, roles, means),
        means.proxy,
    )
    if not opening.name:  # a command that cannot be read is found now
        raise InvalidArgument("Nobody is named who thinks.", "It is handoff, anthropic[:MODEL], or a command.")
    return opening


def starts_commands(settings: RunSettings) -> bool:
    """Returns whether who runs the tasks, who judges or who thinks is a command, or a client that is one."""
    thinking = {who.partition(":")[0] for who in (settings.brain, settings.judge)}
    return settings.executor.get("kind") in ("command", "claude", "codex") or bool(
        thinking - {"", "handoff", "anthropic"}
    )


def check_commands_named(settings: RunSettings, means: HostContext) -> None:
    """Raises Refused when a run needs a command that the person did not name, or named otherwise than it began with."""
    if uses_taskset_files(settings.executor):
        _check_executor_named(settings.executor, means)
    if means.scorers is not None:
        for name in settings.scorers:
            means.scorers.get(name)
    for who, roles in ((settings.brain, ("proposers",)), (settings.judge, JUDGE_ROLES)):
        if who.partition(":")[0] not in ("", "anthropic", "handoff"):
            command_words(who, roles, means)


def check_available(settings: RunSettings, means: HostContext, files: Mapping[str, bytes]) -> None:
    """Raises InvalidArgument when somebody that a run needs is not here: a command, or a key. Nobody is asked yet.

    files: of the task set, one of which may be the command that does the tasks.
    """
    for who, does, roles in (
        (settings.brain, "think", ("proposers",)),
        (settings.judge, "judge", JUDGE_ROLES),
    ):
        kind = who.partition(":")[0]
        if kind == "anthropic" and not means.key:
            raise InvalidArgument(
                f"There is no key for the Anthropic API, which is to {does}.", "Set ANTHROPIC_API_KEY."
            )
        if kind not in ("", "anthropic", "handoff"):
            _check_on_path(command_words(who, roles, means)[:1], f"to {does}", means)
    check_commands_named(settings, means)
    if uses_taskset_files(settings.executor):
        first = [word for word in settings.executor["command"][:1] if word not in files and word != "{python}"]
        _check_on_path(first, "to do the tasks", means)


def _check_on_path(words: Sequence[str], what: str, means: HostContext) -> None:
    for word in words:
        if not Path(word).parent.name and shutil.which(word, path=means.environment.get("PATH")) is None:
            hint = "Install it, give its whole path, or name another."
            raise InvalidArgument(f"{ascii(word[:80])}, which is {what}, is not on the PATH.", hint)


def uses_taskset_files(spec: Mapping[str, Any]) -> bool:
    """Returns whether the files of the task set stand beside the executor, which may run them."""
    return spec.get("kind") == "command"


def executor_files(spec: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns what an executor's command runs: the files of the task set, and those that it names by whole paths."""
    if not uses_taskset_files(spec):
        return {}
    own = [word for word in spec["command"] if Path(word).is_absolute() and Path(word).is_file()]
    return {**files, **{word: Path(word).read_bytes() for word in own}}


def needs_canary(spec: Mapping[str, Any]) -> bool:
    """Returns whether it has to be shown first that a program reaches the model."""
    return spec.get("kind") in ("claude", "codex", "anthropic")


def model_price(spec: Mapping[str, Any], model: str) -> Price | None:
    """Returns the price that a run was given, where it is that of this model: of the executor's, or of the only one
    that has a name. '' is a model that nobody knows.
    """
    return _parse_price(spec) if model and spec.get("model", model) == model else None


def _parse_price(spec: Mapping[str, Any]) -> Price | None:
    price = spec.get("price")
    return Price(float(price[0]), float(price[1])) if isinstance(price, list | tuple) else None
