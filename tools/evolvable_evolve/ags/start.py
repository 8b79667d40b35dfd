"""Begin a run of agents: which executor and agents it may use, and what it may spend."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from filelock import FileLock

from evolvable_evolve.ags.bus import fold_bus, spending_records
from evolvable_evolve.ags.driver import AGS_DIR, check_executor, open_model, open_planner, plan_ref
from evolvable_evolve.ags.plan import MAX_SUBTASK
from evolvable_evolve.ags.planner import NO_PLANNER
from evolvable_evolve.ags.workers import open_agent, worker_tools
from evolvable_evolve.evolution import (
    HostContext,
    Ledger,
    RunBudget,
    SpendLimit,
    create_run,
    iter_runs,
    named_scorers,
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

MAX_CONCURRENT = 4
"""Items of one run that are worked on at a time."""

_LOCK_TIMEOUT = 15.0  # seconds for another start to end
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class Allowance:
    """What a person allows callers that are no person to start: executors, a planner, and what a day may cost.

    executors: by the texts that name them; the first is the default. day: of all such runs of 24 hours together.
    """

    executors: tuple[str, ...] = ()
    planner: str = "handoff"
    day: SpendLimit = SpendLimit()

    @classmethod
    def from_config(cls, table: object, name: str = AGS_DIR) -> "Allowance | None":
        """Return the allowance of a table of `budgets` in the person's configuration, None where there is none.

        Raises InvalidArgument for a table that is none.
        """
        if table is None:
            return None
        hint = 'Write executors = ["NAME"], and cost, tokens, calls or minutes of a day, each a number.'
        wrong = f"budgets.{name} of the person's configuration is not valid."
        if not isinstance(table, Mapping) or not set(table) <= {"executors", "planner", *_LIMITS}:
            raise InvalidArgument(wrong, hint)
        executors, planner = table.get("executors", []), table.get("planner", "handoff")
        limits: dict[str, Any] = {name: table[name] for name in _LIMITS if table.get(name) is not None}
        numbers = all(
            isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in limits.values()
        )
        texts = isinstance(executors, list) and all(isinstance(one, str) for one in [*executors, planner])
        if not numbers or not texts or not limits:
            raise InvalidArgument(wrong, hint)
        if "minutes" in limits:
            limits["wall"] = limits.pop("minutes") * 60
        return cls(tuple(executors), planner, SpendLimit(**limits))

    def stricter(self, other: "Allowance") -> "Allowance":
        """Return what both allow: the executors of both, the lower limits, and a planner only where they agree."""
        pairs = {one.name: (getattr(self.day, one.name), getattr(other.day, one.name)) for one in fields(SpendLimit)}
        limits = {name: min((one for one in pair if one is not None), default=None) for name, pair in pairs.items()}
        common = tuple(one for one in self.executors if one in other.executors)
        return Allowance(common, self.planner if self.planner == other.planner else "handoff", SpendLimit(**limits))

    def rest(self, wanted: SpendLimit, spent: Mapping[str, float], name: str = AGS_DIR) -> SpendLimit:
        """Return what one more run may spend. spent: in the last day, also what had no price. Raises Refused."""
        if spent["unpriced"] and self.day == SpendLimit(cost=self.day.cost):
            hint = f"The person adds tokens, calls or minutes to budgets.{name}."
            raise Refused("The budget is in money alone, and runs of this day used what has no price.", hint)
        given = {one: value for one, value in asdict(wanted).items() if value is not None}
        for limit, most in asdict(self.day).items():
            if most is None:
                continue
            left = most - spent[limit]
            if left <= 0:
                hint = "Runs of 24 hours count, with all that those under way may spend. Wait, or ask the person."
                raise Refused(f"The budget that the person set for a day is spent ({limit}).", hint)
            given[limit] = min(left, given.get(limit, left))
        return SpendLimit(**given)


_LIMITS = ("cost", "tokens", "calls", "minutes")


@dataclass(frozen=True)
class StartedAgs:
    """A run that was begun. plan: the resource that its plan becomes. limit: what it may spend."""

    run: str
    label: str
    planner: str
    agents: list[str]
    plan: str
    limit: dict[str, float]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AgsRequest:
    """What a run is asked to be. executor: its spec.

    planner: handoff, none (one agent does the task), anthropic[:MODEL], claude, codex or a name. agents: refs; none for
    all that are trusted. memory: refs that workers read. seconds: for one item. checks: names of registered scorers
    that the planner may give to items; in a run without a planner the one of its item. improver: who improves the
    program of the run between its rounds: anthropic[:MODEL], claude, codex or a name; '' for nobody.
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


def start_ags(
    library: Library, caller: Caller, host: HostContext, asked: AgsRequest, allowance: Allowance | None = None
) -> StartedAgs:
    """Check everything that costs nothing and begin a run; somebody has to drive it then.

    allowance: what the person allows a caller that is none. Raises Refused, InvalidArgument, NoSuchResource.
    """
    task = library.redacted(asked.task.strip())
    if not task or len(task) > MAX_TASK:
        raise InvalidArgument(f"The task has {len(task):,} characters.", f"1 to {MAX_TASK:,}.")
    if not 1 <= asked.concurrency <= MAX_CONCURRENT:
        raise InvalidArgument(f"{asked.concurrency} items at a time.", f"1 to {MAX_CONCURRENT}.")
    check_executor(asked.executor, host)
    agents, warnings = _offered(library, caller, asked)
    if asked.planner == NO_PLANNER and (len(agents) != 1 or len(task) > MAX_SUBTASK):
        text = f"{len(agents)} agents, and a task of {len(task):,} characters, for a run without a planner."
        raise InvalidArgument(text, f"It has one agent, which you name, and a task of at most {MAX_SUBTASK:,}.")
    if asked.planner == NO_PLANNER and len(asked.checks) > 1:
        raise InvalidArgument(f"{len(asked.checks)} checks for a run of one item.", "Name one check.")
    checks = named_scorers(asked.checks, host.scorers)
    if checks and host.working_sandbox is None:
        hint = "`evolvable doctor` says what is missing. Without checks the run can be started."
        raise Refused("Checks run in a sandbox, and this machine has none that works.", hint)
    named = {"planner": asked.planner, "executor": asked.executor, "agents": agents}
    planner = open_planner(named, host, library.store.home, lambda _: None)
    if asked.improver:
        _check_improver(asked)
        open_model(asked.improver, named, host, library.store.home)
    memory = [str(library.store.head(ref, caller.scopes).ref) for ref in asked.memory]
    with _turn(library.store.home):
        limit = asked.limit if caller.decides else _allowed(library.store.home, asked, allowance)
        folder = create_run(library.store.home, library.store.clock(), AGS_DIR)
        label = str(asked.executor.get("name") or asked.executor.get("model") or asked.executor["kind"])
        settings = {
            "task": task,
            "executor": dict(asked.executor),
            "planner": asked.planner,
            "agents": agents,
            "memory": memory,
            "limit": asdict(limit),
            "concurrency": asked.concurrency,
            "seconds": asked.seconds,
            "scopes": list(caller.scopes),
            "principal": str(caller.identity.principal),
            **({"checks": {name: one.to_json() for name, one in checks.items()}} if checks else {}),
            **({"improver": asked.improver} if asked.improver else {}),
        }
        with Ledger.open(folder.ledger) as ledger:
            ledger.append("run", {"run": folder.id, "label": label, "settings": settings})
    shown = {name: value for name, value in asdict(limit).items() if value is not None}
    return StartedAgs(folder.id, label, planner.name, agents, str(plan_ref(folder.id)), shown, warnings)


def _check_improver(asked: AgsRequest) -> None:
    """Raise InvalidArgument where improving the program has nothing to go by."""
    if not asked.checks:
        hint = "Name a check by --check: the checks of items say whether a change is better."
        raise InvalidArgument("A run without checks cannot improve its program.", hint)
    if asked.planner == NO_PLANNER:
        hint = "A run without a planner has one item, and ends with it."
        raise InvalidArgument("A run without a planner cannot improve its program.", hint)


def _offered(library: Library, caller: Caller, asked: AgsRequest) -> tuple[list[str], list[str]]:
    """Return the refs of the agents of a run, and what is to be said of others. Raises Refused, InvalidArgument."""
    found, warnings = list[str](), list[str]()
    named = [str(ref) for ref in asked.agents]
    if not named:
        heads = [one for one in library.store.heads(Kind.AGENT) if one.version and one.scope in caller.scopes]
        whose = authorships(library, [one.id for one in heads])
        named = [str(one.ref) for one in heads if whose[one.id].stands or whose[one.id].kind is AuthorKind.YOU]
    for text in dict.fromkeys(named):
        try:
            head, main = open_agent(library, caller, text)
            worker_tools(asked.executor, str(head.ref), main)
        except EvolvableError as error:
            if asked.agents:
                raise
            warnings.append(f"{text} is left out: {error.text}")
            continue
        found.append(str(head.ref))
    if not 1 <= len(found) <= MAX_AGENTS:
        raise InvalidArgument(
            f"{len(found)} agents can do the work.", f"Name 1 to {MAX_AGENTS} agents that are trusted."
        )
    return list(dict.fromkeys(found)), warnings


@contextlib.contextmanager
def _turn(home: Path) -> Iterator[None]:
    """Let one start at a time read what the day has spent."""
    (home / AGS_DIR).mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(home / AGS_DIR / "start.lock", timeout=_LOCK_TIMEOUT):
        yield


def _allowed(home: Path, asked: AgsRequest, allowance: Allowance | None) -> SpendLimit:
    """Return what a run of a caller that is no person may spend. Raises Refused."""
    if allowance is None:
        hint = "A person writes executors and a budget into budgets.ags of their configuration; see docs/ags.md."
        raise Refused("Only a person starts agents here: no budget is set for other callers.", hint)
    name = executor_text(asked.executor)
    if name not in allowance.executors:
        listed = ", ".join(allowance.executors) or "none"
        raise Refused(f"The executor {ascii(name[:80])} is not allowed to callers.", f"Allowed: {listed}.")
    if asked.planner not in ("handoff", NO_PLANNER, allowance.planner):
        hint = "handoff: you plan; none: one agent does the task."
        raise Refused(f"The planner {ascii(asked.planner[:80])} is not allowed to callers.", hint)
    if asked.improver not in ("", allowance.planner):
        raise Refused(f"The improver {ascii(asked.improver[:80])} is not allowed to callers.", "Leave it out.")
    return allowance.rest(asked.limit, _day_spent(home))


def _day_spent(home: Path) -> dict[str, float]:
    """Return what runs of callers that are no person spent in the last day, or may still spend."""
    total = dict.fromkeys(("cost", "tokens", "calls", "wall", "unpriced"), 0.0)
    for folder in iter_runs(home, AGS_DIR):
        records = read_ledger(folder.ledger)
        if time.time() - folder.ledger.stat().st_ctime > _DAY:
            continue
        state = fold_bus(records)
        if state.settings["principal"] == Principal.PERSON:
            continue
        budget = RunBudget()
        budget.replay(spending_records(records))
        bill = budget.bill + budget.interrupted
        used = {
            "cost": bill.cost,
            "tokens": bill.tokens,
            "calls": bill.calls,
            "wall": budget.elapsed,
            "unpriced": bill.unpriced,
        }
        limit = state.settings["limit"]
        for name in total:
            reserved = limit.get(name) if not state.ended else None
            total[name] += max(used[name], reserved or 0.0)
    return total


def executor_text(spec: Mapping[str, Any]) -> str:
    """Return the text that names an executor."""
    return str(spec.get("name") or f"{spec.get('kind')}:{spec.get('model')}")
