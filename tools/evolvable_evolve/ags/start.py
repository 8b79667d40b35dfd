"""Begin a run of agents: check its executor, its agents and its spend limit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evolvable_evolve.ags.bus import fold_bus, spending_records
from evolvable_evolve.ags.driver import (
    check_executor,
    open_judge,
    open_model,
    open_planner,
    plan_ref,
)
from evolvable_evolve.ags.plan import MAX_SUBTASK
from evolvable_evolve.ags.planner import NO_PLANNER
from evolvable_evolve.ags.workers import open_agent, worker_tools
from evolvable_evolve.evolution import (
    AGS_DIR,
    Allowance,
    HostContext,
    Ledger,
    ProposerModel,
    RegisteredScorer,
    RunBudget,
    SpendLimit,
    add_spending,
    budget_turn,
    create_run,
    family_warning,
    is_of_today,
    iter_runs,
    named_scorers,
    no_spending,
    read_ledger,
)
from evolvable_store import Principal
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_tools import AuthorKind, Caller, Library, authorships

MAX_TASK = 20_000
"""Characters of a task."""

MAX_AGENTS = 40
"""Agents of one run."""

# Each item is a client with a sandbox of its own: memory and the provider's rate limit bound them.
MAX_CONCURRENT = 4
"""Items of one run that are worked on at a time."""


@dataclass(frozen=True)
class StartedAgs:
    """A run that was begun. plan: the resource of its plan. limit: its spend limit."""

    run: str
    label: str
    planner: str
    agents: list[str]
    plan: str
    limit: dict[str, float]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AgsRequest:
    """The request for a run.

    executor: its spec. planner: handoff, none (one agent does the task), anthropic[:MODEL], claude,
    codex or a name. agents: refs; none for all that are trusted. memory: refs that workers read.
    seconds: for one item. checks: names of registered scorers that the planner may give to items;
    in a run without a planner, the one of its item. improver: the model that improves the run's
    program between its rounds: anthropic[:MODEL], claude, codex or a name; '' for none. judge: the
    model that checks items by criteria of the plan, in the same form.
    """

    task: str
    executor: Mapping[str, Any]
    planner: str = "handoff"
    agents: Sequence[Ref] = ()
    memory: Sequence[Ref] = ()
    limit: SpendLimit = SpendLimit()
    concurrency: int = MAX_CONCURRENT
    seconds: float = 600.0
    checks: Sequence[str] = ()
    improver: str = ""
    judge: str = ""


def start_ags(
    library: Library,
    caller: Caller,
    host: HostContext,
    request: AgsRequest,
    allowance: Allowance | None = None,
) -> StartedAgs:
    """Check everything that costs nothing, and begin a run; somebody has to drive it then.

    allowance: of the person, for a caller that is no person. Raises Refused, InvalidArgument,
    NoSuchResource.
    """
    task = library.redact(request.task.strip())
    if not task or len(task) > MAX_TASK:
        raise InvalidArgument(f"The task has {len(task):,} characters.", f"1 to {MAX_TASK:,}.")
    if not 1 <= request.concurrency <= MAX_CONCURRENT:
        raise InvalidArgument(f"{request.concurrency} items at a time.", f"1 to {MAX_CONCURRENT}.")
    check_executor(request.executor, host)
    agents, warnings = _choose_agents(library, caller, request)
    if request.planner == NO_PLANNER:
        _check_single_item(request, task, agents)
    checks = _find_checks(request, host)
    roles = {"planner": request.planner, "executor": request.executor, "agents": agents}
    home = library.store.home
    planner = open_planner(roles, host, home, lambda _: None)
    if request.improver:
        _check_improver(request)
        open_model(request.improver, roles, host, home)
    if request.judge:
        warnings += _check_judge(request, open_judge(request.judge, roles, host, home))
    memory = [str(library.store.head(ref, caller.scopes).ref) for ref in request.memory]
    # Held from the day's sum to the run's record: two starts at once would each spend the rest.
    with budget_turn(home, AGS_DIR):
        limit = request.limit if caller.decides else _limit_spending(home, request, allowance)
        folder = create_run(home, library.store.clock(), AGS_DIR)
        executor = dict(request.executor)
        label = str(executor.get("name") or executor.get("model") or executor["kind"])
        scorers = {name: scorer.to_json() for name, scorer in checks.items()}
        settings: dict[str, Any] = {
            "task": task,
            "executor": executor,
            "planner": request.planner,
            "agents": agents,
            "memory": memory,
            "limit": asdict(limit),
            "concurrency": request.concurrency,
            "seconds": request.seconds,
            "scopes": list(caller.scopes),
            "principal": str(caller.identity.principal),
        }
        optional = {"checks": scorers, "improver": request.improver, "judge": request.judge}
        settings |= {name: value for name, value in optional.items() if value}
        with Ledger.open(folder.ledger) as ledger:
            ledger.append("run", {"run": folder.id, "label": label, "settings": settings})
    limits = {name: value for name, value in asdict(limit).items() if value is not None}
    return StartedAgs(
        folder.id, label, planner.name, agents, str(plan_ref(folder.id)), limits, warnings
    )


def _check_single_item(request: AgsRequest, task: str, agents: Sequence[str]) -> None:
    """Raise InvalidArgument where a run without a planner needs more than its one item."""
    if len(agents) != 1 or len(task) > MAX_SUBTASK:
        text = (
            f"{len(agents)} agents, and a task of {len(task):,} characters, for a run without "
            "a planner."
        )
        raise InvalidArgument(
            text, f"It has one agent, which you name, and a task of at most {MAX_SUBTASK:,}."
        )
    if len(request.checks) > 1:
        raise InvalidArgument(
            f"{len(request.checks)} checks for a run of one item.", "Name one check."
        )


def _find_checks(request: AgsRequest, host: HostContext) -> Mapping[str, RegisteredScorer]:
    """Return the checks of a run by name. Raise Refused where no sandbox can run them."""
    checks = named_scorers(request.checks, host.scorers)
    if checks and host.working_sandbox is None:
        hint = "`evolvable doctor` says what is missing. Without checks the run can be started."
        raise Refused("Checks run in a sandbox, and this machine has none that works.", hint)
    return checks


def _check_improver(request: AgsRequest) -> None:
    """Raise InvalidArgument for a run whose program cannot be improved."""
    if not request.checks and not request.judge:
        hint = (
            "Name a check by --check, or a judge by --judge: the checks of items say whether a "
            "change is better."
        )
        raise InvalidArgument("A run without checks cannot improve its program.", hint)
    if request.planner == NO_PLANNER:
        hint = "A run without a planner has one item, and ends with it."
        raise InvalidArgument("A run without a planner cannot improve its program.", hint)


def _check_judge(request: AgsRequest, judge: ProposerModel) -> list[str]:
    """Return the warnings about a judge. Raise InvalidArgument where nobody writes criteria."""
    if request.planner == NO_PLANNER:
        hint = "A planner writes the criteria. Name a check by --check instead."
        raise InvalidArgument("A run without a planner has nothing to judge by.", hint)
    label = str(request.executor.get("name") or request.executor.get("model") or "")
    warning = family_warning(request.executor, judge.name, label)
    return [warning] if warning else []


def _choose_agents(
    library: Library, caller: Caller, request: AgsRequest
) -> tuple[list[str], list[str]]:
    """Return the refs of the agents of a run, and a warning for each agent that is left out.

    Raises Refused, InvalidArgument.
    """
    agents, warnings = list[str](), list[str]()
    refs = [str(ref) for ref in request.agents] or _list_trusted_agents(library, caller)
    for text in dict.fromkeys(refs):
        try:
            head, main = open_agent(library, caller, text)
            worker_tools(request.executor, str(head.ref), main)
        except EvolvableError as error:
            if request.agents:
                raise
            warnings.append(f"{text} is left out: {error.text}")
            continue
        agents.append(str(head.ref))
    if not 1 <= len(agents) <= MAX_AGENTS:
        hint = f"Name 1 to {MAX_AGENTS} agents that are trusted."
        raise InvalidArgument(f"{len(agents)} agents can do the work.", hint)
    return list(dict.fromkeys(agents)), warnings


def _list_trusted_agents(library: Library, caller: Caller) -> list[str]:
    heads = [
        head
        for head in library.store.heads(Kind.AGENT)
        if head.version and head.scope in caller.scopes
    ]
    authors = authorships(library, [head.id for head in heads])
    return [
        str(head.ref)
        for head in heads
        if authors[head.id].stands or authors[head.id].kind is AuthorKind.YOU
    ]


def _limit_spending(home: Path, request: AgsRequest, allowance: Allowance | None) -> SpendLimit:
    """Return the spend limit of a run that no person starts. Raise Refused."""
    if allowance is None:
        hint = (
            "A person writes executors and a budget into budgets.ags of their configuration; see "
            "docs/ags.md."
        )
        raise Refused("Only a person starts agents here: no budget is set for other callers.", hint)
    name = executor_text(request.executor)
    allowance.require_executor(name, f"budgets.{AGS_DIR}")
    if request.planner not in ("handoff", NO_PLANNER, allowance.planner):
        hint = "handoff: you plan; none: one agent does the task."
        raise Refused(f"The planner {ascii(request.planner[:80])} is not allowed to callers.", hint)
    if request.improver not in ("", allowance.planner):
        text = f"The improver {ascii(request.improver[:80])} is not allowed to callers."
        raise Refused(text, "Leave it out.")
    if request.judge not in ("", allowance.planner):
        text = f"The judge {ascii(request.judge[:80])} is not allowed to callers."
        raise Refused(text, "Leave it out.")
    return allowance.rest(request.limit, _sum_day_spending(home), AGS_DIR)


def _sum_day_spending(home: Path) -> dict[str, float]:
    """Return the spending and the reservations of the last day, of runs that no person started."""
    day = no_spending()
    for folder in iter_runs(home, AGS_DIR):
        records = read_ledger(folder.ledger)
        state = fold_bus(records)
        if not is_of_today(folder.ledger) or state.settings["principal"] == Principal.PERSON:
            continue
        budget = RunBudget()
        budget.replay(spending_records(records))
        # A run that is not ended may still spend all of its limit.
        reserved = {} if state.ended else state.settings["limit"]
        add_spending(day, budget.bill + budget.interrupted, budget.elapsed, reserved)
    return day


def executor_text(spec: Mapping[str, Any]) -> str:
    """Return the text that names an executor."""
    return str(spec.get("name") or f"{spec.get('kind')}:{spec.get('model')}")
