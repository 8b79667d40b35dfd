"""The questions before a run starts, measures or is adopted: a person sees what it runs and what it
may spend.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context

from evolvable_evolve.evolution import (
    TaskSet,
    describe_look,
    find_run,
    load_run_state,
    load_taskset,
    look_at,
    preview_adoption,
)
from evolvable_server import Config, named_commands
from evolvable_server.mcp import ConfirmationGate, cut_line, has_answer, may_ask
from evolvable_server.mcp.call import Call, name_of
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

# Clients show a question in a dialog, where nobody reads more.
MAX_QUESTION = 60_000
"""Characters of a question; a longer change is adopted by hand, where all of it is shown."""


class AdoptionGate(ConfirmationGate):
    """Asks a person before what a run promoted becomes the library's."""

    key = "adopt"
    unconfirmed = (
        "only a person adopts what a run found. Nothing changed; the run and its report stay."
    )

    def __init__(self, home: Path) -> None:
        self._home = home

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call adopts something."""
        return tool == "evolve_adopt"

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question: the verdict, the capabilities and findings of the scan, and the
        whole difference.

        Raises NotPromoted, Refused for a change that is too long for a question.
        """
        preview = preview_adoption(self._home, arguments.get("run"))
        lines = [
            f"Adopt what run {preview.run} found? {preview.verdict} [{preview.label}]: "
            f"{preview.why}",
            *_list_news("It can do now", preview.capabilities),
            *_list_news("The scan found", preview.findings),
            preview.diff,
        ]
        text = "\n".join(lines)
        if len(text) > MAX_QUESTION:
            raise Refused(
                f"The change of run {preview.run} has {len(preview.diff):,} characters, too many "
                "for one question.",
                "A person adopts it at a terminal, where all of it is shown.",
            )
        return text


def _list_news(title: str, rows: Sequence[str]) -> list[str]:
    """Return the lines of one part of the question."""
    if not rows:
        return [f"{title}: nothing new."]
    return [f"{title}:", *(f"- {row}" for row in rows)]


# Names come from a model: a long one could push the rest of the question out of sight.
MAX_QUESTION_LINE = 200
"""Characters of one line of the question."""

_LIMITS = {"max_cost": "${} in all", "max_tokens": "{} tokens", "max_calls": "{} calls of models"}


class RunStartGate(ConfirmationGate):
    """Asks a person before a run begins or goes on."""

    key = "start"
    unconfirmed = (
        "a run executes commands, may spend money and opens the sealed test: a person starts it. "
        "Nothing was started."
    )

    def __init__(self, config: Config, library: Library, caller: Caller) -> None:
        self._config, self._library, self._caller = config, library, caller

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call starts a run or goes on with one."""
        return tool in ("evolve_start", "evolve_continue")

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return what the person is asked.

        Raises Refused, InvalidArgument for what nobody named.
        """
        # `evolve_continue` names a run and no executor.
        if "executor" not in arguments:
            return self._continue_question(arguments)
        settings = arguments.get("settings")
        settings = settings if isinstance(settings, Mapping) else {}
        proposer = proposer_of(self._config, arguments.get("brain"), settings)
        taskset = self._load_taskset(arguments.get("task_set"))
        lines = [
            f"Start an evolution on {_short_line(arguments.get('task_set'))} of"
            f" {_short_line(arguments.get('program'))}?",
            f"The tasks are done by {self._describe_role('executors', arguments['executor'])}",
            f"Proposals are made by {self._describe_role('proposers', proposer)}",
        ]
        if settings.get("rounds"):
            lines.append(
                f"Each answer is improved up to {_short_line(settings['rounds'])} times: more "
                "calls of its model."
            )
        lines += self._judge_lines(taskset, {**settings, "brain": proposer})
        lines.append(
            f"It runs in {self._config.home} with your rights, and opens the sealed test "
            "at its end."
        )
        lines.append(self._look_cost(taskset))
        return "\n".join([*lines, _describe_limits(given_values(arguments) | _limits(settings))])

    def _load_taskset(self, task_set: Any) -> TaskSet | None:
        """Return the task set that a text names, None where it cannot be read.

        The run itself refuses such a task set, with the reason.
        """
        try:
            return load_taskset(self._library, self._caller, Ref.parse(str(task_set)))[0]
        except EvolvableError:
            return None

    def _judge_lines(self, taskset: TaskSet | None, settings: Mapping[str, Any]) -> list[str]:
        judge = settings.get("judge")
        if not judge and taskset is not None:
            judge = judge_of(self._config, taskset, settings)
        if not judge or judge == "handoff":
            return []
        return [f"Answers are judged by {self._describe_role('judges', judge)}"]

    def _look_cost(self, taskset: TaskSet | None) -> str:
        """Return what opening the test costs later runs."""
        try:
            look = look_at(self._config.home, taskset) if taskset is not None else None
        except EvolvableError:
            look = None
        if look is None:
            # A task set that cannot be read is refused by the run itself; the question stays true
            # without its figures.
            return "Opening the test makes each later promotion on its tasks harder."
        return describe_look(look)

    def _continue_question(self, arguments: Mapping[str, Any]) -> str:
        folder = find_run(self._config.home, arguments.get("run"))
        state = load_run_state(folder)
        executor = state.settings.get("executor", {})
        executor_name = executor.get("name") or executor.get("model") or executor.get("kind")
        command = f" ({_short_line(executor['command'])})" if executor.get("command") else ""
        lines = [
            f"Go on with run {folder.id} on {_short_line(state.settings.get('task_set'))}?",
            f"The tasks are done by {_short_line(executor.get('kind'))} "
            f"{_short_line(executor_name)}{command}",
            f"So far it took {state.bill.tokens:,} tokens and ${state.bill.cost:.2f}.",
        ]
        # A run that opened its test before the stop does not open it again.
        if not state.looks:
            lines.append(self._look_cost(self._load_taskset(state.settings.get("task_set"))))
        limits = given_values(state.settings.get("limit", {}))
        old = {f"max_{name}": value for name, value in limits.items()}
        return "\n".join([*lines, _describe_limits(old | given_values(arguments))])

    def _describe_role(self, role: str, name: Any) -> str:
        """Return the description of who does a role, with the model or the command that the name
        stands for.
        """
        if not isinstance(name, str):
            raise InvalidArgument(
                "executor, brain and judge are texts.", "Such as claude:MODEL, or a name."
            )
        text = _short_line(name)
        if "," in name:
            return "; where it gives no answer, by ".join(
                self._describe_role(role, part.strip()) for part in name.split(",")
            )
        if (model := self._config.person.endpoints.get(name)) is not None:
            return f"{text}, the model {_short_line(model.model)} at {_short_line(model.url)}"
        if name.partition(":")[0] in ("claude", "codex", "anthropic", "handoff", "simulated"):
            return text
        commands = named_commands(self._config)
        # A proposer may judge too, so the name of a proposer is looked up among proposers.
        if role == "judges" and name in commands["proposers"].commands:
            role = "proposers"
        command = commands[role].get(name)
        return f"{text}, the command {_short_line(list(command.words))}"


class MeasurementGate(RunStartGate):
    """Asks a person before a measurement begins."""

    key = "measure"
    unconfirmed = (
        "a measurement executes commands, may spend money and may open the sealed test: a person "
        "starts it. Nothing was started."
    )

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call begins a measurement."""
        return tool == "evolve_measure"

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return what the person is asked.

        Raises Refused, InvalidArgument for what nobody named.
        """
        executors, settings = arguments.get("executors"), arguments.get("settings")
        settings = settings if isinstance(settings, Mapping) else {}
        if not isinstance(executors, list) or not executors:
            raise InvalidArgument(
                "executors is a list of texts.", "Such as [claude:MODEL], or names."
            )
        what = _short_line(arguments.get("program"))
        if run := arguments.get("source"):
            what = f"the finalist of run {_short_line(run)}"
        against = _short_line(arguments.get("against") or "none")
        lines = [f"Measure {what} against {against} on {_short_line(arguments.get('task_set'))}?"]
        lines += [
            f"The tasks are done by {self._describe_role('executors', executor)}"
            for executor in executors
        ]
        taskset = self._load_taskset(arguments.get("task_set"))
        lines += self._judge_lines(taskset, settings)
        rights = f"It runs in {self._config.home} with your rights"
        if arguments.get("open_test"):
            lines += [f"{rights}, and opens the sealed test.", self._look_cost(taskset)]
        else:
            lines.append(f"{rights}, on train and validation. The sealed test stays closed.")
        spends = _describe_limits(given_values(arguments) | _limits(settings))
        lines.append(f"Under each executor: {spends}" if len(executors) > 1 else spends)
        return "\n".join(lines)


waits_for_person: ContextVar[bool] = ContextVar("waits_for_person", default=False)
"""Whether the running call makes a run that only a person may begin."""


class TryGate(RunStartGate):
    """Asks a person before a trial of a skill begins."""

    key = "try"
    unconfirmed = (
        "a trial executes commands and may spend money: a person starts it. Nothing was started."
    )

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call as `ConfirmationGate.call`; where no person can be asked, prepare the trial and let
        it wait.
        """
        unasked = not has_answer(context) and not may_ask(context) and not self.locked
        if not unasked or name_of(context.request_context.request) is not None:
            return await super().call(tool, arguments, context, call)
        token = waits_for_person.set(True)
        try:
            return await call(tool, arguments, context)
        finally:
            waits_for_person.reset(token)

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call begins a trial of a skill."""
        return tool == "try_skill"

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return what the person is asked.

        Raises Refused, InvalidArgument for what nobody named.
        """
        prompts = arguments.get("prompts")
        tasks = "tasks of your finished sessions"
        if isinstance(prompts, list):
            tasks = f"{len(prompts)} prompts"
        lines = [
            f"Try {_short_line(arguments.get('skill'))}, with it and without, on {tasks}, up "
            "to five times each?",
            f"The tasks are done by {self._describe_role('executors', arguments.get('executor'))}",
        ]
        if judge := arguments.get("judge"):
            lines.append(f"Answers are compared by {self._describe_role('judges', judge)}")
        lines.append(f"It runs in {self._config.home} with your rights. No sealed test is opened.")
        return "\n".join([*lines, _describe_limits(given_values(arguments))])


class PilotGate(RunStartGate):
    """Asks a person before the three trials of a plan.

    A plan without an executor runs nothing and asks nobody.
    """

    key = "plan"
    unconfirmed = (
        "three trials execute commands and may spend money: a person starts them. Nothing "
        "was started."
    )

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call runs trials."""
        return tool == "evolve_plan" and bool(arguments.get("executor"))

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return what the person is asked.

        Raises Refused, InvalidArgument for what nobody named.
        """
        return "\n".join(
            [
                f"Run three trials of {_short_line(arguments.get('program'))} on"
                f" {_short_line(arguments.get('task_set'))}, to see what an evolution would cost?",
                f"The tasks are done by {self._describe_role('executors', arguments['executor'])}",
                f"They run in {self._config.home} with your rights. The sealed test stays closed.",
                _describe_limits(given_values(arguments)),
            ]
        )


def proposer_of(config: Config, proposer: object, settings: Mapping[str, Any]) -> str:
    """Return who proposes in a run: as the call says, else as the person set for the role, else the
    caller.
    """
    # `settings` first: they are what the run is started with.
    return str(
        settings.get("brain")
        or proposer
        or ",".join(config.person.model_roles.get("proposer", ()))
        or "handoff"
    )


def judge_of(config: Config, taskset: TaskSet, settings: Mapping[str, Any]) -> str:
    """Return who judges in a run: as the settings say, else as the person set for the role, else
    the first proposer. `handoff` where no task needs a judge.
    """
    # Without such a task no judge is asked, and the question must not name one that costs money.
    if not any(task.scorer.type == "judge" for task in taskset.tasks):
        return "handoff"
    roles = config.person.models_of_role("judge")
    first = next(iter((*roles, *str(settings.get("brain") or "handoff").split(","))))
    return str(settings.get("judge") or first)


def _limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits among the settings, by the names of the arguments."""
    return {
        f"max_{name}": settings[name] for name in ("cost", "tokens", "calls") if name in settings
    }


def given_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that have a value."""
    return {name: value for name, value in values.items() if value is not None}


def _describe_limits(amounts: Mapping[str, Any]) -> str:
    limits = [
        text.format(_short_line(amounts[name])) for name, text in _LIMITS.items() if name in amounts
    ]
    if not limits:
        return "There is no limit on what it may spend."
    return f"It may spend {', '.join(limits)}."


def _short_line(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return cut_line(text, MAX_QUESTION_LINE)
