"""The tools around runs of evolution, listed only on request, and the questions before a run starts or is adopted.

No call waits for a run: a process of its own drives it, and evolve_status shows its progress.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_server.config import Config
from evolvable_server.mcp.elicitation import ConfirmationGate, cut_line
from evolvable_server.mcp.server import CallSessions, LibraryServer, caller_of, decider_of, name_of
from evolvable_server.mcp.tools import Number, add_tool, declare_tools, one_of
from evolvable_server.model_setup import named_commands
from evolvable_server.run_launcher import evolve_context, start_driver
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_store.resource import Ref
from evolvable_tools.evolve import run_control
from evolvable_tools.evolve.deploy import Adoption, adopt, preview_adoption
from evolvable_tools.evolve.ledger.run_directory import find_run
from evolvable_tools.evolve.ledger.run_state import load_run_state
from evolvable_tools.evolve.operators import MODES
from evolvable_tools.evolve.report.render import write_report
from evolvable_tools.evolve.run_config import parse_executor_spec
from evolvable_tools.evolve.run_context import check_runnable
from evolvable_tools.evolve.start import Opportunities, StartedRun, find_opportunities, start_run
from evolvable_tools.evolve.statistics.staged_test import alpha_of_look
from evolvable_tools.evolve.tasks.holdout import look_at
from evolvable_tools.evolve.tasks.locate import load_taskset
from evolvable_tools.library import Caller, Library

MAX_QUESTION = 60_000
"""Characters of a question; a longer change is adopted by hand, where all of it is shown."""


class AdoptionGate(ConfirmationGate):
    """Asks a person before what a run promoted becomes the library's."""

    key = "adopt"
    unconfirmed = "only a person adopts what a run found. Nothing changed; the run and its report stay."

    def __init__(self, home: Path) -> None:
        self._home = home

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call adopts something."""
        return tool == "evolve_adopt"

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question: the verdict, the capabilities and findings of the scan, and the whole difference.

        Raises NotPromoted, Refused for a change that is too long for a question.
        """
        shown = preview_adoption(self._home, arguments.get("run"))
        lines = [f"Adopt what run {shown.run} found? {shown.verdict} [{shown.label}]: {shown.why}"]
        for title, rows in (("It can do now", shown.capabilities), ("The scan found", shown.findings)):
            lines += [f"{title}:", *(f"- {row}" for row in rows)] if rows else [f"{title}: nothing new."]
        text = "\n".join([*lines, shown.diff])
        if len(text) > MAX_QUESTION:
            raise Refused(
                f"The change of run {shown.run} has {len(shown.diff):,} characters, too many for one question.",
                "A person adopts it at a terminal, where all of it is shown.",
            )
        return text


MAX_QUESTION_LINE = 200
"""Characters of one line of the question."""

_LIMITS = {"max_cost": "${} in all", "max_tokens": "{} tokens", "max_calls": "{} calls of models"}


class RunStartGate(ConfirmationGate):
    """Asks a person before a run begins or goes on."""

    key = "start"
    unconfirmed = (
        "a run executes commands, may spend money and opens the sealed test: a person starts it. Nothing was started."
    )

    def __init__(self, config: Config, library: Library, caller: Caller) -> None:
        self._config, self._library, self._caller = config, library, caller

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call starts a run or goes on with one."""
        return tool in ("evolve_start", "evolve_continue")

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return what the person is asked. Raises Refused, InvalidArgument for what nobody named."""
        if "executor" not in arguments:
            return self._continued(arguments)
        settings = arguments.get("settings")
        settings = settings if isinstance(settings, Mapping) else {}
        lines = [
            f"Start an evolution on {_short_line(arguments.get('task_set'))} of"
            f" {_short_line(arguments.get('program'))}?",
            f"The tasks are done by {self._named('executors', arguments['executor'])}",
            f"Proposals are made by {self._named('proposers', arguments.get('brain') or 'handoff')}",
        ]
        if settings.get("judge"):
            lines.append(f"Answers are judged by {self._named('judges', settings['judge'])}")
        lines.append(f"It runs in {self._config.home} with your rights, and opens the sealed test at its end.")
        lines.append(self._look_cost(arguments.get("task_set")))
        limits = {f"max_{name}": settings[name] for name in ("cost", "tokens", "calls") if name in settings}
        return "\n".join([*lines, _spends(_given(arguments) | limits)])

    def _look_cost(self, task_set: Any) -> str:
        """Return what opening the test costs later runs. A task set that cannot be read is named by the run itself."""
        try:
            taskset, _ = load_taskset(self._library, self._caller, Ref.parse(str(task_set)))
            look = look_at(self._config.home, taskset)
        except EvolvableError:
            return "Opening the test makes each later promotion on its tasks harder."
        return (
            f"This is look {look} at these test tasks: a promotion needs p <= {alpha_of_look(look):.2g}, and after it"
            f" p <= {alpha_of_look(look + 1):.2g} on tasks that it opened. That cannot be taken back."
        )

    def _continued(self, arguments: Mapping[str, Any]) -> str:
        folder = find_run(self._config.home, arguments.get("run"))
        state = load_run_state(folder)
        executor = state.settings.get("executor", {})
        who = executor.get("name") or executor.get("model") or executor.get("kind")
        command = f" ({_short_line(executor['command'])})" if executor.get("command") else ""
        lines = [
            f"Go on with run {folder.id} on {_short_line(state.settings.get('task_set'))}?",
            f"The tasks are done by {_short_line(executor.get('kind'))} {_short_line(who)}{command}",
            f"So far it took {state.bill.tokens:,} tokens and ${state.bill.cost:.2f}.",
        ]
        old = {f"max_{name}": value for name, value in _given(state.settings.get("limit", {})).items()}
        return "\n".join([*lines, _spends(old | _given(arguments))])

    def _named(self, role: str, who: Any) -> str:
        """Return whom a text names, with the command that it stands for."""
        if not isinstance(who, str):
            raise InvalidArgument("executor, brain and judge are texts.", "Such as claude:MODEL, or a name.")
        text = _short_line(who)
        if who.partition(":")[0] in ("claude", "codex", "anthropic", "handoff", "simulated"):
            return text
        commands = named_commands(self._config)
        roles = (role, "proposers") if role == "judges" and who in commands["proposers"].commands else (role,)
        command = commands[roles[-1]].get(who)
        return f"{text}, the command {_short_line(list(command.words))}"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _spends(given: Mapping[str, Any]) -> str:
    limits = [text.format(_short_line(given[name])) for name, text in _LIMITS.items() if name in given]
    return f"It may spend {', '.join(limits)}." if limits else "There is no limit on what it may spend."


def _short_line(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return cut_line(text, MAX_QUESTION_LINE)


RunName = Annotated[str | None, Field(description="the run; default the newest")]
Amount = Annotated[float | None, Field(description="default: no limit", ge=0)]

_MODELS = ("claude", "codex", "anthropic")


class EvolveTools:
    """The tools over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions, config: Config) -> None:
        self._library, self._caller, self._sessions, self._config = library, caller, sessions, config

    def evolve_start(
        self,
        task_set: Annotated[str, Field(description="environment:NAME, which holds the tasks and what judges them")],
        program: Annotated[list[str], Field(description="refs of what may get better, e.g. [skill:pdf]")],
        executor: Annotated[
            str, Field(description="who does the tasks: claude:MODEL, codex:MODEL, anthropic:MODEL, or a name")
        ],
        ctx: Context,
        brain: Annotated[
            str, Field(description="handoff (default): you answer; anthropic[:MODEL]; a name")
        ] = "handoff",
        mode: Annotated[
            str, one_of(MODES, "skill_only (default), prompt_only, agent_only, memory_only, tool_only, any")
        ] = "skill_only",
        iterations: Annotated[
            Number | None,
            Field(description="proposals, 0 to 1000; default 10, more while trials are left", ge=0, le=1000),
        ] = None,
        max_cost: Annotated[float | None, Field(description="US dollars; default: no limit", ge=0)] = None,
        max_tokens: Annotated[Number | None, Field(description="tokens; default: no limit", ge=0)] = None,
        max_calls: Annotated[Number | None, Field(description="calls of models; default: no limit", ge=0)] = None,
        settings: Annotated[
            dict[str, Any] | None, Field(description="more settings by name, see docs/evolve.md")
        ] = None,
        merge: Annotated[list[str] | None, Field(description="runs whose finalists are tried as one")] = None,
    ) -> StartedRun:
        """Begin a search for better resources, measured on a task set. The person at the client is asked first: agree
        with them on what runs and what it may spend. Commands are given by the name that a person registered. Returns
        at once; a process of its own goes on. Ask evolve_status; with brain=handoff answer what evolve_pending shows by
        evolve_submit."""
        options = {"brain": brain, "mode": mode, "iterations": iterations} | dict(settings or {})
        options |= _given({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
        self._check_commands(ctx, executor, str(options["brain"]), str(options.get("judge") or "handoff"))
        means, refs = evolve_context(self._config), [Ref.parse(ref) for ref in program]
        named = means.commands["executors"] if means.commands else None
        spec, tasks = parse_executor_spec(executor, named), Ref.parse(task_set)
        begun = start_run(self._library, self._who(ctx), means, tasks, refs, spec, options, merge or ())
        self._drive(begun.run)
        return begun

    def evolve_status(
        self,
        run: RunName = None,
        since: Annotated[Number, Field(description="`next` of the answer before: only newer events", ge=0)] = 0,
    ) -> run_control.RunStatus:
        """See how far a run is: state (running, waiting, stopped, interrupted, finished), what happened, the frontier,
        what it cost so far, and the verdict."""
        return run_control.get_status(self._config.home, run, since)

    def evolve_pending(self, run: RunName = None) -> run_control.PendingQuestions:
        """See the questions that a run waits for. Answer each in a fresh sub-agent that gets nothing but the
        question, and hand the answer in by evolve_submit."""
        return run_control.list_pending(self._config.home, run)

    def evolve_submit(
        self,
        question_id: Annotated[str, Field(description="from evolve_pending")],
        answer: Annotated[dict[str, Any], Field(description="a JSON object that fits packet.answer_schema")],
        run: RunName = None,
    ) -> run_control.SubmittedAnswer:
        """Hand in the answer to a question of a run; the run goes on with it."""
        taken = run_control.submit_answer(self._config.home, run, question_id, answer)
        if taken.goes_on:
            self._drive(taken.run)
        return taken

    def evolve_stop(self, run: RunName = None) -> run_control.ControlResult:
        """Stop a run. What was measured stays; evolve_continue goes on with it."""
        return run_control.stop_run(self._config.home, run)

    def evolve_continue(
        self, run: RunName = None, max_cost: Amount = None, max_tokens: Amount = None, max_calls: Amount = None
    ) -> run_control.ControlResult:
        """Go on with a run that was stopped or interrupted, with another budget if one is given. The person at the
        client is asked first."""
        check_runnable(find_run(self._config.home, run), evolve_context(self._config))
        limits = _given({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
        resumed = run_control.resume_run(self._config.home, run, limits)
        self._drive(resumed.run)
        return resumed

    def evolve_report(self, run: RunName = None) -> str:
        """Read what a run came to, finished or not: the verdict with its numbers, what was tried, what it cost. Writes
        the same with its pictures as one HTML page beside the run, and names it."""
        reported = write_report(find_run(self._config.home, run))
        return f"{reported.text}\n\n{reported.html} has the pictures, {reported.json} all values."

    def evolve_adopt(
        self,
        ctx: Context,
        run: RunName = None,
        reason: Annotated[str, Field(description="why; kept in the history", max_length=2000)] = "",
    ) -> Adoption:
        """Make live what a run promoted, in one operation. The person at the client is asked first; only a verdict
        PROMOTE can be adopted, and only while nothing changed since it was measured. undo takes it back."""
        return adopt(self._library, decider_of(self._who(ctx), ctx.request_context.request), run, reason)

    def evolve_opportunities(
        self,
        ctx: Context,
        days: Annotated[Number, Field(description="how far back, 1 to 3650", ge=1, le=3650)] = 30,
    ) -> Opportunities:
        """See which resources deserve work and why: they harm, fail, are never opened, or became worse. Changes
        nothing."""
        return find_opportunities(self._library, self._who(ctx), days=days)

    def _drive(self, run: str) -> None:
        start_driver(self._config.home, find_run(self._config.home, run))

    def _check_commands(self, ctx: Context, executor: str, *thinking: str) -> None:
        """Refuse commands over HTTP: the permission to start a run is no permission to run commands on this machine."""
        if name_of(ctx.request_context.request) is None:
            return
        for text, known in ((executor, _MODELS), *((who, ("handoff", "anthropic")) for who in thinking)):
            if text.partition(":")[0] not in known:
                raise Refused("A command is not run for a client over HTTP.", f"Choose one of {', '.join(known)}.")

    def _who(self, ctx: Context) -> Caller:
        return caller_of(self._caller, ctx, self._sessions)


def add_evolving(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> None:
    """Add the tools around runs of evolution."""
    tools = EvolveTools(library, caller, sessions, config)
    for spec in declare_tools(tools, "evolve"):
        add_tool(server, spec)
    server.gates += [AdoptionGate(config.home), RunStartGate(config, library, caller)]
