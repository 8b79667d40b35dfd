"""Backends: wherever attempts run, the same comes of them, and nobody is left behind."""

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trial_children
from processes import poll
from ray_nodes import ray_nodes
from trial_parts import BASE, ByFirstWord, Scripted, program, task, tasks

from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.evolution.run_config import RayCluster
from evolvable_evolve.evolution.task import Task, Trial, TrialOutcome
from evolvable_evolve.evolution.trials.backends import ProcessBackend
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings
from evolvable_evolve.evolution.trials.ray_backend import RayBackend, RayMissing
from evolvable_evolve.evolution.trials.trial import (
    AsyncioBackend,
    FinishedJob,
    TrialBackend,
    TrialJob,
)

NO_RAY = importlib.util.find_spec("ray") is None
ON_RAY = pytest.param(
    "ray",
    marks=[
        pytest.mark.skipif(
            NO_RAY, reason="Ray is not installed: pip install '.[ray]' in your clone"
        ),
        pytest.mark.nightly,  # two nodes take ten seconds of processor time to start
    ],
)
BACKENDS = ["tasks", "processes", ON_RAY]
OTHER_PROCESSES = ["processes", ON_RAY]
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One cluster of two nodes for all tests."""
    with ray_nodes(4, 4) as nodes:
        yield nodes.cluster


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[[], TrialBackend]:
    """Makes the backend that the test is about."""
    if request.param == "ray":
        return partial(RayBackend, request.getfixturevalue("cluster"))
    return {"tasks": AsyncioBackend, "processes": ProcessBackend}[request.param]


def with_backend(
    make: Callable[[], TrialBackend], use: Callable[[TrialBackend], Awaitable[Any]]
) -> Any:
    """Returns what `use` returns of a backend, which is closed afterwards."""

    async def work() -> Any:
        backend = make()
        try:
            async with asyncio.timeout(TIMEOUT):
                return await use(backend)
        finally:
            await backend.close()

    return asyncio.run(work())


def measured(
    make: Callable[[], TrialBackend],
    folder: Path,
    todo: list[Task],
    budget: RunBudget | None = None,
) -> tuple[list[Trial], list[Any]]:
    """Returns the trials of these tasks under two programs, and the ledger's records."""
    folder.mkdir(exist_ok=True)
    requests = [(arm, one, 0) for arm in (BASE, program("changed")) for one in todo]
    settings = TrialSettings(folder=folder / "workspaces", backoff=(0.0, 0.0), patience=5.0)

    async def use(backend: TrialBackend) -> list[Trial]:
        with Ledger.open(folder / "ledger.jsonl", durable=False) as ledger:
            trials = TrialRunner(
                Scripted(folder, retry_after=0.01),
                ledger,
                scoring=ByFirstWord(),
                backend=backend,
                settings=settings,
                budget=budget,
            )
            return await trials.measure(requests, "val")

    return with_backend(make, use), read_ledger(folder / "ledger.jsonl")


def report(trials: list[Trial], records: list[Any]) -> bytes:
    """Returns what a report is made of: all but the order and the times of what happened."""
    about = sorted(
        json.dumps(
            {
                name: value
                for name, value in record.items()
                if name not in ("at", "elapsed", "in_flight")
            }
        )
        for record in records
        if record["type"] == "trial"
    )
    return "\n".join([*map(repr, trials), *about]).encode()


async def all_done(backend: TrialBackend, count: int) -> dict[str, Any]:
    done: list[FinishedJob] = []
    while len(done) < count:
        done += await backend.poll(TIMEOUT)
    assert len(done) == count
    return dict(done)


def job(folder: Path, one: Task) -> TrialJob:
    return TrialJob(
        Scripted(folder),
        ByFirstWord(),
        one,
        BASE,
        0,
        {"in/a.txt": b"a"},
        place=folder / "workspaces",
    )


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return sys.platform == "linux" and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.mark.process
@pytest.mark.parametrize("make", OTHER_PROCESSES, indirect=True)
def test_every_backend_gives_the_same_report_byte_for_byte(
    make: Callable[[], TrialBackend], tmp_path: Path
) -> None:
    prompts = ("pass", "fail", "timeout", "refuse", "trouble", "raise", "busy")
    todo = [task(f"{prompt} {number}", prompt) for prompt in prompts for number in range(2)] + [
        task("unscorable")
    ]
    here = measured(AsyncioBackend, tmp_path / "here", todo)
    there = measured(make, tmp_path / "there", todo)
    assert report(*there) == report(*here)


@pytest.mark.process
@pytest.mark.parametrize("make", BACKENDS, indirect=True)
def test_every_job_comes_back_once_and_polling_does_not_wait_longer_than_it_may(
    make: Callable[[], TrialBackend], tmp_path: Path
) -> None:
    async def use(backend: TrialBackend) -> None:
        assert await backend.poll(TIMEOUT) == []
        tickets = [backend.submit(job(tmp_path, one)) for one in tasks(5)]
        found = await all_done(backend, 5)
        assert sorted(found) == sorted(tickets)
        assert found[tickets[0]].rollout.output == "pass t0 e3b0c442 0 in in/a.txt"
        backend.submit(job(tmp_path, task("h", "hang")))
        assert await backend.poll(0.05) == []

    with_backend(make, use)


@pytest.mark.process
@pytest.mark.parametrize("make", BACKENDS, indirect=True)
def test_a_cancelled_job_ends_and_leaves_no_workspace(
    make: Callable[[], TrialBackend], tmp_path: Path
) -> None:
    async def use(backend: TrialBackend) -> None:
        ticket = backend.submit(job(tmp_path, task("h", "hang")))
        other = backend.submit(job(tmp_path, task("k", "hang")))
        while not all((tmp_path / f"hanging {name}").exists() for name in "hk"):
            assert await backend.poll(0.05) == []
        await backend.cancel([ticket, "unknown"])
        assert await backend.poll(0.05) == []
        backend.submit(job(tmp_path, task("p")))
        (found,) = (await all_done(backend, 1)).values()
        assert found.score.value == 1.0
        await backend.cancel([other])
        assert await backend.poll(0.05) == []

    with_backend(make, use)
    left = tmp_path / "workspaces"  # on Ray they are made in the worker's own folder
    assert not left.exists() or list(left.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("make", OTHER_PROCESSES, indirect=True)
def test_a_worker_that_dies_takes_no_other_job_along_and_is_run_again_by_nobody_else(
    make: Callable[[], TrialBackend], tmp_path: Path
) -> None:
    budget = RunBudget()
    todo = [task("dies", "once die"), *tasks(6)]
    trials, records = measured(make, tmp_path, todo, budget)
    assert {trial.outcome for trial in trials} == {TrialOutcome.PASS}
    failed = [record for record in records if record["type"] == "trial" and record["lost"]]
    assert [record["trial"]["task"] for record in failed] == ["dies"]
    assert failed[0]["trial"]["detail"].startswith("the worker died")
    assert sum(record["type"] == "started" for record in records) == 15, (
        "the ledger knows of every run"
    )
    assert budget.bill.calls == 14 * 2


@pytest.mark.parametrize("make", OTHER_PROCESSES, indirect=True)
@pytest.mark.process
def test_a_worker_that_is_killed_from_outside_is_an_infrastructure_error(
    make: Callable[[], TrialBackend], tmp_path: Path
) -> None:
    async def use(backend: TrialBackend) -> None:
        backend.submit(job(tmp_path, task("c", "compute")))
        note = tmp_path / "hanging c"
        while not (note.exists() and note.read_text()):
            assert await backend.poll(0.05) == []
        os.kill(int(note.read_text()), signal.SIGKILL)
        (found,) = (await all_done(backend, 1)).values()
        assert (found.outcome, found.lost) == (TrialOutcome.INFRA_ERROR, True)

    with_backend(make, use)


@pytest.mark.process
def test_a_job_that_awaits_nothing_is_killed_when_it_is_cancelled(tmp_path: Path) -> None:
    async def use(backend: TrialBackend) -> int:
        ticket = backend.submit(job(tmp_path, task("c", "compute")))
        note = tmp_path / "hanging c"
        while not (note.exists() and note.read_text()):
            assert await backend.poll(0.05) == []
        await backend.cancel([ticket])
        return int(note.read_text())

    assert gone(with_backend(lambda: ProcessBackend(grace=0.1), use))


@pytest.mark.process
def test_what_cannot_be_sent_to_a_process_is_said_at_once(tmp_path: Path) -> None:
    class Local(Scripted):
        pass

    async def use(backend: TrialBackend) -> None:
        with pytest.raises(AttributeError, match="Local"):
            backend.submit(TrialJob(Local(tmp_path), ByFirstWord(), task("a"), BASE, 0))
        backend.submit(job(tmp_path, task("b")))
        (found,) = (await all_done(backend, 1)).values()
        assert found.score.value == 1.0

    with_backend(ProcessBackend, use)


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signals")
def test_when_the_run_is_killed_its_workers_end_what_they_have_started(tmp_path: Path) -> None:
    command = [sys.executable, trial_children.__file__, str(tmp_path), "hang"]
    with subprocess.Popen(command) as driver:
        note = tmp_path / "command"
        poll(lambda: note.exists() and note.read_text(), "the command to run")
        driver.kill()
    poll(lambda: gone(int(note.read_text())), "the command to end")
    poll(lambda: not list((tmp_path / "workspaces").iterdir()), "the workspace to be removed")


@pytest.mark.skipif(not NO_RAY, reason="Ray is installed")
def test_without_ray_the_extra_is_named() -> None:
    with pytest.raises(RayMissing, match="Ray is not installed") as raised:
        with_backend(lambda: RayBackend(RayCluster()), lambda backend: backend.open())  # type: ignore[attr-defined]
    assert "'.[ray]'" in raised.value.hint
