"""The executors of a session: the session itself and its subagents, with the versions that each of
them used.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evolvable_store import Head
from evolvable_store.storage import MAIN, Execution, ExecutionUse, Outcome, OutcomeSignal
from evolvable_tools.client_locators import AgentLocator
from evolvable_tools.delegates import delegate_of
from evolvable_tools.library import Library
from evolvable_tools.outcomes.detection import Moment, SessionEnds, outcome_of

if TYPE_CHECKING:
    from evolvable_tools.sessions import Session, Span

LOADING = frozenset(("skill", "read", "load_skill", "preloaded", "agent"))
"""Ways in which a model gets a document: the client's own tool, reading the file, and our tool; the
start of an agent that has the skill, and of an agent itself.
"""

USING = frozenset(("skill", "attributed", "file", "script", "step", "delegated", "agent"))
"""Signs that a skill was followed. It was called by its name, or the client attributes a step to
it. Another of its files was opened, or one of its scripts ran. After it was loaded, a command of
its document ran, or its agent was started. An agent is used when it is started.
"""

UNKNOWN = "unknown"
"""The name of a subagent whose type the transcript does not tell."""

MAX_SUBAGENTS = 100
"""Types of subagents of one session that are distinguished; further ones count as UNKNOWN."""

TURNS = 2
"""Turns after the last use of a skill whose signals still count for its outcome: a person answers
in the next ones.
"""


@dataclass(slots=True)
class VersionUse:
    """One version while a session is read, or the part of one executor. turn: of its first sign.

    own: this session shows it. inherited: it was loaded in a part that this session copied from
    another one.
    """

    resource: int
    version: int
    at: str
    model: str | None
    turn: int
    how: dict[str, None] = field(default_factory=dict)
    first_use: Moment | None = None
    last_turn: int = 0
    own: bool = False
    inherited: bool = False

    @property
    def is_loaded(self) -> bool:
        return not LOADING.isdisjoint(self.how)

    @property
    def observation_fields(self) -> tuple[int, int, str, bool, bool, tuple[str, ...]]:
        """The fields of an observed use, without its outcome."""
        return self.resource, self.version, self.at, self.is_loaded, self.is_used, tuple(self.how)

    @property
    def is_in_context(self) -> bool:
        """Whether its document is before the model."""
        return self.is_loaded or self.inherited

    @property
    def is_used(self) -> bool:
        return self.first_use is not None

    @property
    def is_agent(self) -> bool:
        return "agent" in self.how

    def note(self, how: str, here: "Span", place: int = 0) -> None:
        """Note one sign of it at a span. place: of the command in its line of shell.

        Where another session had the span first, the sign counts there.
        """
        if here.copied:
            # The other session counts the sign; here it only shows that the model has the document.
            self.inherited |= how in LOADING
            return
        self.own = True
        self.how[how] = None
        if how in USING:
            self.last_turn = here.turn
            # The earliest use: signals of an end count after it.
            if self.first_use is None:
                self.first_use = (here.index, place)

    def signals(self, ends: SessionEnds) -> tuple[OutcomeSignal, ...]:
        """Return the signals of its end: those after its first use, up to TURNS after its last."""
        if self.first_use is None:
            return ()
        return ends.between(self.first_use, self.last_turn + TURNS)


@dataclass(slots=True)
class RunningExecutor:
    """One executor while a session is read.

    agent: its resource and version, where the library holds it. uses: by resource and version.
    """

    name: str
    agent: tuple[int, int] | None
    at: str
    model: str | None
    first: int
    last_turn: int = 0
    spans: int = 0
    uses: dict[tuple[int, int], VersionUse] = field(default_factory=dict)


class SessionExecutors:
    """The executors of one session while it is read. moment: the time of a span as it is stored."""

    def __init__(
        self, library: Library, session: "Session", moment: "Callable[[Span], str]"
    ) -> None:
        self._library, self._moment, self._model = library, moment, session.model
        # Codex has agents of its own, which no folder of the library holds.
        self._agents = AgentLocator(library, session.project) if session.client != "codex" else None
        self._runs = {run.agent: run for run in session.subagents}
        self._by_call = {run.call_id: run for run in session.subagents if run.call_id}
        self._agent_of_type: dict[tuple[str, str], tuple[int, int] | None] = {}
        self._running: dict[str, RunningExecutor] = {}
        self._begun = set[str]()

    def of(self, span: "Span") -> RunningExecutor:
        """Return the executor of a span."""
        if span.agent is None:
            return self.main(span)
        run = self._runs.get(span.agent)
        return self._find_executor(run.name if run else UNKNOWN, run.prompt if run else "", span)

    def count(self, span: "Span") -> None:
        """Count a span to its executor."""
        executor = self.of(span)
        executor.spans += not span.copied
        executor.last_turn = span.turn

    def executor_of_start(self, call: "Span") -> RunningExecutor:
        """Return the executor that a call started."""
        run = self._by_call.get(call.call_id or "")
        name = run.name if run is not None else (call.input or {}).get("subagent_type")
        prompt = run.prompt if run is not None else ""
        return self._find_executor(name if isinstance(name, str) else "", prompt, call)

    def main(self, here: "Span") -> RunningExecutor:
        """Return the session itself. here: a span of it, by which its start is dated."""
        return self._get_executor(MAIN, None, here)

    def executor_of_fork(self, call: "Span") -> RunningExecutor | None:
        """Return the executor that a call of a skill started, None where the skill came before the
        caller itself.
        """
        return self.executor_of_start(call) if call.call_id in self._by_call else None

    def executor_of_typed_fork(self, span: "Span") -> RunningExecutor | None:
        """Return the executor of a span, where it is the first one of a skill that runs in a fork
        and no call started.

        A person started it by typing the skill's name, or its call has no result.
        """
        agent = span.agent
        if agent is None or agent in self._begun:
            return None
        self._begun.add(agent)
        run = self._runs.get(agent)
        is_fork = (
            run is not None and run.call_id is None and span.origin == "skill" and span.tool is None
        )
        # A skill in a fork runs as a subagent whose first span is the skill's text.
        return self.of(span) if is_fork else None

    def is_delegate(self, agent: int, use: VersionUse) -> bool:
        """Return whether the version of a skill names this agent as its delegate, or as one of
        several.
        """
        head = self._read_head(use.resource)
        delegate = delegate_of(self._library, head, use.version)
        if delegate is None:
            return False
        scopes = self._library.scopes_from(head.scope)
        agent_heads = [self._library.store.head_or_none(ref, scopes) for ref in delegate.agents]
        return any(agent_head is not None and agent_head.id == agent for agent_head in agent_heads)

    def executions(
        self, session: str, ends: SessionEnds, outcome: Outcome | None
    ) -> Iterator[Execution]:
        """Yield what each executor did. outcome: of the session, which is that of its main part."""
        for executor in self._running.values():
            if not executor.spans:
                continue
            # The main part ends as the session does; a subagent by the signals after its start.
            end = outcome
            if executor.name != MAIN:
                last_turn = executor.last_turn + TURNS
                end = outcome_of(ends.between((executor.first, -1), last_turn))
            uses = tuple(
                ExecutionUse(*use.observation_fields, outcome_of(use.signals(ends)))
                for use in executor.uses.values()
                if use.own
            )
            agent, version = executor.agent or (None, None)
            yield Execution(
                version,
                executor.at,
                executor.model,
                end,
                session,
                executor.name,
                agent,
                executor.spans,
                uses,
            )

    def _find_executor(self, name: str, prompt: str, here: "Span") -> RunningExecutor:
        if (name, prompt) not in self._agent_of_type:
            # Bounds the memory for a hostile transcript; the further types share one executor.
            if len(self._agent_of_type) >= MAX_SUBAGENTS:
                return self._get_executor(f"subagent:{UNKNOWN}", None, here)
            self._agent_of_type[name, prompt] = self._find_agent(name, prompt, here)
        agent = self._agent_of_type[name, prompt]
        full_name = str(self._read_head(agent[0]).ref) if agent else f"subagent:{name}"
        return self._get_executor(full_name, agent, here)

    def _find_agent(self, name: str, prompt: str, here: "Span") -> tuple[int, int] | None:
        if self._agents is None:
            return None  # Codex has agents of its own, which no folder of the library holds
        if prompt:
            # Agents of one name may differ; the prompt tells which one the client ran.
            return self._agents.by_prompt(name, prompt)
        head = self._agents.by_name(name)
        if head is None:
            return None
        version = self._library.store.backend.observations.version_at(head.id, self._moment(here))
        return (head.id, version) if version is not None else None

    def _get_executor(
        self, name: str, agent: tuple[int, int] | None, here: "Span"
    ) -> RunningExecutor:
        if name not in self._running:
            model = here.model or self._model
            self._running[name] = RunningExecutor(
                name, agent, self._moment(here), model, here.index
            )
        return self._running[name]

    def _read_head(self, resource: int) -> Head:
        return self._library.store.backend.heads_by_id([resource])[resource]
