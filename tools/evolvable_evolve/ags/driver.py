"""The parts of a run of agents: its planner, executor and budget, and the resource of its plan."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import Timeout

from evolvable_evolve.ags.bus import AgsState, Bus, spending_records
from evolvable_evolve.ags.engine import AgsRun, drive_until_stopped
from evolvable_evolve.ags.improver import ProgramImprover, improvement_limit
from evolvable_evolve.ags.item_evidence import record_items
from evolvable_evolve.ags.item_judge import ItemJudge
from evolvable_evolve.ags.plan import FILE, Plan, render_plan
from evolvable_evolve.ags.planner import NO_PLANNER, SingleItemPlan
from evolvable_evolve.ags.workers import Workers, worker_author
from evolvable_evolve.contracts import contract_of
from evolvable_evolve.evolution import (
    AGS_DIR,
    JUDGE_ROLES,
    PROPOSER_ROLES,
    AsyncioBackend,
    ConcurrencyLimit,
    HandOffModel,
    HostContext,
    Ledger,
    LedgerBusy,
    LedgerRecord,
    NeedsAnswer,
    ProcessBackend,
    ProposerModel,
    RegisteredScorer,
    RunBudget,
    RunDirectory,
    RunStopped,
    SpendLimit,
    TrialBackend,
    check_named_executor,
    executor_kind,
    named_model,
    named_scorers,
    parse_price,
    refuse_changed,
)
from evolvable_evolve.sandbox import Bubblewrap
from evolvable_store import Head
from evolvable_store.errors import (
    AlreadyExists,
    EvolvableError,
    InvalidArgument,
    Refused,
    Unsafe,
    VersionConflict,
)
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import update_resource

_LOCK_TIMEOUT = 15.0  # seconds to wait for the end of an earlier driver


def plan_ref(run: str) -> Ref:
    """Return the resource that holds the plan of a run."""
    return Ref(Kind.ENVIRONMENT, f"{AGS_DIR}-{run}", USER_SCOPE)


def check_executor(spec: Mapping[str, Any], host: HostContext) -> None:
    """Raise InvalidArgument or Refused for an executor that cannot do the work of agents here.

    It is unknown, not named by a person, or not confined.
    """
    kind = executor_kind(spec)
    if not kind.target or spec.get("kind") == "simulated":
        raise InvalidArgument(
            "That is no executor of agents.",
            "claude:MODEL, codex:MODEL, anthropic:MODEL, or a name.",
        )
    if kind.uses_taskset_files:
        check_named_executor(spec, host)
    if kind.runs_commands and host.working_sandbox is None:
        hint = "`evolvable doctor` says what is missing. anthropic:MODEL runs no command."
        raise Refused("Agents work in a sandbox, and this machine has none that works.", hint)


def open_planner(
    settings: Mapping[str, Any], host: HostContext, home: Path, answer: Callable[[str], Any]
) -> ProposerModel:
    """Return the planner that the settings of a run name.

    Raises InvalidArgument, Refused for a command that the person did not name.
    """
    planner_name = settings["planner"]
    kind, _, model = planner_name.partition(":")
    if planner_name == NO_PLANNER:
        check = next(iter(settings.get("checks", ())), "")
        return SingleItemPlan(settings["agents"][0], check)
    if kind == "handoff":
        return HandOffModel(answer, model)
    return open_model(planner_name, settings, host, home)


def open_model(
    model_name: str,
    settings: Mapping[str, Any],
    host: HostContext,
    home: Path,
    roles: Sequence[str] = PROPOSER_ROLES,
) -> ProposerModel:
    """Return a model that a run asks: its planner, its improver or its judge.

    Raises InvalidArgument for a hand-off too, Refused for a command that the person did not name.
    """
    (kind, _, model), executor = model_name.partition(":"), settings["executor"]
    opened = named_model(model_name, host, home, roles)
    if kind == "anthropic" and not host.key:
        raise InvalidArgument(
            "There is no key for the Anthropic API, which is to answer.", "Set ANTHROPIC_API_KEY."
        )
    price = parse_price(executor) if model else None
    return replace(opened, scripted=bool(executor.get("scripted")), price=price)


def open_judge(
    judge_name: str, settings: Mapping[str, Any], host: HostContext, home: Path
) -> ProposerModel:
    """Return the judge of a run. Raises as `open_model`."""
    return open_model(judge_name, settings, host, home, JUDGE_ROLES)


async def drive_ags(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    host: HostContext,
    stop: Callable[[], bool] = lambda: False,
) -> AgsState:
    """Drive a run to its end, a stop, or a question to the person, and return its state.

    Raises LedgerBusy when another process drives it, LedgerDamaged.
    """
    lock = folder.driver_lock()
    try:
        await asyncio.to_thread(lock.acquire, timeout=_LOCK_TIMEOUT)
    except Timeout:
        raise LedgerBusy(
            f"Run {folder.id} is driven already.", "`evolvable lab ags status` shows it."
        ) from None
    folder.mark_driver_starting(False)

    def must_stop() -> bool:
        return stop() or folder.is_stop_requested

    try:
        with Ledger.open(folder.ledger) as ledger:
            bus = Bus(ledger)
            await _drive(library, caller, folder, host, ledger, bus, must_stop)
            return bus.state
    finally:
        lock.release()


async def _drive(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    host: HostContext,
    ledger: Ledger,
    bus: Bus,
    stop: Callable[[], bool],
) -> None:
    if bus.state.messages:
        # It reopens the items that were under way when an earlier process ended.
        bus.note("continued")
    backend: TrialBackend | None = None
    try:
        run = open_run(library, caller, folder, host, ledger, bus, stop)
        backend = run.backend
        # The process before this one may have ended right after a message.
        keep_evidence(library, ledger.records)
        await drive_until_stopped(run)
    except NeedsAnswer:
        return
    except RunStopped:
        bus.note("stopped", why="a stop was requested", trouble=False)
    except EvolvableError as error:
        bus.note("stopped", why=library.redact(error.text), trouble=True)
    except Exception as error:
        # A defect of the program: the status says so, and the process fails.
        bus.note("stopped", why=f"it failed: {type(error).__name__}", trouble=True)
        raise
    finally:
        if backend is not None:
            await backend.close()


def open_run(
    library: Library,
    caller: Caller,
    folder: RunDirectory,
    host: HostContext,
    ledger: Ledger,
    bus: Bus,
    stop: Callable[[], bool],
) -> AgsRun:
    """Return the collaborators of a run.

    Raises Refused for a command that the person did not name.
    """
    settings = bus.state.settings
    run_caller = replace(caller, scopes=tuple(settings["scopes"]))
    check_executor(settings["executor"], host)
    workers = Workers(
        library,
        run_caller,
        host,
        folder,
        settings["executor"],
        agents=settings["agents"],
        memory=settings["memory"],
        seconds=settings["seconds"],
        checks=_find_checks(settings, host),
        committed=lambda: bus.state.committed,
    )
    budget = RunBudget(SpendLimit(**settings["limit"]))
    budget.replay(spending_records(ledger.records))
    run = AgsRun(
        folder=folder,
        bus=bus,
        planner=open_planner(settings, host, library.store.home, folder.answer),
        workers=workers,
        backend=_open_backend(workers, host),
        budget=budget,
        throttle=ConcurrencyLimit(settings["concurrency"], most=settings["concurrency"]),
        contracts=lambda: _describe_agents(library, run_caller, settings["agents"]),
        publish=lambda plan: publish_plan(library, run_caller, plan),
        redactor=library.redactor(),
        stop=stop,
        record=lambda item: keep_evidence(library, ledger.records, item),
    )
    if judge_name := settings.get("judge"):
        add_judge(run, open_judge(judge_name, settings, host, library.store.home))
    if improver_name := settings.get("improver"):
        model = open_model(improver_name, settings, host, library.store.home)
        run.improver = open_improver(run, model, ledger.records)
    return run


def _describe_agents(library: Library, caller: Caller, agents: Sequence[str]) -> str:
    """Return the contract of the agents that are not removed."""
    heads = [library.store.head_or_none(Ref.parse(ref), caller.scopes) for ref in agents]
    present = [head for head in heads if head is not None and head.version is not None]
    return contract_of(library, present)


def add_judge(run: AgsRun, model: ProposerModel) -> None:
    """Give a run the judge of its items."""
    run.judge = ItemJudge(model=model, **run.as_arguments())


def open_improver(
    run: AgsRun, model: ProposerModel, records: Iterable[LedgerRecord]
) -> ProgramImprover:
    """Return the improver of a run's program.

    records: of the run so far, from which its spending is read.
    """
    share = RunBudget(improvement_limit(SpendLimit(**run.state.settings["limit"])))
    own_records = [record for record in records if "improve" in record.get("body", {})]
    # From the ledger, so that a resumed run does not get its share again.
    share.replay(spending_records(own_records))
    return ProgramImprover(
        model=model,
        backend=run.backend,
        share=share,
        throttle=run.throttle,
        judge=run.judge,
        **run.as_arguments(),
    )


def _find_checks(settings: Mapping[str, Any], host: HostContext) -> dict[str, RegisteredScorer]:
    """Return the checks of a run.

    Raises Refused for one that is another command now than when the run began.
    """
    recorded = settings.get("checks", {})
    checks = named_scorers(recorded, host.scorers)
    # With other commands the results of one run could not be compared.
    refuse_changed(checks, recorded)
    return checks


def keep_evidence(
    library: Library, records: Iterable[LedgerRecord], item: str | None = None
) -> str:
    """Record ended items of a run as evidence; return the error, '' without one.

    An error does not stop the run.
    """
    try:
        record_items(library, records, item)
    except EvolvableError as error:
        return error.text
    return ""


def _open_backend(workers: Workers, host: HostContext) -> TrialBackend:
    """Return the backend of the jobs, in this process where all their commands end with it.

    A process of its own for each job takes a second to start, and tens of megabytes.
    """
    # bubblewrap has --die-with-parent; a container goes on when its client is killed.
    is_safe = not workers.starts_commands or isinstance(host.working_sandbox, Bubblewrap)
    return AsyncioBackend() if is_safe else ProcessBackend()


def _find_last_own(library: Library, head: Head, reason: str) -> int:
    """Return the run's last version of a plan before another author's first one, 0 for none."""
    oldest_first = reversed(library.store.history(head, head.latest))
    own = takewhile(lambda entry: entry.operation.reason == reason, oldest_first)
    return max((entry.version.number for entry in own), default=0)


def publish_plan(library: Library, caller: Caller, plan: Plan) -> str:
    """Write a plan as a version of its resource; return why it is not live, '' when it is."""
    ref, text = plan_ref(plan.run), render_plan(plan)
    author = replace(worker_author(caller), conversation=str(ref))
    reason = f"plan of run {plan.run}"
    about = (
        f"---\nname: {ref.name}\ndescription: The plan of run {plan.run} of agents, in plan.md.\n"
        "---\n\nSee plan.md.\n"
    )
    head, files = library.store.head_or_none(ref), {FILE: text}
    if head is None:
        files["ENVIRONMENT.md"] = about
    # A resumed run is a new reader: the version that the run itself wrote last counts as read, a
    # person's change after it does not.
    elif FILE not in library.served_texts.files_of(author.reader, str(head.ref)):
        version = _find_last_own(library, head, reason)
        library.served_texts.note(author.reader, str(head.ref), FILE, version)
    try:
        updated = update_resource(library, author, ref, reason, files=files, create=head is None)
    except (Unsafe, AlreadyExists, VersionConflict, InvalidArgument) as error:
        return f"the plan is not kept as a version: {error.text}"
    if updated.proposal_id is None:
        return ""
    return f"the plan waits for a person as proposal {updated.proposal_id}"
