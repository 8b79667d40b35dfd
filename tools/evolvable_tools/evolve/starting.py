"""The verb that begins a run: everything is checked before anything is spent."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.frontmatter import parse_document
from evolvable_store.resource import Kind, Ref
from evolvable_tools.evolve.judging import family_warning, who_judges
from evolvable_tools.evolve.ledger import Ledger
from evolvable_tools.evolve.means import EvolveMeans, check_there, executor_of
from evolvable_tools.evolve.operators import MODES
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.programs import size_of, taken
from evolvable_tools.evolve.run_folder import EVOLVE, RunFolder, new_run, the_run
from evolvable_tools.evolve.run_settings import Limit, RunSettings
from evolvable_tools.evolve.task import Split, TaskSet
from evolvable_tools.evolve.tasksets import InvalidTaskSet, Looks, TaskSetCheck, check, scorer_files, taskset_of
from evolvable_tools.evolve.tasksets.places import refuse_unvouched
from evolvable_tools.evolve.tasksets.reading import ABOUT
from evolvable_tools.evolve.tasksets.registered import registered_scorers
from evolvable_tools.evolve.tasksets.remarks import Level
from evolvable_tools.library import Caller, Library


@dataclass(frozen=True)
class Started:
    """A run that was begun. sizes: tasks of each split. warnings: what the check of the task set says besides.

    judge: who scores the tasks that need one, '' where none does.
    """

    run: str
    label: str
    brain: str
    base: list[str]
    sizes: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    judge: str = ""


def start(
    library: Library,
    caller: Caller,
    means: EvolveMeans,
    task_set: Ref,
    program: Sequence[Ref],
    executor: Mapping[str, Any],
    options: Mapping[str, Any],
    merge: Sequence[str] = (),
) -> Started:
    """Checks the task set, takes the program as it is now, and makes the run; somebody has to drive it then.

    executor: its kind and what that needs. options: settings of the run by name (see RunSettings). merge: runs whose
    finalists are tried as one. Raises NoSuchResource, InvalidTaskSet, InvalidArgument, NoSuchRun, ClientTrouble.
    """
    taskset, version = taskset_of(library, caller, task_set)
    refuse_unvouched(library, caller, task_set, taskset)
    registered = registered_scorers(taskset.tasks, means.scorers)
    looks = Looks(library.store.home / EVOLVE / "looks.jsonl").of(taskset.test_digest)
    checking = check(
        taskset,
        looks=len(looks),
        environment=means.environment,
        sandbox=means.apart,
        registered=registered,
        hidden=means.hidden,
    )
    checked = asyncio.run(checking)
    if not checked.passes:
        refused = [one.text.rstrip(".") for one in checked.remarks if one.level is Level.REFUSE]
        raise InvalidTaskSet(taskset.name, refused)
    base, pins = taken(library, caller, program)
    given = _settings(options)
    settings = replace(
        given,
        task_set=str(library.store.head(task_set.at(None), caller.scopes).ref),
        task_set_version=version,
        task_set_digest=taskset.digest,
        test_digest=taskset.test_digest,
        program=tuple(pins),
        executor=with_helpers(executor, taskset),
        judge=who_judges(given, taskset),
        scorers={name: one.to_json() for name, one in registered.items()},
    )
    _check_program(settings, base)
    check_there(settings, means, taskset.files)
    finalists = [_finalist(library, run) for run in merge]
    folder = new_run(library.store.home, library.store.clock())
    try:
        label = _begin(folder, settings, taskset, base, means, finalists, exploratory=checked.exploratory)
    except EvolvableError:
        shutil.rmtree(folder.path, ignore_errors=True)  # nothing was begun
        raise
    sizes = {split.value: len(taskset.of(split)) for split in Split}
    return Started(
        folder.id,
        label,
        settings.brain,
        [f"{pin.ref}@{pin.version}" for pin in pins],
        sizes,
        [*_told(checked), *filter(None, [family_warning(settings, settings.judge, label)])],
        settings.judge,
    )


def with_helpers(executor: Mapping[str, Any], taskset: TaskSet) -> dict[str, Any]:
    """Return the executor with the files that ENVIRONMENT.md names as `runner-files`: its command sees them too.

    Raises InvalidTaskSet for a name that is no such file, or one that says what a task expects.
    """
    about = taskset.files.get(ABOUT)
    said = parse_document(about).fields.get("runner-files") if about is not None else None
    if said is None:
        return dict(executor)
    may = scorer_files(taskset)
    if not isinstance(said, list) or not all(isinstance(path, str) and path in may for path in said):
        raise InvalidTaskSet(taskset.name, [f"runner-files of {ABOUT} is a list of files beside it, without the tasks"])
    return {**executor, "helpers": list(said)}


def _settings(options: Mapping[str, Any]) -> RunSettings:
    limit = Limit(**{name: options[name] for name in ("cost", "tokens", "calls", "wall") if name in options})
    rest = {name: value for name, value in options.items() if name not in ("cost", "tokens", "calls", "wall")}
    try:
        return RunSettings("", limit=limit, **rest)
    except TypeError:
        raise InvalidArgument(f"One of {', '.join(rest)} is no setting of a run.", "See docs/evolve.md.") from None


def _check_program(settings: RunSettings, base: Program) -> None:
    kinds = MODES[settings.mode]
    if base.parts and not any(part.kind in kinds for part in base.parts):
        named = ", ".join(part.ref for part in base.parts)
        raise InvalidArgument(
            f"Nothing of {named} may change in mode {settings.mode}.", f"The modes are {', '.join(MODES)}."
        )
    if any(part.kind is Kind.ENVIRONMENT for part in base.parts):
        raise InvalidArgument("An environment is no part of a program.", "It holds the tasks and what judges them.")


def _finalist(library: Library, run: str) -> tuple[str, Program, float]:
    from evolvable_tools.evolve.driving import state_of

    folder = the_run(library.store.home, run)
    state = state_of(folder)
    digest = state.verdict.get("candidate") or (state.best if state.best != state.base else "")
    if not digest:
        raise InvalidArgument(f"Run {folder.id} found nothing that could be merged.", "Merge runs with a finalist.")
    return folder.id, folder.program(digest), state.candidates[digest].mean or 0.0


def _begin(
    folder: RunFolder,
    settings: RunSettings,
    taskset: TaskSet,
    base: Program,
    means: EvolveMeans,
    finalists: Sequence[tuple[str, Program, float]],
    exploratory: bool,
) -> str:
    executor = executor_of(settings.executor, means, taskset.tasks, scorer_files(taskset), folder.path / "executor")
    best_first = sorted(finalists, key=lambda one: -one[2])
    for program in (base, *(program for _, program, _ in best_first)):
        folder.keep_program(program)
    open_ones = [task for task in taskset.tasks if task.split is not Split.TEST]
    with Ledger.open(folder.ledger) as ledger:
        ledger.append(
            "run",
            {
                "run": folder.id,
                "label": executor.label,
                "fingerprint": executor.fingerprint,
                "settings": settings.to_json(),
                "tasks": [[task.id, task.split, task.category] for task in open_ones],
                "test_tasks": len(taskset.of(Split.TEST)),
                "exploratory": exploratory,
                "base": base.digest,
                "size": size_of(base),
                "merged": [[run, program.digest] for run, program, _ in best_first],
            },
        )
    return executor.label


def _told(checked: TaskSetCheck) -> list[str]:
    return [f"{one.text} {one.hint}".strip() for one in checked.remarks if one.level is Level.WARN]
