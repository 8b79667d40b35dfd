"""Optimizers beside the default: textual gradients, Reinforce++ and GRPO, and one that another
package brings.

Truth is known, models are scripted, and all figures are simulated.
"""

import asyncio
import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import count
from pathlib import Path

import pytest
from baselines.scripted_model import ScriptedModel
from evolve_runs import program, running, scripted, task

from evolvable_evolve.cli.evolve_commands import start_command
from evolvable_evolve.evolution.candidates.programs import Program, make_part, make_program
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory, read_ledger
from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.optimizer_registry import OPTIMIZERS, optimizer_kind
from evolvable_evolve.evolution.optimizers.textgrad import MAX_GRADIENTS, gradient_buffers
from evolvable_evolve.evolution.proposers.proposer_model import (
    HandOffModel,
    ModelRole,
    NeedsAnswer,
    PromptedModel,
)
from evolvable_evolve.evolution.proposers.role_prompts import (
    Evidence,
    critic_question,
    rewrite_question,
)
from evolvable_evolve.evolution.report.render import write_report
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    ScorerSpec,
    Split,
    Task,
    Trial,
    TrialOutcome,
)
from evolvable_evolve.variables import ResourceVariable
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.redaction.redactor import Redactor

DOCS = Path(__file__).parents[2] / "docs"
SECRET = "the colour of the fourth lighthouse is vermilion"
STEPS, CHECK = "skill:forms/SKILL.md#steps", "skill:forms/SKILL.md#check"


def splits(train: int = 12, val: int = 12, test: int = 24, *tags: str) -> dict[Split, list[Task]]:
    """Tasks of which three in four need the rule iso; none passes with the rule shout."""
    sizes = {Split.TRAIN: train, Split.VAL: val, Split.TEST: test}
    return {
        split: [
            task(split, n, "broken_by:shout", *(tags if n % 4 != 1 else ())) for n in range(size)
        ]
        for split, size in sizes.items()
    }


NEEDS_ISO = splits(12, 12, 24, "needs:iso")
SOMETIMES = splits(12, 12, 24, "needs:iso", "without:0.4")


def sectioned() -> Program:
    """A program of one skill with two sections that may be rewritten and one that may not."""
    text = (
        "---\nname: forms\ndescription: How forms are done.\n---\n# forms\n\n## Steps\n\n"
        "Fill in.\n\n## Check\n\n"
    )
    text += "Look.\n\n## Law\n\n<!-- frozen -->\n\nNever sign.\n"
    return make_program([make_part(Kind.SKILL, "forms", {"SKILL.md": text.encode()})])


def settings(optimizer: str, **given) -> RunSettings:
    return RunSettings("environment:made-up", optimizer=optimizer, **{"iterations": 3, **given})


def count_train(folder: Path) -> tuple[int, int]:
    """Return the trials of training tasks that a run paid for: new rollouts, and what was run for
    evidence.
    """
    records = [one for one in read_ledger(RunDirectory(folder).ledger) if one["type"] == "trial"]
    paid = [one["batch"] for one in records if not one["trial"].get("cached")]
    train = [batch for batch in paid if batch.startswith("train/")]
    rollouts = sum(batch.endswith("/samples") for batch in train)
    return rollouts, len(train) - rollouts


def driven(
    folder: Path, brain, given: RunSettings, tasks_of=None, base: Program | None = None, **more
) -> RunState:
    with running(folder, base or program(), brain, tasks_of or NEEDS_ISO, given, **more) as run:
        asyncio.run(run_phases(run))
        return run.state


def decisions(state: RunState) -> list[str]:
    return [str(record["decision"]) for record in state.iterations]


def critic(critique: Mapping[str, object], line: str = "rule: iso") -> ScriptedModel:
    """A model that says the same of every trial, and adds a line to every variable that it
    rewrites.

    `{}` in the line is the number of the rewrite.
    """
    said, numbers = (
        {"change": True, "critique": "Say that dates are ISO.", "variables": [], **critique},
        count(),
    )
    return ScriptedModel(
        {
            ModelRole.CRITIC: lambda question: said,
            ModelRole.BUILDER: lambda question: {
                "value": f"{question.data['variable']['value']}\n{line.format(next(numbers))}\n"
            },
        }
    )


@pytest.mark.process
def test_critiques_become_one_rewrite_of_the_variable_that_they_name_and_the_gate_takes_it(
    tmp_path,
):
    frozen, foreign, around = (
        "skill:forms/SKILL.md#law",
        "skill:other/SKILL.md#steps",
        "skill:forms/SKILL.md",
    )
    brain = critic({"variables": [STEPS, frozen, foreign, around]})

    state = driven(tmp_path, brain, settings("textgrad"), base=sectioned())

    assert decisions(state) == ["admitted"] and state.verdict["verdict"] == "PROMOTE"
    asked = [one for one in brain.asked if one.role is ModelRole.CRITIC]
    assert len(asked) == len(state.gradients) == 6, "every trial of the batch is criticised"
    [rewrite] = [one for one in brain.asked if one.role is ModelRole.BUILDER]
    assert rewrite.data["variable"] == {"id": STEPS, "role": "section", "value": "\nFill in.\n\n"}
    assert rewrite.data["critiques"] == ["Say that dates are ISO."], "one critique counts once"
    assert state.candidates[state.best].operations == (f"rewrite {STEPS}",), (
        "nothing is rewritten twice"
    )
    assert {name for one in state.gradients for name in one["to"]} == {STEPS, around}
    assert gradient_buffers(state) == {}, "a commit clears the buffers"


def test_a_critique_that_names_no_variable_goes_to_all_that_may_change_and_frozen_ones_never_do(
    tmp_path,
):
    state = driven(
        tmp_path, critic({}), settings("textgrad", iterations=1, edits=(4, 4)), base=sectioned()
    )

    assert {name for one in state.gradients for name in one["to"]} == {
        STEPS,
        CHECK,
        "skill:forms/SKILL.md#frontmatter.description",
    }
    assert all("law" not in one for one in state.candidates[state.history[0]].operations)


def test_buffers_hold_the_last_critiques_until_something_is_committed(tmp_path):
    said = iter(range(1000))
    brain = critic({}, "Hello {}.")
    brain._scripts[ModelRole.CRITIC] = lambda question: {
        "change": True,
        "critique": f"Greet in the way of number {next(said)}.",
        "variables": [STEPS],
    }

    state = driven(tmp_path, brain, settings("textgrad", iterations=6), base=sectioned())

    assert decisions(state) == ["rejected"] * 3
    rewrites = [one.data["critiques"] for one in brain.asked if one.role is ModelRole.BUILDER]
    numbers = [[int(one.removesuffix(".").rpartition(" ")[2]) for one in its] for its in rewrites]
    # Twelve tasks in batches of six: the third batch shows those of the first again.
    given = [*range(12), *range(6)]
    assert numbers == [given[:6], given[2:12], given[8:]] and MAX_GRADIENTS == 10
    tried = [one.data["tried"] for one in brain.asked if one.role is ModelRole.BUILDER]
    assert [len(its) for its in tried] == [0, 1, 2]
    assert "rejected 3 rewrites" in state.ended


def test_a_critic_that_is_content_twice_ends_the_search_and_the_limit_of_rejections_can_be_lifted(
    tmp_path,
):
    content = critic({"change": False, "critique": ""})
    stubborn = critic({}, "Hello {}.")

    quiet = driven(tmp_path / "quiet", content, settings("textgrad", iterations=6))
    goes_on = driven(tmp_path / "on", stubborn, settings("textgrad", iterations=5, rejections=0))

    assert decisions(quiet) == ["no_proposal"] * 2 and "no change in 2 rounds" in quiet.ended
    assert len(goes_on.iterations) == 5


def test_by_hand_off_all_questions_of_a_round_wait_at_once(tmp_path):
    with running(
        tmp_path, program(), HandOffModel(lambda question: None), NEEDS_ISO, settings("textgrad")
    ) as run:
        with pytest.raises(NeedsAnswer):
            asyncio.run(run_phases(run))
        waiting = run.state.pending

    assert [one.role for one in waiting] == ["critic"] * 6 and len({one.id for one in waiting}) == 6


def test_a_program_without_a_text_that_may_change_ends_the_search_at_once(tmp_path):
    state = driven(tmp_path, critic({}), settings("textgrad"), base=Program())

    assert not state.iterations and "may be rewritten" in state.ended


class Telling:
    """An executor that repeats what the task was, and says the expected answer in its trace."""

    fingerprint, label = "telling", "simulated"

    async def run(self, one: Task, now: Program, repeat: int, workspace: Path) -> Rollout:
        right = any(b"rule: iso" in data for part in now.parts for data in part.files.values())
        said = one.expected if right else f"not at all, take {repeat}"
        return Rollout(said, trace=f"I was asked {one.prompt!r} and think of {one.expected}.")


def hidden_answers() -> dict[Split, list[Task]]:
    def one(split: Split, number: int) -> Task:
        answer = f"{SECRET}, or {split} {number}"
        prompt = f"In the harbour of {split} number {number} which of the many lamps burns at night"
        return Task(
            f"{split}-{number:03}",
            prompt,
            ScorerSpec("exact"),
            split,
            f"{split}{number}",
            answer,
            "dates",
        )

    sizes = {Split.TRAIN: 12, Split.VAL: 12, Split.TEST: 24}
    return {split: [one(split, number) for number in range(size)] for split, size in sizes.items()}


@pytest.mark.process
@pytest.mark.parametrize("optimizer", ["textgrad", "reinforce_pp", "grpo"])
def test_no_question_holds_an_expected_answer_or_a_word_of_validation_and_test(tmp_path, optimizer):
    tasks_of, usual = hidden_answers(), scripted([("Dates are ISO", ["rule: iso"])])
    if optimizer == "textgrad":
        leaks = iter([f"It should say {SECRET}, or train 3", tasks_of[Split.VAL][2].prompt])
        usual = critic({"variables": ["skill:forms/SKILL.md"]})
        usual._scripts[ModelRole.CRITIC] = lambda question: {
            "change": True,
            "critique": next(leaks, "Say that dates are ISO."),
            "variables": [],
        }

    state = driven(tmp_path, usual, settings(optimizer, iterations=1), tasks_of, executor=Telling())

    assert usual.asked and state.history
    for question in usual.asked:
        sent = json.dumps([question.instructions, question.data])
        assert "vermilion" not in sent
        assert not any(
            one.prompt in sent for split in (Split.VAL, Split.TEST) for one in tasks_of[split]
        )
    if optimizer == "textgrad":
        dropped = [one["dropped"] for one in state.gradients if one["dropped"]]
        assert len(dropped) == 2 or ["task of validation" in one for one in dropped] == [True]
        assert state.candidates[state.history[0]].decision == "admitted"


@pytest.mark.process
def test_grpo_runs_each_task_several_times_and_shows_the_best_and_the_worst_side_by_side(tmp_path):
    brain = scripted([("Dates are ISO", ["rule: iso"])])

    state = driven(tmp_path, brain, settings("grpo", iterations=1), SOMETIMES)

    [signals] = state.signals
    assert signals["optimizer"] == "grpo" and all(
        len(one["rewards"]) == 4 for one in signals["groups"]
    )
    rollouts, evidence = count_train(tmp_path)
    assert rollouts == 4 * len(signals["groups"]) == 24
    assert state.spent["train"].trials == rollouts + evidence, (
        "every rollout is a trial on the bill"
    )
    differing = [one for one in signals["groups"] if len(set(one["rewards"])) == 2]
    question = brain.asked[0]
    assert len(question.data["contrasts"]) == len(differing) > 0
    assert "contrasts names" in question.instructions
    for pair in question.data["contrasts"]:
        its = [one for one in question.data["evidence"] if one["task"] == pair["task"]]
        assert sorted(one["result"] for one in its) == ["failed", "passed"]
        assert pair["better"]["advantage"] > 0 > pair["worse"]["advantage"]
    assert decisions(state) == ["admitted"] and state.verdict["verdict"] == "PROMOTE"


@pytest.mark.process
@pytest.mark.parametrize("optimizer", ["grpo", "reinforce_pp"])
def test_a_rollout_is_labelled_by_its_own_score_and_not_by_that_of_another_rollout(
    tmp_path, optimizer
):
    brain = scripted([("Greet", ["Hello."]), ("Greet more", ["Hello.", "Hello."])])

    driven(tmp_path, brain, settings(optimizer, iterations=4), SOMETIMES)

    shown = [
        one
        for asked in brain.asked
        if asked.role is ModelRole.PROPOSER
        for one in asked.data["evidence"]
    ]
    works = [one["result"] for one in shown if "it works" in one.get("why_shown", "")]
    assert {one["result"] for one in shown} == {"failed", "passed"}
    assert set(works) == {"passed"} and len(works) == sum(
        one["result"] == "passed" for one in shown
    )


@pytest.mark.process
def test_grpo_takes_another_number_of_rollouts_and_never_one_that_was_run_before(tmp_path):
    brain = scripted([("Greet", ["Hello."]), ("Greet more", ["Hello.", "Hello."])])

    state = driven(tmp_path, brain, settings("grpo", iterations=2, samples=2), SOMETIMES)

    assert [{len(one["rewards"]) for one in record["groups"]} for record in state.signals] == [
        {2},
        {2},
    ]
    rollouts, evidence = count_train(tmp_path)
    assert rollouts == 2 * sum(len(record["groups"]) for record in state.signals)
    assert state.spent["train"].trials == rollouts + evidence
    with pytest.raises(InvalidArgument, match="One sample"):
        settings("grpo", samples=1)


@pytest.mark.process
def test_reinforce_compares_one_new_rollout_with_the_one_before_and_with_that_of_the_base(tmp_path):
    brain = scripted([("Dates are ISO", ["rule: iso"])])

    state = driven(tmp_path, brain, settings("reinforce_pp", iterations=1), SOMETIMES)

    [signals] = state.signals
    rollouts, evidence = count_train(tmp_path)
    assert rollouts == len(signals["groups"]) == 6
    assert state.spent["train"].trials == rollouts + evidence
    for one in signals["groups"]:
        same = one["ratio"] == 1.0
        assert one["reference_similarity"] == one["ratio"], "the program before is the base"
        assert one["advantage"] == pytest.approx(one["reward"] - one["penalty"]) and same is (
            one["penalty"] == 0
        )
    assert decisions(state) == ["admitted"]


@pytest.mark.process
def test_an_objective_decides_nothing_and_where_no_rollouts_differ_failures_are_shown(tmp_path):
    brain = scripted([("Dates are ISO", ["rule: iso"])])

    state = driven(tmp_path, brain, settings("grpo", iterations=1), NEEDS_ISO)

    assert all(set(one["objectives"]) == {0.0} for one in state.signals[0]["groups"])
    assert brain.asked[0].data["contrasts"] == [] and decisions(state) == ["admitted"]


HOW_TO = DOCS / "how-to/add-an-optimizer.md"


def block(page: Path, language: str) -> str:
    """The first block of code in this language on a page of the docs."""
    return page.read_text("utf-8").split(f"```{language}\n")[1].split("```")[0]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package of others with the optimizer of the docs, and with two entry points that are of no
    use.
    """
    place = tmp_path / "site"
    info = place / "tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "tiny_optimizer.py").write_text(block(HOW_TO, "python"))
    [(name, value)] = tomllib.loads(block(HOW_TO, "toml"))["project"]["entry-points"][
        "evolvable.optimizers"
    ].items()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    points = (
        f"[evolvable.optimizers]\n{name} = {value}\nbroken = no_such_module:KIND\n"
        "other = json:dumps\n"
    )
    points += "greedy = json:dumps\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(place)
    yield
    sys.modules.pop("tiny_optimizer", None)


@pytest.mark.process
def test_an_optimizer_of_another_package_is_used_by_its_name_and_meets_the_same_gate(
    tmp_path, installed
):
    state = driven(tmp_path / "run", ScriptedModel({}), settings("tiny"))

    assert decisions(state) == ["rejected", "admitted"]
    assert state.verdict["verdict"] == "PROMOTE" and state.looks == 1


def test_an_unknown_optimizer_is_refused_and_one_that_cannot_be_loaded_says_which_package(
    installed,
):
    with pytest.raises(InvalidArgument, match="optimizer is 'genetic'") as refused:
        settings("genetic")
    assert all(name in refused.value.hint for name in OPTIMIZERS)
    with pytest.raises(InvalidArgument, match="no_such_module"):
        settings("broken")
    with pytest.raises(InvalidArgument, match="no OptimizerKind"):
        settings("other")
    with pytest.raises(InvalidArgument, match="no way to change agents"):
        settings("textgrad", mode="structure")


def test_an_optimizer_of_another_package_takes_no_name_of_ours_and_no_code_from_a_project(
    installed, tmp_path, monkeypatch
):
    project = tmp_path / "project"
    info = project / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evolvable.optimizers]\ntheirs = theirs:KIND\n")
    (project / "theirs.py").write_text("import pathlib\npathlib.Path('taken').touch()\n")
    monkeypatch.chdir(project)

    with pytest.raises(InvalidArgument, match="optimizer is 'theirs'"):
        settings("theirs")
    assert settings("greedy") and optimizer_kind("greedy") is OPTIMIZERS["greedy"]
    assert not (project / "taken").exists()


def test_every_setting_of_a_run_is_an_option_of_the_command():
    made_by_the_start = {
        "task_set",
        "task_set_version",
        "task_set_digest",
        "test_digest",
        "scorers",
    }
    of_other_commands = {"purpose", "family", "executors", "kept_tasks", "open_test"}
    otherwise_named = {"limit": "max_cost"}

    options = {one.name for one in start_command.params}

    wanted = {one.name for one in fields(RunSettings)} - made_by_the_start - of_other_commands
    assert {otherwise_named.get(name, name) for name in wanted} <= options


@pytest.mark.process
def test_the_report_names_the_optimizer_and_shows_what_it_diagnosed(tmp_path):
    driven(
        tmp_path / "textgrad",
        critic({"variables": [STEPS]}),
        settings("textgrad"),
        base=sectioned(),
    )
    brain = scripted([("Dates are ISO", ["rule: iso"])])
    driven(tmp_path / "grpo", brain, settings("grpo", iterations=1), SOMETIMES)

    words, numbers = (write_report(RunDirectory(tmp_path / name)) for name in ("textgrad", "grpo"))

    assert "Optimizer: textgrad." in words.text and f"{STEPS}: 6 critiques" in words.text
    assert (
        "Optimizer: grpo." in numbers.text and "Iteration 1: 6 tasks, 24 rollouts" in numbers.text
    )
    assert "Say that dates are ISO." in Path(words.html).read_text("utf-8")
    assert json.loads(Path(numbers.json).read_text("utf-8"))["diagnosis"]


@pytest.mark.process
def test_the_script_of_the_docs_answers_as_critic_and_as_builder(tmp_path):
    page = (DOCS / "optimizers.md").read_text("utf-8")
    (tmp_path / "think.py").write_text(page.split("$ cat think.py\n")[1].split("$ evolvable")[0])
    model = PromptedModel(
        CommandModel([sys.executable, "think.py"], 60, folder=tmp_path, environment={}),
        redactor=Redactor(),
    )
    variable = ResourceVariable("skill:shipping/SKILL.md", "file", True, 12, "- Norway: 12\n")
    chile = replace(
        task(Split.TRAIN, 0), prompt="What does it cost to send 3 kg to Chile?", expected="46 EUR"
    )
    failed = Trial(
        "k", chile.id, "p", 0, TrialOutcome.FAIL, 0.0, ModelUsage(), 0.0, output="I do not know."
    )

    async def asked(question):
        return (await model.ask(question)).value

    said = asyncio.run(
        asked(critic_question(Evidence(chile, failed, False), [variable], redactor=Redactor()))
    )
    written = asyncio.run(
        asked(rewrite_question(variable, [said["critique"]], [], redactor=Redactor()))
    )

    assert said == {
        "change": True,
        "critique": "It has no price of Chile.",
        "variables": [variable.id],
    }
    assert written == {"value": "- Norway: 12\n- Chile: 25 + 7\n"}
