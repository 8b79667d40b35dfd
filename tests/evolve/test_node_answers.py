"""What a node of a cluster is sent and what it returns: data with hashes, without secrets, checked
on both sides.
"""

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from driving_place import AGENT, COMMAND, PERSON, DrivingPlace, driving, judged, letters
from trial_parts import BASE, ByFirstWord, Scripted, program, task

from evolvable_evolve.evolution.backend_choice import RunRecipe, cluster_of, make_recipe
from evolvable_evolve.evolution.ledger.run_reducer import load_run_state
from evolvable_evolve.evolution.run_config import RayCluster
from evolvable_evolve.evolution.run_context import make_run_parts
from evolvable_evolve.evolution.task import (
    CodeOutcome,
    ModelUsage,
    Rollout,
    Score,
    ScoreCheck,
    Solution,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.attempt_json import (
    InvalidAttempt,
    decode_attempt,
    encode_attempt,
)
from evolvable_evolve.evolution.trials.ray_backend import RayMissing
from evolvable_evolve.evolution.trials.ray_worker import (
    GivenRecipe,
    NodeMismatch,
    pack_job,
    remove_stale_folders,
    run_on_node,
)
from evolvable_evolve.evolution.trials.trial import TrialAttempt, TrialJob
from evolvable_evolve.plugin import doctor_checks
from evolvable_evolve.run_launcher import ray_cluster
from evolvable_server.person_config import PersonConfig, parse_person_config
from evolvable_store.errors import InvalidArgument, Refused

SECRET = "sk-ant-not-for-any-node"
ANSWER = TrialAttempt(
    None,
    Rollout(
        "out",
        ("skill:a",),
        trace="how",
        usage=ModelUsage(10, 2, 1, 0.01),
        wall=1.5,
        solutions=(
            Solution("t", 0, "first", {"a.py": "00"}, usage=ModelUsage(1, 1, 1)),
            Solution("t", 1, "last"),
        ),
    ),
    Score(
        0.5,
        "tell",
        "keep",
        (ScoreCheck("c", True),),
        {"loss": -1.5},
        ModelUsage(3),
        CodeOutcome.WRONG_ANSWER,
    ),
    judging=ModelUsage(3),
    earlier=(None, Score(1.0)),
)


@pytest.fixture
def place(tmp_path: Path) -> Any:
    with driving(tmp_path) as found:
        yield found


def sent(job: TrialJob) -> list[bytes]:
    """Returns what is sent for a job: recipe, program, files, and the job itself."""
    recipe = GivenRecipe(job.executor, job.scoring, job.host)
    return [*map(pickle.dumps, (recipe, job.program, dict(job.files))), pack_job(job)]


def hashes(parts: list[bytes]) -> list[str]:
    return [hashlib.sha256(part).hexdigest() for part in parts]


def a_job(prompt: str = "pass") -> TrialJob:
    return TrialJob(
        Scripted(), ByFirstWord(), task("a", prompt), program("p"), 1, {"in/a.txt": b"a"}
    )


def test_an_attempt_comes_back_as_it_was_but_for_the_folder_of_its_workspace() -> None:
    assert decode_attempt(encode_attempt(ANSWER)) == ANSWER
    late = TrialAttempt(
        TrialOutcome.REFUSED, Rollout("", outcome=TrialOutcome.REFUSED, retry_after=3.0), lost=True
    )
    assert decode_attempt(encode_attempt(late)) == late
    somewhere = Solution("t", 0, "a", workspace=Path("/secret/place"))
    back = decode_attempt(encode_attempt(TrialAttempt(None, Rollout("a", solutions=(somewhere,)))))
    assert back.rollout.solutions[0].workspace is None


LIES: dict[str, Callable[[Any], Any]] = {
    "a negative price": lambda said: said["rollout"]["usage"].update(cost=-5.0),
    "a price that is no number": lambda said: said["judging"].update(cost=float("nan")),
    "negative tokens": lambda said: said["rollout"]["usage"].update(input_tokens=-1),
    "a score above 1": lambda said: said["score"].update(value=1.01),
    "a flag as a text": lambda said: said.update(lost="no"),
    "an unknown outcome": lambda said: said.update(outcome="promote"),
    "an outcome that only the run gives": lambda said: said.update(outcome="tampered"),
    "a list as an answer": lambda said: said["rollout"].update(output=["x"]),
    "an endless time": lambda said: said["rollout"].update(wall=float("inf")),
    "a time below 0": lambda said: said["rollout"].update(retry_after=-1),
    "no rollout": lambda said: said.pop("rollout"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_returns_something_else_than_an_attempt_is_refused(lie: str) -> None:
    said = json.loads(encode_attempt(ANSWER))
    LIES[lie](said)
    with pytest.raises(InvalidAttempt):
        decode_attempt(json.dumps(said).encode())


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, pickle.dumps(ANSWER)]
)
def test_bytes_that_are_no_attempt_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidAttempt):
        decode_attempt(data)


def test_a_node_runs_what_it_is_sent_and_returns_the_same_as_this_machine() -> None:
    parts = sent(a_job())
    found = decode_attempt(run_on_node(*parts, hashes(parts)))
    assert found.score is not None and found.score.value == 1.0
    assert found.rollout.output.endswith("in in/a.txt")


@pytest.mark.parametrize("number", range(4))
def test_a_node_that_was_given_other_bytes_than_were_sent_runs_nothing(
    number: int, tmp_path: Path
) -> None:
    wanted = hashes(sent(a_job()))
    parts = sent(replace(a_job("die"), executor=Scripted(tmp_path), program=BASE, files={}))
    mixed = sent(a_job())
    mixed[number] = parts[number]
    found = decode_attempt(run_on_node(*mixed, wanted))
    assert (found.outcome, found.lost) == (TrialOutcome.INFRA_ERROR, False)
    assert "other bytes" in found.detail


def parts_of(place: DrivingPlace) -> Any:
    return make_run_parts(
        place.library, PERSON, place.folder, place.means, load_run_state(place.folder)
    )


@pytest.mark.process
def test_what_is_sent_to_a_node_holds_no_key_no_environment_and_no_other_task(
    place: DrivingPlace,
) -> None:
    own = place.root / "own.py"
    own.write_text('print(\'{"output": "dear"}\')')
    place.means = replace(
        place.means, environment={**place.means.environment, "MY_KEY": SECRET}, key=SECRET
    )
    place.save(letters())
    place.begin(f"{{python}} -I -S {own}")
    parts = parts_of(place)
    recipe = make_recipe(parts, place.means, place.root / "made")
    job = TrialJob(parts.executor, None, parts.taskset.tasks[0], BASE, 0, host=recipe_host(parts))
    found = b"".join([pickle.dumps(recipe), pack_job(job)])
    assert SECRET.encode() not in found
    assert b"test-3" not in found, "the other tasks, the sealed ones above all, stay here"
    assert str(own).encode() not in found and own.read_bytes() in found, (
        "a file of the command travels by content"
    )


def recipe_host(parts: Any) -> Any:
    return parts.executor._host


@pytest.mark.process
def test_a_node_makes_the_executor_of_the_run_and_says_when_its_own_differs(
    place: DrivingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    place.means = replace(place.means, environment={**place.means.environment, "MY_KEY": SECRET})
    place.save(letters())
    place.begin()
    parts = parts_of(place)
    recipe = make_recipe(parts, place.means, place.root / "made")
    executor, scoring, host = recipe.prepare(parts.taskset.tasks[0], place.root / "node")
    assert executor.fingerprint == parts.executor.fingerprint
    assert scoring is not None
    assert set(host.environment) <= {*host.environment, "PATH"}
    assert "MY_KEY" not in host.environment
    for change, why in (
        ({"fingerprint": "another"}, "its executor is"),
        ({"sandbox": "moat"}, "its sandbox is"),
        ({"version": "0.0.1"}, "the run has 0.0.1"),
    ):
        with pytest.raises(NodeMismatch, match=why):
            replace(recipe, **change).prepare(parts.taskset.tasks[0], place.root / "node")  # type: ignore[arg-type]


@pytest.mark.process
def test_a_node_that_differs_spoils_its_trial_and_not_the_program(place: DrivingPlace) -> None:
    place.save(letters())
    place.begin()
    parts = parts_of(place)
    recipe: RunRecipe = replace(
        make_recipe(parts, place.means, place.root / "made"), version="0.0.1"
    )
    job = TrialJob(parts.executor, None, parts.taskset.tasks[0], BASE, 0)
    given = [pickle.dumps(recipe), pickle.dumps(BASE), pickle.dumps({}), pack_job(job)]
    found = decode_attempt(run_on_node(*given, hashes(given)))
    assert (found.outcome, found.lost) == (TrialOutcome.INFRA_ERROR, False)
    assert "0.0.1" in found.detail


@pytest.mark.process
@pytest.mark.parametrize("caller", [PERSON, AGENT], ids=["person", "agent"])
def test_an_address_that_the_person_did_not_configure_is_refused(
    place: DrivingPlace, caller: Any
) -> None:
    place.save(letters())
    for known in (None, RayCluster("10.0.0.1:6379")):
        place.means = replace(place.means, cluster=known)
        with pytest.raises(Refused, match="is not the one that the person configured") as raised:
            place.begin(caller=caller, backend="ray:10.6.6.6:6379")
        assert "[ray]" in raised.value.hint


@pytest.mark.process
@pytest.mark.parametrize(
    "backend", ["cloud", "ray:", "ray:here", "ray:-x:1", "tasks:1", "ray:a b:1", "ray:h:6379\n"]
)
def test_a_backend_that_is_none_is_refused_with_those_there_are(
    place: DrivingPlace, backend: str
) -> None:
    place.save(letters())
    with pytest.raises(InvalidArgument) as raised:
        place.begin(backend=backend)
    assert "auto, tasks, processes, ray" in raised.value.hint


@pytest.mark.process
def test_what_needs_a_key_stays_on_this_machine(place: DrivingPlace) -> None:
    place.means = replace(place.means, cluster=RayCluster("10.0.0.1:6379"))
    place.save(letters(judged()))
    with pytest.raises(InvalidArgument, match="a judge needs a model"):
        place.begin(backend="ray", judge=place.judge())
    begun = place.begin(judge=place.judge())
    assert any("not on the Ray cluster" in one for one in begun.warnings)
    parts = parts_of(place)
    assert cluster_of(parts.settings, place.means, parts.taskset) is None


@pytest.mark.process
def test_a_configured_cluster_is_used_where_nothing_else_is_said(
    place: DrivingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "evolvable_evolve.evolution.backend_choice.find_spec", lambda name: object()
    )
    place.save(letters())
    place.begin()
    parts = parts_of(place)
    assert cluster_of(parts.settings, place.means, parts.taskset) is None
    configured = replace(place.means, cluster=RayCluster("10.0.0.1:6379"))
    assert cluster_of(parts.settings, configured, parts.taskset) is configured.cluster
    here = replace(parts.settings, backend="processes")
    assert cluster_of(here, configured, parts.taskset) is None


@pytest.mark.process
def test_a_run_that_began_on_a_cluster_goes_on_on_no_other(
    place: DrivingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "evolvable_evolve.evolution.backend_choice.find_spec", lambda name: object()
    )
    place.save(letters())
    place.means = replace(place.means, cluster=RayCluster("10.0.0.1:6379"))
    place.begin(backend="ray:10.0.0.1:6379")
    place.means = replace(place.means, cluster=RayCluster("10.0.0.2:6379"))
    with pytest.raises(Refused, match="is not the one that the person configured"):
        place.drive()
    assert "10.0.0.1:6379 is not the one" in place.state.stopped


@pytest.mark.process
def test_without_the_package_a_run_on_ray_does_not_begin(
    place: DrivingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolvable_evolve.evolution.backend_choice.find_spec", lambda name: None)
    place.save(letters())
    with pytest.raises(RayMissing, match="Ray is not installed"):
        place.begin(COMMAND, backend="ray")
    place.means = replace(place.means, cluster=RayCluster("10.0.0.1:6379"))
    with pytest.raises(RayMissing):
        place.begin(COMMAND)


def test_the_persons_configuration_names_the_cluster_and_its_token(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    found = ray_cluster(
        parse_person_config(path, '[ray]\naddress = "head.example:6379"\n'), {"PATH": "/bin"}
    )
    assert found is not None and found.address == "head.example:6379"
    assert found.token_file.is_absolute() and found.token_file.parts[-2:] == (".ray", "auth_token")
    named = '[ray]\naddress = "head.example:6379"\ntoken_file = "/run/token"\n'
    assert ray_cluster(parse_person_config(path, named), {}).token_file == Path("/run/token")  # type: ignore[union-attr]
    assert ray_cluster(parse_person_config(path, ""), {}) is None
    for wrong in ("head.example", "--option:1", "http://head:1", ""):
        with pytest.raises(InvalidArgument):
            parse_person_config(path, f'[ray]\naddress = "{wrong}"\n')


def test_the_doctor_speaks_of_a_cluster_only_where_one_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Any = SimpleNamespace(person=PersonConfig(None))
    assert doctor_checks(config) == ([], [])
    assert "ray" not in sys.modules, "nothing imports Ray for it"
    monkeypatch.setattr("evolvable_evolve.cli.cluster_health.find_spec", lambda name: None)
    config.person = PersonConfig(None, ray_address="head.example:6379")
    [problem], notes = doctor_checks(config)
    assert "head.example:6379" in problem.what and "'.[ray]'" in problem.next and notes == []


def test_folders_of_workers_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    here, gone, odd = (
        tmp_path / f"x-{name}" for name in (f"{os.getpid()}-a", "4194305-a", "notes")
    )
    elsewhere = tmp_path / "elsewhere"
    for folder in (here, gone, odd, elsewhere):
        folder.mkdir()
    (tmp_path / "x-4194306-link").symlink_to(elsewhere)
    remove_stale_folders("x-", tmp_path)
    assert [path.exists() for path in (here, gone, odd, elsewhere)] == [True, False, True, True]
