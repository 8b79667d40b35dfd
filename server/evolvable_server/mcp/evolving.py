"""The tools around runs of evolution, a group that is listed only where it is asked for.

No call waits for a run: it is driven by a process of its own, and whoever wants to know asks for its status.
"""

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_server.config import Config
from evolvable_server.evolving import evolve_means, start_driver
from evolvable_server.mcp.adoptions import Adoptions, AnyOf
from evolvable_server.mcp.bearer import caller_of, decider_of, name_of
from evolvable_server.mcp.declared import NOTE, READ, RUNS, TAKES, Declared, add_tool
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.sessions import Sessions
from evolvable_server.mcp.starts import Starts
from evolvable_server.mcp.tools import Number
from evolvable_store.errors import Refused
from evolvable_store.resource import Ref
from evolvable_tools.evolve import run_control
from evolvable_tools.evolve.deploy import Adoption, adopt
from evolvable_tools.evolve.driver import check_runnable
from evolvable_tools.evolve.factory import parse_executor_spec
from evolvable_tools.evolve.ledger.run_directory import find_run
from evolvable_tools.evolve.report.render import write_report
from evolvable_tools.evolve.start import Opportunities, StartedRun, find_opportunities, start_run
from evolvable_tools.library import Caller, Library

RunName = Annotated[str | None, Field(description="the run; default the newest")]
Amount = Annotated[float | None, Field(description="default: no limit", ge=0)]

_MODELS = ("claude", "codex", "anthropic")


class EvolveTools:
    """The tools over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller, sessions: Sessions, config: Config) -> None:
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
        mode: Annotated[str, Field(description="skill_only (default), prompt_only, agent_only or any")] = "skill_only",
        iterations: Annotated[Number, Field(description="proposals, 0 to 1000", ge=0, le=1000)] = 10,
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
        limits = {"cost": max_cost, "tokens": max_tokens, "calls": max_calls}
        options = {"brain": brain, "mode": mode, "iterations": iterations} | dict(settings or {})
        options |= {name: value for name, value in limits.items() if value is not None}
        self._check_commands(ctx, executor, str(options["brain"]), str(options.get("judge") or "handoff"))
        means, refs = evolve_means(self._config), [Ref.parse(ref) for ref in program]
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
        """See the questions that a run waits for, each a packet. Answer each in a fresh sub-agent that gets nothing
        but the packet, and hand the answer in by evolve_submit."""
        return run_control.list_pending(self._config.home, run)

    def evolve_submit(
        self,
        question_id: Annotated[str, Field(description="from evolve_pending")],
        answer: Annotated[dict[str, Any], Field(description="a JSON object that fits the packet's answer_schema")],
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
        check_runnable(find_run(self._config.home, run), evolve_means(self._config))
        limits = {"cost": max_cost, "tokens": max_tokens, "calls": max_calls}
        told = run_control.resume_run(self._config.home, run, {k: v for k, v in limits.items() if v is not None})
        self._drive(told.run)
        return told

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
        """Refuses commands from afar: whoever may start a run over HTTP may not run what they like on this machine."""
        if name_of(ctx.request_context.request) is None:
            return
        for text, known in ((executor, _MODELS), *((who, ("handoff", "anthropic")) for who in thinking)):
            if text.partition(":")[0] not in known:
                raise Refused("A command is not run for a client over HTTP.", f"Choose one of {', '.join(known)}.")

    def _who(self, ctx: Context) -> Caller:
        request = ctx.request_context
        session = self._sessions.of(request.meta, getattr(request.request, "headers", None))
        return caller_of(self._caller, ctx, session)


def add_evolving(server: LibraryServer, library: Library, caller: Caller, sessions: Sessions, config: Config) -> None:
    """Adds the tools around runs of evolution."""
    tools = EvolveTools(library, caller, sessions, config)
    declared = [
        Declared(tools.evolve_start, "Start an evolution", RUNS),
        Declared(tools.evolve_status, "Status of an evolution", READ),
        Declared(tools.evolve_pending, "What an evolution waits for", READ),
        Declared(tools.evolve_submit, "Answer an evolution", NOTE),
        Declared(tools.evolve_stop, "Stop an evolution", NOTE),
        Declared(tools.evolve_continue, "Continue an evolution", RUNS),
        Declared(tools.evolve_report, "Report of an evolution", NOTE, structured=False),
        Declared(tools.evolve_adopt, "Adopt what was promoted", TAKES),
        Declared(tools.evolve_opportunities, "What deserves work", READ),
    ]
    for tool in declared:
        add_tool(server, tool)
    others = [server.decisions] if server.decisions else []
    server.decisions = AnyOf([Adoptions(config.home), Starts(config), *others])
