"""Runs of agents for tests: a library with agents, a scripted planner, and workers whose time is
counted.
"""

import asyncio
import heapq
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any

from baselines.scripted_model import ScriptedModel

from evolvable_evolve.ags.bus import AgsState, Bus, spending_records
from evolvable_evolve.ags.driver import add_judge, keep_evidence, open_improver, publish_plan
from evolvable_evolve.ags.engine import AgsRun, drive_until_stopped
from evolvable_evolve.ags.plan import Plan
from evolvable_evolve.ags.workers import Workers
from evolvable_evolve.contracts import contract_of
from evolvable_evolve.evolution import AGS_DIR
from evolvable_evolve.evolution.ledger.run_directory import Ledger, RunDirectory, create_run
from evolvable_evolve.evolution.proposers.proposer_model import (
    ModelQuestion,
    ModelRole,
    ProposerModel,
)
from evolvable_evolve.evolution.run_config import HostContext, SpendLimit
from evolvable_evolve.evolution.task import (
    ModelUsage,
    RegisteredScorer,
    Rollout,
    Score,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.budget import ConcurrencyLimit, RunBudget
from evolvable_evolve.evolution.trials.trial import TrialAttempt, TrialBackend, TrialJob
from evolvable_evolve.sandbox.probe import SandboxChoice
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.llm.language_model import NamedCommand, NamedCommands
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.verbs import edit

PERSON = Caller(Actor.HUMAN)
AGENT = Caller(Actor.AGENT, session="s")
CLERK = "agent:clerk"
ONE_CALL = ModelUsage(100, 10, 1, 0.001)
"""What one dispatch of a scripted worker spends."""

Planning = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Working = Callable[[TrialJob], Rollout]


def save_agent(
    library: Library, name: str, text: str, caller: Caller = PERSON, **fields: str
) -> None:
    """Save an agent. fields: of its head."""
    head = "".join(
        f"{key}: {value}\n"
        for key, value in {"name": name, "description": f"Does {name}.", **fields}.items()
    )
    ref = Ref.parse(f"agent:{name}")
    _save(library, caller, ref, {"AGENT.md": f"---\n{head}---\n\n{text}\n"})


def save_skill(library: Library, name: str, text: str, caller: Caller = PERSON) -> None:
    """Save a skill."""
    text = f"---\nname: {name}\ndescription: How {name} is done.\n---\n\n{text}\n"
    _save(library, caller, Ref.parse(name), {"SKILL.md": text})


def _save(library: Library, caller: Caller, ref: Ref, files: Mapping[str, str]) -> None:
    there = library.store.head_or_none(ref)
    now = there.version if there is not None else None
    edit.update_resource(
        library, caller, ref, "for a run", files=files, expected_version=now, create=there is None
    )


def item(
    name: str, *needs: str, agent: str = CLERK, subtask: str = "", **checked: Any
) -> dict[str, Any]:
    """Return an item as a planner writes it. checked: its check or its judge."""
    return {
        "id": name,
        "subtask": subtask or f"Do {name}.",
        "agent": agent,
        "needs": list(needs),
        **checked,
    }


def plan_then_end(*items: Mapping[str, Any]) -> Planning:
    """Return a planner that plans these, and then ends with what came back."""

    def plan(data: Mapping[str, Any]) -> Mapping[str, Any]:
        if data["round"] == 1:
            return {"note": "all at once", "items": list(items)}
        return {
            "note": "enough",
            "result": "; ".join(str(one["summary"]) for one in data["messages"]) or "nothing",
        }

    return plan


def scripted(plan: Planning, usage: ModelUsage = ONE_CALL) -> ScriptedModel:
    """Return a planner that follows a script over the data of its question."""

    def answer(question: ModelQuestion) -> Mapping[str, Any]:
        return plan(question.data)

    return ScriptedModel({ModelRole.PLANNER: answer}, usage=usage)


def done(job: TrialJob) -> Rollout:
    """Return the answer of a worker that does every item."""
    return Rollout(f"did {job.task.id}", usage=ONE_CALL, wall=1.0)


@dataclass
class CountedBackend:
    """A trial backend whose jobs take counted seconds: nothing is waited for. seconds: of a job, by
    default one.

    passes: what the check of a job says, where its item has one; None for a check in trouble.
    started, ended: the ids of tasks in order, with the time. most: how many ran at a time.
    """

    work: Working = done
    seconds: Callable[[TrialJob], float] = lambda _: 1.0
    passes: Callable[[TrialJob], bool | None] = lambda _: True
    now: float = 0.0
    most: int = 0
    started: list[tuple[str, float]] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)
    jobs: list[TrialJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._running: list[tuple[float, int, str, TrialJob]] = []
        self._numbers = count(1)

    def submit(self, job: TrialJob) -> str:
        number = next(self._numbers)
        heapq.heappush(self._running, (self.now + self.seconds(job), number, str(number), job))
        self.started.append((job.task.id, self.now))
        self.jobs.append(job)
        self.most = max(self.most, len(self._running))
        return str(number)

    async def poll(self, timeout: float | None = None) -> Sequence[tuple[str, TrialAttempt]]:
        await asyncio.sleep(0)
        if not self._running:
            return []
        self.now, _, ticket, job = heapq.heappop(self._running)
        self.ended.append((job.task.id, self.now))
        return [(ticket, _attempt(job, self.work(job), self.passes))]

    async def cancel(self, tickets: Collection[str]) -> None:
        self._running = [one for one in self._running if one[2] not in tickets]
        heapq.heapify(self._running)

    async def close(self) -> None:
        self._running = []


def _attempt(
    job: TrialJob, rollout: Rollout, passes: Callable[[TrialJob], bool | None]
) -> TrialAttempt:
    lost, score = rollout.outcome is TrialOutcome.INFRA_ERROR, None
    if job.task.scorer.type == "command" and rollout.outcome is None:
        passed = passes(job)
        said = (
            {"trouble": "it did not start"}
            if passed is None
            else {"passed": passed, "text": "no list"}
        )
        score = Score(1.0, evidence=json.dumps({"files": {}, "left_out": [], "check": said}))
    return TrialAttempt(rollout.outcome, rollout, score, detail=rollout.detail, lost=lost)


class Killed(BaseException):
    """Stands for a kill: nothing in the product catches it."""


def killing_after(records: int) -> type[Ledger]:
    """Return a ledger whose process is killed right after it wrote so many records."""

    class KillingLedger(Ledger):
        def append_all(self, new):
            made = super().append_all(new)
            if len(self.records) >= records:
                raise Killed
            return made

    return KillingLedger


class QuickDirectory(RunDirectory):
    """A run's folder whose artefacts do not wait for the disk."""

    def keep(self, data: bytes | str) -> str:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        name = sha256(raw).hexdigest()
        (self.path / "artifacts").mkdir(exist_ok=True)
        (self.path / "artifacts" / name).write_bytes(raw)
        return name


@dataclass
class AgsPlace:
    """A library with an agent, and runs over it in this process."""

    library: Library
    host: HostContext
    plans: list[Plan] = field(default_factory=list)

    def begin(
        self, task: str = "Write the report.", agents: Sequence[str] = (CLERK,), **settings: Any
    ) -> RunDirectory:
        """Begin a run without the checks of a start, and return its folder."""
        folder = QuickDirectory(
            create_run(self.library.store.home, self.library.store.clock(), AGS_DIR).path
        )
        limit = dict.fromkeys(("cost", "tokens", "calls", "wall"))
        said = {"task": task, "agents": list(agents), "memory": settings.pop("memory", [])}
        said |= {"limit": {**limit, **settings.pop("limit", {})}}
        said |= {
            "executor": {"kind": "command", "name": "own", "command": ["{python}"]},
            "planner": "anthropic",
        }
        said |= {
            "scopes": ["user"],
            "principal": "person",
            "seconds": 60.0,
            "concurrency": 4,
            **settings,
        }
        with Ledger.open(folder.ledger, durable=False) as ledger:
            ledger.append("run", {"run": folder.id, "label": "scripted", "settings": said})
        return folder

    def drive(
        self,
        folder: RunDirectory,
        planner: ProposerModel,
        backend: TrialBackend,
        *,
        ledger: type[Ledger] = Ledger,
        versions: bool = False,
        evidence: bool = False,
        improver: ProposerModel | None = None,
        judge: ProposerModel | None = None,
    ) -> AgsState:
        """Drive a run as far as it comes. versions: whether its plans become versions of the
        library.

        evidence: whether its items become evidence. improver: who improves the run's own program.
        judge: who checks items.
        """
        with ledger.open(folder.ledger, durable=False) as opened:
            bus = Bus(opened)
            if bus.state.messages:
                bus.note("continued")
            settings = bus.state.settings
            budget = RunBudget(SpendLimit(**settings["limit"]))
            budget.replay(spending_records(opened.records))
            named = {name: settings[name] for name in ("agents", "memory")}
            named["checks"] = {
                name: RegisteredScorer(name, ("true",), "") for name in settings.get("checks", ())
            }
            named["committed"] = lambda: bus.state.committed
            workers = Workers(
                self.library, PERSON, self.host, folder, settings["executor"], **named
            )
            heads = [self.library.store.head(Ref.parse(ref)) for ref in settings["agents"]]
            most = settings["concurrency"]
            run = AgsRun(
                folder=folder,
                bus=bus,
                planner=planner,
                workers=workers,
                backend=backend,
                budget=budget,
                throttle=ConcurrencyLimit(most, most=most),
                contracts=lambda: contract_of(self.library, heads),
                publish=(lambda plan: publish_plan(self.library, PERSON, plan))
                if versions
                else self._note,
                redactor=Redactor(),
                stop=lambda: folder.is_stop_requested,
                record=(lambda item: keep_evidence(self.library, opened.records, item))
                if evidence
                else str,
            )
            if judge is not None:
                add_judge(run, judge)
            if improver is not None:
                run.improver = open_improver(run, improver, opened.records)
            if evidence:
                keep_evidence(self.library, opened.records)
            asyncio.run(drive_until_stopped(run))
            return bus.state

    def _note(self, plan: Plan) -> str:
        self.plans.append(plan)
        return ""

    def run(
        self, planning: Planning, backend: TrialBackend | None = None, **settings: Any
    ) -> AgsState:
        """Begin a run and drive it."""
        return self.drive(self.begin(**settings), scripted(planning), backend or CountedBackend())


def host_of(*command: str) -> HostContext:
    """Return a host on which the person named one executor, `own`; its jobs are not run, so it
    looks for no sandbox.
    """
    roles = ("executors", "proposers", "judges", "scorers")
    own = {"own": NamedCommand("own", command or ("{python}",))}
    named = {role: NamedCommands(role, own if role == "executors" else {}) for role in roles}
    return HostContext(dict(os.environ), commands=named, sandbox=SandboxChoice(path=""))


def bill_of(state: AgsState) -> str:
    """Return the bill of a run as a text that can be compared."""
    return json.dumps([state.bill.nanos, state.bill.tokens, state.bill.calls])
