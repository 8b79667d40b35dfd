"""Runs on a Ray cluster: the same report, whatever dies; nothing left behind; no cluster without a
token. Nightly.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray_driver
from driving_place import PERSON, DrivingPlace, driving, letters
from processes import poll
from ray_nodes import RayNodes, ray_nodes
from trial_parts import BASE, ByFirstWord, Scripted, task, tasks

from evolvable_evolve.evolution.driver import drive_run
from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.evolution.report.render import write_report
from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_evolve.evolution.run_control import stop_run
from evolvable_evolve.evolution.task import Task, Trial, TrialOutcome
from evolvable_evolve.evolution.trials.backends import ProcessBackend
from evolvable_evolve.evolution.trials.budget import BudgetSpent, RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings
from evolvable_evolve.evolution.trials.ray_backend import RayBackend, RayUnavailable
from evolvable_evolve.evolution.trials.trial import TrialBackend, TrialJob
from evolvable_tools.library import Library

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="pip install '.[ray]' in your clone"
    ),
]
TIMEOUT = 600.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """Two nodes with four slots each."""
    with ray_nodes(4, 4) as found:
        yield found


def measure(
    make: Callable[[], TrialBackend], folder: Path, todo: list[Task], disturb: Callable[[], object]
) -> tuple[list[Trial], list[Any], RunBudget]:
    """Returns the trials of these tasks, the ledger's records and the budget.

    disturb: what happens meanwhile.
    """
    folder.mkdir(exist_ok=True)
    budget = RunBudget(SpendLimit(cost=100.0))

    async def use() -> list[Trial]:
        backend = make()
        settings = TrialSettings(folder=folder / "workspaces", backoff=(0.0, 0.0), patience=5.0)
        try:
            async with asyncio.timeout(TIMEOUT):
                with Ledger.open(folder / "ledger.jsonl", durable=False) as ledger:
                    trials = TrialRunner(
                        Scripted(folder),
                        ledger,
                        scoring=ByFirstWord(),
                        backend=backend,
                        settings=settings,
                        budget=budget,
                    )
                    disturbing = asyncio.create_task(asyncio.to_thread(disturb))
                    found = await trials.measure([(BASE, one, 0) for one in todo], "val")
                    await disturbing
                    return found
        finally:
            await backend.close()

    return asyncio.run(use()), read_ledger(folder / "ledger.jsonl"), budget


def report(trials: list[Trial], records: list[Any]) -> bytes:
    """Returns what a report is made of: all but the order, the times, and the words for a worker
    that is lost.
    """
    about = []
    for record in records:
        if record["type"] == "trial":
            said = {
                name: value
                for name, value in record.items()
                if name not in ("at", "elapsed", "in_flight")
            }
            if said["lost"]:
                assert said["trial"]["detail"].startswith("the worker died")
                said["trial"] = {**said["trial"], "detail": ""}
            about.append(json.dumps(said))
    return "\n".join([*map(repr, trials), *sorted(about)]).encode()


def pids_of(folder: Path, *names: str) -> list[int]:
    """Waits until these tasks hang, and returns the processes that they hang in."""
    notes = [folder / f"hanging {name}" for name in names]
    for note in notes:
        poll(lambda note=note: note.exists() and note.read_text(), f"{note.name}", 60)  # type: ignore[misc]
    return [int(note.read_text()) for note in notes]


HANGING = [task("h1", "once hang"), task("h2", "once hang"), *tasks(6)]


def killed_workers(folder: Path) -> Callable[[], None]:
    def kill() -> None:
        for pid in pids_of(folder, "h1", "h2"):
            os.kill(pid, signal.SIGKILL)

    return kill


def test_a_node_that_dies_in_mid_batch_changes_nothing_and_is_billed_once(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with ray_nodes(0, 4) as nodes:

        def kill_node() -> None:
            pids_of(there, "h1", "h2")
            nodes.start(4)
            nodes.kill(1)

        found = measure(lambda: RayBackend(nodes.cluster), there, HANGING, kill_node)
    expected = measure(ProcessBackend, here, HANGING, killed_workers(here))
    assert {trial.outcome for trial in found[0]} == {TrialOutcome.PASS}
    assert report(*found[:2]) == report(*expected[:2])
    assert sum(record["type"] == "trial" and record["lost"] for record in found[1]) == 2
    assert found[2].bill == expected[2].bill and found[2].interrupted == expected[2].interrupted


def test_workers_that_die_in_mid_batch_change_nothing_and_are_billed_once(
    nodes: RayNodes, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    found = measure(lambda: RayBackend(nodes.cluster), there, HANGING, killed_workers(there))
    expected = measure(ProcessBackend, here, HANGING, killed_workers(here))
    assert report(*found[:2]) == report(*expected[:2])
    assert found[2].bill == expected[2].bill


def test_when_the_process_that_speaks_with_the_cluster_dies_another_goes_on(
    nodes: RayNodes, tmp_path: Path
) -> None:
    backends: list[RayBackend] = []

    def make() -> RayBackend:
        backends.append(RayBackend(nodes.cluster))
        return backends[0]

    def kill() -> None:
        pids = pids_of(tmp_path, "h1", "h2")
        bridge = backends[0].pid
        assert bridge is not None
        os.kill(bridge, signal.SIGKILL)
        for pid in pids:  # Ray ends the workers of a driver that is gone
            poll(lambda pid=pid: not psutil.pid_exists(pid), "the worker to end", 60)  # type: ignore[misc]

    trials, records, budget = measure(make, tmp_path, HANGING, kill)
    assert {trial.outcome for trial in trials} == {TrialOutcome.PASS}
    assert budget.bill.calls == len(HANGING) * 2


def finished(place: DrivingPlace) -> tuple[str, Any]:
    """Returns the text and the values of the newest run's report, without ids and times."""
    made = write_report(place.folder)
    text = f"{made.text}\n{Path(made.json).read_text()}".replace(str(place.root), "ROOT")
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:[\d:.]+(?:\+00:00)?", "TIME", text)
    text = re.sub(r'"(\w*(?:wall|seconds|elapsed|_at|at))": [\d.e-]+', r'"\1": 0', text)
    return text, [(one["trial"]["key"], one["trial"]["outcome"]) for one in place.records("trial")]


def test_a_whole_run_on_a_cluster_has_the_report_of_one_in_processes(
    nodes: RayNodes, tmp_path: Path
) -> None:
    texts = []
    for backend in ("processes", f"ray:{nodes.address}"):
        with driving(tmp_path / backend.partition(":")[0]) as place:
            place.means = replace(place.means, cluster=nodes.cluster)
            place.save(letters())
            place.begin(backend=backend)
            assert not place.drive().stopped
            text, trials = finished(place)
            texts.append((text, sorted(trials)))
    assert texts[0][0].splitlines() == texts[1][0].splitlines()
    assert texts[0] == texts[1]


def test_a_budget_stops_trials_on_a_cluster_as_in_processes(
    nodes: RayNodes, tmp_path: Path
) -> None:
    first, *rest = tasks(20)
    makes: tuple[Callable[[], TrialBackend], ...] = (
        ProcessBackend,
        lambda: RayBackend(nodes.cluster),
    )
    found = []
    for number, make in enumerate(makes):
        folder, budget = tmp_path / str(number), RunBudget(SpendLimit(calls=15))

        async def use(
            make: Callable[[], TrialBackend] = make,
            folder: Path = folder,
            budget: RunBudget = budget,
        ) -> str:
            backend, settings = make(), TrialSettings(folder=folder / "workspaces")
            try:
                with Ledger.open(folder / "ledger.jsonl", durable=False) as ledger:
                    trials = TrialRunner(
                        Scripted(folder),
                        ledger,
                        scoring=ByFirstWord(),
                        backend=backend,
                        settings=settings,
                        budget=budget,
                    )
                    await trials.measure([(BASE, first, 0)])  # what one trial takes is known then
                    with pytest.raises(BudgetSpent) as raised:
                        await trials.measure([(BASE, one, 0) for one in rest])
                    return raised.value.text.partition(" (so far")[0]  # without the seconds
            finally:
                await backend.close()

        folder.mkdir()
        text = asyncio.run(use())
        ended = [one for one in read_ledger(folder / "ledger.jsonl") if one["type"] == "trial"]
        found.append((text, budget.bill, budget.interrupted, len(ended)))
    assert found[0] == found[1]
    assert found[1][3] == 7, "each trial takes two calls"


def test_a_run_whose_driver_is_killed_leaves_no_process_and_goes_on_where_it_was(
    nodes: RayNodes, tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, ray_driver.__file__, str(killed), nodes.address, str(nodes.token)]
    environment = {**os.environ, "PYTHONPATH": str(Path(ray_driver.__file__).parent)}
    with subprocess.Popen(command, env=environment) as driver:
        poll(lambda: _trials_in(killed) >= 6, "six trials", 120)
        ours = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
    psutil.wait_procs(ours, timeout=30)
    assert not [one for one in ours if one.is_running()], (
        "the process that speaks with the cluster ended"
    )
    poll(lambda: not _commands_of(nodes), "the trials to end", 60)
    with driving(whole) as place:
        place.save(ray_driver.slow_letters(0.5), run_py=ray_driver.SLOW)
        place.begin(backend="processes")
        assert not place.drive().stopped
        expected = finished(place)[1]
    with Library.open(killed / "home") as library:
        place = DrivingPlace(killed, library)
        place.means = replace(place.means, cluster=nodes.cluster)
        assert not place.drive().stopped
        found = finished(place)[1]
    assert sorted(found) == sorted(expected), "each trial counts once"


def _trials_in(root: Path) -> int:
    return sum(
        path.read_text().count('"type":"trial"') for path in root.glob("home/evolve/*/ledger.jsonl")
    )


def _commands_of(nodes: RayNodes) -> list[str]:
    """Returns the command lines of trials that run on the nodes."""
    found = []
    for one in nodes.processes():
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(one.cmdline()))
    return [line for line in found if "run.py" in line]


def test_a_run_that_is_asked_to_stop_ends_its_trials_on_the_nodes(
    nodes: RayNodes, tmp_path: Path
) -> None:
    with driving(tmp_path) as place:
        place.means = replace(place.means, cluster=nodes.cluster)
        place.save(ray_driver.slow_letters(300), run_py=ray_driver.SLOW)
        place.begin(backend="ray")

        def stop() -> None:
            poll(lambda: _commands_of(nodes), "a trial to run", 60)
            stop_run(place.library.store.home, None)

        async def drive() -> None:
            stopping = asyncio.create_task(asyncio.to_thread(stop))
            await drive_run(place.library, PERSON, place.folder, place.means)
            await stopping

        asyncio.run(drive())
        assert "a stop was requested" in place.state.stopped
        assert not _commands_of(nodes), "no trial is left"


def test_a_cluster_that_lets_everybody_in_is_refused(tmp_path: Path) -> None:
    with (
        ray_nodes(1, token=False) as nodes,
        pytest.raises(RayUnavailable, match="lets in everybody"),
    ):
        asyncio.run(_report(nodes))


async def _report(nodes: RayNodes, **more: Any) -> dict[str, Any]:
    backend = RayBackend(replace(nodes.cluster, **more))
    try:
        return await backend.open()
    finally:
        await backend.close()


def test_a_wrong_token_and_an_address_without_a_cluster_say_what_to_do(
    nodes: RayNodes, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    with pytest.raises(RayUnavailable):
        asyncio.run(_report(nodes, token_file=wrong))
    with pytest.raises(RayUnavailable) as raised:
        asyncio.run(_report(nodes, address="127.0.0.1:9"))
    assert "127.0.0.1:9" in raised.value.text and raised.value.hint


BOMB = """\
import evolvable_evolve.evolution.trials.ray_worker as worker, os
class Bomb:
    def __reduce__(self):
        return os.mkdir, ({place!r},)
def returns_a_bomb(*given):
    return Bomb()
returns_a_bomb.__module__, returns_a_bomb.__qualname__ = worker.__name__, "run_on_node"
worker.run_on_node = returns_a_bomb
"""


def test_what_a_hostile_node_returns_is_never_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "unpickled"
    with ray_nodes(0) as nodes:
        (nodes.place / "sitecustomize.py").write_text(BOMB.format(place=str(trap)))
        nodes.python_path.append(nodes.place)
        nodes.start(2)
        trials, _, _ = measure(
            lambda: RayBackend(nodes.cluster), tmp_path, [task("a")], lambda: None
        )
    assert trials[0].outcome is TrialOutcome.INFRA_ERROR
    assert "something else than bytes" in trials[0].detail
    assert not trap.exists()


def test_contents_are_sent_to_a_node_once_and_not_with_each_trial(
    nodes: RayNodes, tmp_path: Path
) -> None:
    sent: list[int] = []

    async def use() -> None:
        backend = RayBackend(nodes.cluster)
        await backend.open()
        bridge = backend._bridge
        assert bridge is not None
        send = bridge.send
        bridge.send = lambda order, data=None: (sent.append(len(data or b"")), send(order, data))[1]  # type: ignore[method-assign]
        files = {"big.bin": os.urandom(5_000_000)}
        for number in range(8):
            backend.submit(
                TrialJob(Scripted(tmp_path), ByFirstWord(), task(f"t{number}"), BASE, 0, files)
            )
        done = 0
        while done < 8:
            done += len(await backend.poll(60))
        await backend.close()

    asyncio.run(use())
    assert sum(size > 4_000_000 for size in sent) == 1
    assert sum(sent) < 5_200_000
