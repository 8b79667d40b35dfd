"""Before what a judge scored is adopted, a person compares answers without seeing which program
gave them.
"""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from baselines.scripted_model import ScriptedModel
from command_line import CommandLine
from evolve_runs import running, scripted, skill
from page_place import open_page

from evolvable_evolve.evolution import draw_blind_pairs, load_taskset
from evolvable_evolve.evolution.candidates import programs
from evolvable_evolve.evolution.deploy import BasePreferred, adopt
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory, read_ledger
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import ModelRole
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.scorers.external_scorers import (
    JudgeCalibration,
    JudgeScorer,
    rubric_digest,
)
from evolvable_evolve.evolution.task import Split
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

PERSON = Caller(Actor.HUMAN)
FORMS, PLACES = Ref.parse("skill:user/forms"), Ref.parse("environment:user/places")
RUN = "20260101-000000-abcd"
RUBRIC = "It is right."
KNOWN = {
    side: [f"{word} {n}" for n in range(3)] for side, word in (("good", "right"), ("bad", "wrong"))
}
SIZES = {Split.TRAIN: 6, Split.VAL: 14, Split.TEST: 12}
NEW, OLD = "It is right", "It is not right"


class Sentences(SimulatedExecutor):
    """Answers in a sentence of its own for each task."""

    async def run(self, task, program, repeat, workspace):
        rollout = await super().run(task, program, repeat, workspace)
        return replace(rollout, output=f"It is {rollout.output} in place {task.id}.")


def judge() -> JudgeScorer:
    """A scripted judge that knows right from wrong."""

    def score(question):
        passed = "not right" not in question.data["answer"]
        return {
            "score": float(passed),
            "passed": passed,
            "reason": "",
            "feedback": "",
            "errors": [],
        }

    rubric = rubric_digest(RUBRIC)
    known = {rubric: JudgeCalibration("scripted", rubric, 3, 3, 3, 3)}
    return JudgeScorer(ScriptedModel({ModelRole.JUDGE: score}), known)


def promote(library: Library, judged: bool = True) -> None:
    """Leave a run whose candidate was promoted, on tasks that a judge or a comparison of texts
    scores.
    """
    scoring = {"type": "judge", "args": {"rubric": RUBRIC, **KNOWN}} if judged else "exact"
    lines = [
        {
            "id": f"{split}-{n:03}",
            "prompt": f"Where is {split}-{n:03}?",
            "split": str(split),
            "expected": "right",
        }
        | {"scorer": scoring, "tags": ["needs:iso"]}
        for split, size in SIZES.items()
        for n in range(size)
    ]
    about = "---\nname: places\ndescription: Places.\n---\n\nPlaces.\n"
    files = {"ENVIRONMENT.md": about, "tasks.jsonl": "\n".join(map(json.dumps, lines))}
    edit.update_resource(library, PERSON, PLACES, "tasks", files=files, create=True)
    edit.update_resource(
        library, PERSON, FORMS, "new", files={"SKILL.md": skill("forms")}, create=True
    )
    base, pins = programs.load_program(library, PERSON, [FORMS])
    taskset, version = load_taskset(library, PERSON, PLACES)
    splits = {split: [replace(one, group="") for one in taskset.of(split)] for split in SIZES}
    named = {"judge": "scripted"} if judged else {}
    given = {
        "task_set_version": version,
        "program": tuple(pins),
        "iterations": 1,
        "test_repeats": 1,
        **named,
    }
    brain = scripted([("Change it", ["rule: iso"])])
    executor = (Sentences if judged else SimulatedExecutor)(taskset.tasks)
    folder = library.store.home / "evolve" / RUN
    settings = RunSettings(str(PLACES), **given)
    with running(folder, base, brain, splits, settings, executor, judge=judge()) as made:
        asyncio.run(run_phases(made))
        assert made.state.verdict["verdict"] == "PROMOTE", made.state.verdict


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    """A machine whose library has a run that a judge promoted."""
    machine = CommandLine(tmp_path)
    with Library.open(machine.home, create=True) as library:
        promote(library)
    return machine


def sides(shown: str) -> list[str]:
    """Return by pair which answer is the base's, `1` or `2`, as its text tells a reader."""
    pairs = re.findall(r"--- answer 1\n(.*)\n--- answer 2\n(.*)\n", shown)
    assert all({NEW in one, NEW in other} == {True, False} for one, other in pairs), pairs
    return ["1" if OLD in one else "2" for one, _ in pairs]


def records(machine: CommandLine, kind: str) -> list[dict]:
    ledger = RunDirectory(machine.home / "evolve" / RUN).ledger
    return [dict(one) for one in read_ledger(ledger) if one["type"] == kind]


def live(machine: CommandLine) -> bool:
    return "rule: iso" in machine("get", "skill:forms").out


@pytest.mark.process
def test_five_pairs_come_before_the_difference_and_what_the_person_prefers_is_recorded_once(
    machine,
):
    shown = machine("evolve", "adopt", stdin="=\n" * 5 + "n\n", code=None).out
    assert shown.index("5 of 5. Task: Where is val-") < shown.index("+rule: iso"), (
        "the difference shows the style"
    )
    base = sides(shown)
    assert len(base) == 5 and set(base) == {"1", "2"}, "sides are drawn"
    assert "Where is test-" not in shown, "to see an answer of the sealed test is a look at it"
    [record] = records(machine, "preferred")
    assert record["neither"] == record["shown"] == 5 and not live(machine)
    assert len({task for task, _ in record["answers"]}) == 5

    again = machine("evolve", "adopt", stdin="y\n").out

    assert "--- answer 1" not in again and live(machine) and len(records(machine, "preferred")) == 1


@pytest.mark.process
@pytest.mark.parametrize(("against", "asks"), [(3, False), (4, True), (5, True)])
def test_who_prefers_the_bases_answers_in_four_of_five_is_asked_again(machine, against, asks):
    machine("evolve", "adopt", stdin="=\n", code=None)
    assert records(machine, "preferred") == [], "who stops in the middle is asked again"
    with Library.open(machine.home) as library:
        base = ["1" if pair.base_first else "2" for pair in draw_blind_pairs(library, PERSON, RUN)]
    other = {"1": "2", "2": "1"}
    choices = [side if at < against else other[side] for at, side in enumerate(base)]

    said = machine(
        "evolve", "adopt", stdin="".join(f"{one}\n" for one in choices) + "y\nn\n", code=None
    )

    assert sides(said.out) == base, "the draw is the same each time"
    assert (f"the base's was preferred in {against}" in said.out + said.err) and live(
        machine
    ) is not asks
    [record] = records(machine, "preferred")
    assert (record["base"], record["finalist"]) == (against, 5 - against)
    if asks:
        with (
            Library.open(machine.home) as library,
            pytest.raises(BasePreferred, match=f"preferred in {against}"),
        ):
            adopt(library, PERSON, RUN)  # another door does not go around the question
        machine("evolve", "adopt", stdin="y\ny\n")
        assert live(machine)


@pytest.mark.process
def test_where_checks_score_nothing_is_compared(tmp_path):
    machine = CommandLine(tmp_path)
    with Library.open(machine.home, create=True) as library:
        promote(library, judged=False)

    shown = machine("evolve", "adopt", stdin="y\n").out

    assert "--- answer 1" not in shown and live(machine) and records(machine, "preferred") == []


def test_the_page_compares_first_and_wants_a_tick_where_the_base_was_preferred(tmp_path):
    with open_page(tmp_path / "library") as page:
        promote(page.library)
        seen = page.get(f"/evolution/{RUN}/adopt")
        assert "rule: iso" not in seen.text and seen.text.count("<fieldset") == 5
        pairs = re.findall(
            r"Answer 1</h3><pre>(.*?)</pre><h3>Answer 2</h3><pre>(.*?)</pre>", seen.text, re.DOTALL
        )
        fields = {"run": seen.field("run"), "pairs": seen.field("pairs")}
        assert page.post("/do/evolve-adopt", **fields, pair1="1").status == 400, (
            "a pair without a choice"
        )
        base = {f"pair{at}": "1" if OLD in one else "2" for at, (one, _) in enumerate(pairs, 1)}
        compared = page.post("/do/evolve-adopt", **fields, **base)
        assert compared.location == f"/evolution/{RUN}/adopt"

        shown = page.get(compared.location)
        assert "preferred in 5" in shown.text and "rule: iso" in shown.text
        final = {"run": shown.field("run"), "candidate": shown.field("candidate")}
        refused = page.post("/do/evolve-adopt", **final)
        assert refused.status != 303 and "judge may like" in refused.text
        assert page.post("/do/evolve-adopt", **final, base_preferred="1").status == 303
