"""Trials of skills that wait in the inbox: an agent asked for them, and only a person
begins one.
"""

from collections.abc import Sequence
from functools import partial

from evolvable_evolve.evolution import (
    RunDirectory,
    RunState,
    check_runnable,
    iter_run_states,
    remove_run,
    resume_run,
)
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server import Config
from evolvable_server.plugins import WaitingRun
from evolvable_tools import Library
from evolvable_tools.llm import printable_line

_MAX_LINE = 600  # characters
_LIMITS = {
    "cost": "${:g}",
    "tokens": "{:,.0f} tokens",
    "calls": "{:,.0f} calls of models",
    "wall": "{:,.0f} seconds",
}


def list_waiting_tries(library: Library) -> list[WaitingRun]:
    """Return the trials that wait for a person, the oldest first."""
    waiting = [
        (folder, state)
        for folder, state in iter_run_states(library.store.home)
        if _is_waiting(state)
    ]
    return [
        WaitingRun(
            folder.id,
            describe_waiting_try(state),
            f"evolvable evolve continue {folder.id}",
            partial(begin_waiting_try, folder),
            partial(_remove, library, folder),
        )
        for folder, state in reversed(waiting)
    ]


def find_waiting_try(library: Library, run: str) -> WaitingRun | None:
    """Return the trial of this id where it waits for a person, None for any other run."""
    waiting = (waiting_try for waiting_try in list_waiting_tries(library) if waiting_try.run == run)
    return next(waiting, None)


def _is_waiting(state: RunState) -> bool:
    return bool(state.about.get("waits")) and not state.preflight


def describe_waiting_try(state: RunState) -> str:
    """Return the tasks, the executor and the limits of a trial, as lines."""
    skills = ", ".join(str(pin.get("ref")) for pin in state.settings.get("program", ()))
    tasks, repeats = len(state.tasks), state.settings.get("test_repeats") or 1
    executor = state.settings.get("executor", {})
    kind_and_model = filter(None, (executor.get("kind"), executor.get("model")))
    executor_name = executor.get("name") or ":".join(kind_and_model)
    command = ""
    if executor.get("command"):
        command = f", the command {' '.join(map(str, executor['command']))}"
    limit = state.settings.get("limit", {})
    spends = [
        text.format(limit[name]) for name, text in _LIMITS.items() if limit.get(name) is not None
    ]
    limits = "There is no limit on what it may spend."
    if spends:
        limits = f"It may spend {', '.join(spends)}."
    lines = [
        f"Try {skills} on {tasks} tasks from {state.about.get('source')}, with it and without, up "
        f"to {repeats} times each.",
        f"The tasks are done by {executor_name}{command}, with your rights.",
        limits,
    ]
    judge = state.settings.get("judge")
    lines += [f"Answers are compared by {judge}."] if judge and judge != "handoff" else []
    # Names and models come from a caller, and are shown where a person decides.
    return "\n".join(printable_line(line)[:_MAX_LINE] for line in lines)


def begin_waiting_try(folder: RunDirectory, config: Config) -> Sequence[str]:
    """Begin a trial in a process of its own, after a person said yes. Raises EvolvableError."""
    check_runnable(folder, evolve_context(config, person=True))
    resume_run(config.home, folder.id)
    start_driver(config.home, folder)
    report = (
        f"`evolvable evolve status {folder.id}` shows how far it is, `evolvable evolve report "
        f"{folder.id}` its answer."
    )
    return [f"Run {folder.id} has begun.", report]


def _remove(library: Library, folder: RunDirectory) -> Sequence[str]:
    remove_run(library, folder.id)
    return [f"Run {folder.id} is removed. Nothing of it ran."]
