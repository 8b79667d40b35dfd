"""The tools around runs of agents, listed only on request.

No call waits for a run. What a caller may start is what the person's configuration says in
`budgets.ags`: executors, a planner, and what a day may cost. Texts of agents reach the caller
between marks.
"""

from dataclasses import replace
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_evolve import ags
from evolvable_evolve.agent_runs import ags_allowance
from evolvable_evolve.ags import AgsRequest, StartedAgs, start_ags
from evolvable_evolve.evolution import AGS_DIR, SpendLimit, find_run, parse_executor_spec
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server import Config
from evolvable_server.mcp import Number, RefText, add_tool, declare_tools
from evolvable_server.mcp.call import CallSessions, caller_of
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.errors import InvalidArgument
from evolvable_tools import AnswerMarks, Caller, Library

RunName = Annotated[str | None, Field(description="the run; default the newest")]
Amount = Annotated[float | None, Field(description="default: what the person allows", ge=0)]


class AgsTools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, config: Config
    ) -> None:
        self._library, self._caller = library, caller
        self._sessions, self._config = sessions, config

    def ags_start(
        self,
        task: Annotated[
            str, Field(description="what is to be done, with all that the planner has to know")
        ],
        ctx: Context,
        agents: Annotated[
            list[RefText] | None,
            Field(description="e.g. [agent:clerk]; default every agent that the user trusts"),
        ] = None,
        executor: Annotated[
            str | None, Field(description="one that the person allows; default their first")
        ] = None,
        planner: Annotated[
            str,
            Field(
                description="handoff (default): you plan; none: the one agent you name does it; or "
                "the person's planner"
            ),
        ] = "handoff",
        checks: Annotated[
            list[str] | None,
            Field(description="scorers that the user registered, by which items may be checked"),
        ] = None,
        judge: Annotated[
            str | None,
            Field(description="who judges items by a criterion of the plan; the person's planner"),
        ] = None,
        max_cost: Amount = None,
        max_tokens: Amount = None,
        max_calls: Amount = None,
    ) -> StartedAgs:
        """Have agents of the library do a task together, within the executors and the budget that
        the person set. Returns at once; a process of its own goes on. Ask ags_status; where it
        shows a request or a question, answer by ags_answer.
        """
        allowance = ags_allowance(self._config)
        name = executor or next(iter(allowance.executors if allowance else ()), "")
        host = evolve_context(self._config)
        commands = host.commands["executors"] if host.commands else None
        if not name:
            raise InvalidArgument(
                "No executor is allowed to callers.",
                "The person sets budgets.ags; see docs/ags.md.",
            )
        limit = SpendLimit(max_cost, _to_whole(max_tokens), _to_whole(max_calls))
        request = AgsRequest(
            task,
            parse_executor_spec(name, commands, host.models),
            planner,
            tuple(agents or ()),
            limit=limit,
            checks=tuple(checks or ()),
            judge=judge or "",
        )
        begun = start_ags(self._library, self._who(ctx), host, request, allowance)
        self._drive(begun.run)
        return begun

    def ags_status(
        self,
        run: RunName = None,
        since: Annotated[
            Number, Field(description="`next` of the answer before: only newer events", ge=0)
        ] = 0,
    ) -> ags.AgsStatus:
        """See how far a run of agents is: its state, its plan with summaries, its result and cost.
        Where it waits, the answer has what ags_answer is for. States: running, waiting, stopped,
        interrupted, finished.
        """
        return _mark_texts(ags.ags_status(self._config.home, run, since))

    def ags_answer(
        self,
        ctx: Context,
        run: RunName = None,
        text: Annotated[str | None, Field(description="the user's answer to `question`")] = None,
        plan: Annotated[
            dict[str, Any] | None, Field(description="the answer to `request`, by its schema")
        ] = None,
    ) -> ags.AgsControl:
        """Answer what a run waits for: the user's words to its question, which you ask them for, or
        a plan where you plan. The run goes on with it.
        """
        if (text is None) == (plan is None):
            raise InvalidArgument(
                "Give a text or a plan.", "ags_status shows which of them the run waits for."
            )
        answer: Any = text if text is not None else plan
        control = ags.answer_ags(self._library, self._who(ctx), run, answer)
        if control.goes_on:
            self._drive(control.run)
        return control

    def ags_stop(self, run: RunName = None) -> ags.AgsControl:
        """Stop a run. The results of its items stay; a person can resume it."""
        return ags.stop_ags(self._config.home, run)

    def _drive(self, run: str) -> None:
        home = self._config.home
        start_driver(home, find_run(home, run, AGS_DIR), verb=AGS_DIR)

    def _who(self, ctx: Context) -> Caller:
        return caller_of(self._caller, ctx, self._sessions)


def _to_whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


def _mark_texts(status: ags.AgsStatus) -> ags.AgsStatus:
    """Return the status with the texts of agents and planners between marks."""
    marks = AnswerMarks(True)
    items = [
        {**item, "subtask": marks.line(item["subtask"])}
        | {name: marks.line(item[name]) for name in ("summary", "criterion") if name in item}
        for item in status.items
    ]
    events = [replace(event, what=marks.line(event.what)) for event in status.events]
    improvements = [
        {**improvement}
        | {
            name: marks.line(improvement[name])
            for name in ("line", "summary", "why")
            if name in improvement
        }
        for improvement in status.improvements
    ]
    return replace(
        status,
        items=items,
        events=events,
        improvements=improvements,
        question=marks.line(status.question),
        result=marks.line(status.result),
        why=marks.line(status.why),
        notice=marks.notice,
    )


def add_ags(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> None:
    """Add the tools around runs of agents."""
    for spec in declare_tools(AgsTools(library, caller, sessions, config), AGS_DIR):
        add_tool(server, spec)
