"""A run whose test could decide nothing is refused before its first trial, with what is missing."""

import json
import random

import pytest
from driving_place import SKILL as TEXT
from driving_place import DrivingPlace, letters

from evolvable_evolve.evolution.ledger.run_directory import iter_runs
from evolvable_evolve.evolution.measure import start_measurement
from evolvable_evolve.evolution.reach import best_outcome, refuse_undecidable
from evolvable_evolve.evolution.run_config import HostContext, RunSettings
from evolvable_evolve.evolution.start import start_run
from evolvable_evolve.evolution.task import Split
from evolvable_evolve.evolution.tasks.reader import read_taskset
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

PERSON = Caller(Actor.HUMAN, None)
SKILL, TASKS = Ref.parse("skill:polite"), Ref.parse("environment:letters")


def words(val: int, test: int, groups: int = 0):
    """A task set. groups: of its test, 0 for as many as tasks."""
    lines = []
    for split, count in (("train", 4), ("val", val), ("test", test)):
        for n in range(count):
            prompt = f"{random.Random(f'{split}{n}').getrandbits(200):x}"
            group = {"group": f"g{n % groups}"} if groups and split == "test" else {}
            lines.append(
                {
                    "id": f"{split}-{n}",
                    "prompt": prompt,
                    "expected": f"{n}x",
                    "split": split,
                    **group,
                }
            )
    about = b"---\nname: words\nalike: only-words\n---\n"
    return read_taskset(
        "words",
        {"tasks.jsonl": "\n".join(map(json.dumps, lines)).encode(), "ENVIRONMENT.md": about},
    )


@pytest.mark.process
@pytest.mark.parametrize("door", ["start", "measure"])
def test_a_set_too_small_for_any_claim_is_refused_and_makes_no_run(tmp_path, door):
    with Library.open(tmp_path / "library", create=True) as library:
        place = DrivingPlace(tmp_path, library)
        place.save([one for one in letters() if not one["id"].endswith("-4")])
        edit.update_resource(library, PERSON, SKILL, "skill", files={"SKILL.md": TEXT}, create=True)
        with pytest.raises(InvalidArgument, match="4 val and 4 test tasks") as refused:
            if door == "start":
                start_run(library, PERSON, HostContext({}), TASKS, [], {"kind": "simulated"}, {})
            else:
                simulated, opened = [{"kind": "simulated"}], {"open_test": True}
                start_measurement(
                    library, PERSON, HostContext({}), TASKS, [SKILL], simulated, opened
                )
        assert "Add 2 more tasks" in refused.value.hint
        assert list(iter_runs(library.store.home)) == []


MEASURE = RunSettings("environment:words", purpose="measure")


def test_eight_groups_decide_at_the_first_look_and_not_at_the_second():
    few, more = words(20, 24, groups=8), words(20, 24, groups=9)

    refuse_undecidable(few, MEASURE, 1, exploratory=False)
    with pytest.raises(InvalidArgument, match=r"p = 0\.0078, .*look 2 .*0\.0061") as refused:
        refuse_undecidable(few, MEASURE, 2, exploratory=False)
    assert "Add 1 test task" in refused.value.hint
    refuse_undecidable(more, MEASURE, 2, exploratory=False)


def test_executors_share_the_level_and_repeats_help_a_small_set():
    small = words(5, 5)
    settings = RunSettings("environment:words", purpose="measure", executors=20, test_repeats=1)
    refuse_undecidable(small, settings, 1, exploratory=True)
    with pytest.raises(InvalidArgument, match="under each of 20 executors") as refused:
        refuse_undecidable(small, settings, 2, exploratory=True)
    assert "test_repeats to 2 (20 more trials)" in refused.value.hint
    assert "executors" in refused.value.hint


def test_a_search_is_judged_by_the_test_that_it_ends_with():
    settings, tests = RunSettings("environment:words"), words(20, 9).of(Split.TEST)

    looks = [
        best_outcome(20, tests, settings, look, exploratory=False).decides for look in (1, 2, 3, 40)
    ]
    assert looks[0] and not looks[-1] and looks == sorted(looks, reverse=True)
