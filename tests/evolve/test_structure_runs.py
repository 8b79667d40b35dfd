"""Runs that change agents: the transplant, harmful expansions, who may be given agents.

All figures are simulated.
"""

from dataclasses import replace

import pytest
from baselines.scripted_model import ScriptedModel
from driving_place import COMMAND, LETTERS, PERSON, DrivingPlace, driving
from transplant import (
    ARMS,
    expansion,
    harmful_world,
    null_world,
    repairer,
    searched,
    skill_part,
    transplant,
    transplant_world,
)

from evolvable_evolve.evolution.candidates.agent_files import MAIN
from evolvable_evolve.evolution.candidates.programs import (
    ProgramPart,
    make_part,
    make_program,
    skill_owners,
)
from evolvable_evolve.evolution.proposers.edit_plan import structure_schema
from evolvable_evolve.evolution.proposers.proposer_model import ModelRole
from evolvable_evolve.evolution.report.run_facts import collect_facts
from evolvable_evolve.evolution.run_control import _describe_record
from evolvable_evolve.evolution.start import start_run
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind
from evolvable_tools.llm.language_model import NamedCommand, NamedCommands, schema_problem

SMALL = (90, 110, 60)


@pytest.fixture(scope="module")
def run():
    """A run that splits an agent off and goes on to give it skills."""
    return searched(transplant_world(), 1, 5, SMALL)


@pytest.mark.process
def test_skills_and_agents_that_evolved_together_need_each_other():
    found = transplant(1, 10, SMALL)

    assert [found[one] for one in ARMS] == sorted(found.values(), reverse=True), found
    assert found["full"] - found["seed"] > 0.15


@pytest.mark.process
def test_a_change_of_agents_stands_in_the_ledger_with_the_numbers_and_thresholds_that_decided(run):
    state, context = run
    record = next(one for one in state.structures if one["edit"] is not None)
    added = next(
        one for one in state.candidates.values() if one.operations[:1] == (str_of(record),)
    )

    assert added.decision == "admitted" and added.changed == ("agent:delta",)
    assert record["action"] == "add"
    assert record["thresholds"]["mass"] == 0.4
    assert record["numbers"]["share"] >= 0.4
    assert record["numbers"]["repairs"] and record["numbers"]["gap"] >= 0.15
    kept = context.folder.read_json(record["artifact"])
    assert {row["task_type"] for row in kept["rows"]} == {"alpha", "beta", "gamma", "delta"}
    assert sum(row["failures"] for row in kept["rows"]) == kept["failures"] > 0
    assert "changes the agents: delta has" in _describe_record(state, record)
    facts = collect_facts(context.folder, state, context.journal._ledger.records)
    assert ("structure", True) in {(gate["gate"], gate["passed"]) for gate in facts.gates}


def str_of(record) -> str:
    """The change of a record, as the operations of its candidate say it."""
    moved = ", ".join(record["edit"]["skills_moved"])
    return f"add-agent agent:delta from main for delta: {moved}"


@pytest.mark.process
def test_a_new_skill_belongs_to_the_agent_that_does_the_tasks_it_answers(run):
    state, context = run
    owned = skill_owners(context.program(state.best))

    later = [
        one
        for one in state.candidates.values()
        if one.decision == "admitted" and "agent:delta" in one.changed
    ]
    assert len(later) >= 2, "one change of agents, and skills that it was given"
    assert len(owned["agent:delta"]) >= 2 and not any(
        ref.startswith("skill:delta-rule") for ref in owned[MAIN]
    )


@pytest.mark.process
def test_the_proposer_may_edit_skills_alone_and_is_told_of_the_agents(run):
    _, context = run
    asked = [one for one in context.proposer_model.asked if one.role is ModelRole.PROPOSER]

    assert all(
        one.data["may_change"] == [Kind.SKILL] and one.data["agents"][0] == MAIN for one in asked
    )
    assert any("agent:delta" in one.data["agents"] for one in asked)
    assert asked[0].schema == structure_schema()
    intent = {"op": "add-agent", "ref": "agent:mine", "tasks": ["t"]}
    answer = {
        "diagnoses": [],
        "approaches": [],
        "intents": [intent],
        "summary": "",
        "justification": "",
    }
    assert "add-agent" in (schema_problem(answer, asked[0].schema) or "")


def an_agent(name: str, *skills: str) -> ProgramPart:
    text = (
        f"---\nname: {name}\ndescription: Does {name}.\nskills: [{', '.join(skills)}]\n---\n\n"
        "Be brief.\n"
    )
    return make_part(Kind.AGENT, name, {"AGENT.md": text.encode()})


@pytest.mark.process
def test_an_agent_that_did_nothing_under_three_programs_is_proposed_to_go():
    world = transplant_world()
    base = make_program([*world.base.parts, an_agent("idler")])

    state, context = searched(replace(world, base=base), 1, 5, SMALL)

    [gone] = [record for record in state.structures if record["action"] == "remove"][:1]
    assert gone["edit"]["agents"] == (MAIN, "agent:idler")
    assert gone["numbers"] == {"idle": 3}
    assert gone["round"] == 3
    built = next(
        one
        for one in state.candidates.values()
        if one.operations == ("merge-agents agent:idler into main",)
    )
    assert set(skill_owners(context.program(built.digest))) == {MAIN, "agent:delta"}


@pytest.mark.process
def test_failures_that_another_agent_should_have_done_move_the_boundary_to_it():
    world = transplant_world()
    skilled = skill_part("delta-forms", *(f"delta-{n}" for n in range(1, 9)))
    base = make_program([*world.base.parts, skilled, an_agent("porter", "delta-forms")])
    cards = repairer(world.repairs)

    def diagnoses(question):
        failed = [one for one in question.data["evidence"] if one["result"] == "failed"]
        wrong = {
            "cause": "bad executor assignment",
            "only_cause": True,
            "repair": "handoff-to-structure",
        }
        told = [
            {
                **wrong,
                "task": one["task"],
                "quotes": [one["prompt"]],
                "better_agent": "agent:porter",
            }
            for one in failed
        ]
        return {
            "diagnoses": told,
            "approaches": [],
            "intents": [],
            "summary": "",
            "justification": "",
        }

    brain = ScriptedModel({**cards._scripts, ModelRole.PROPOSER: diagnoses})
    state, context = searched(replace(world, base=base), 1, 2, SMALL, brain)

    moved = state.structures[0]
    assert moved["action"] == "modify" and moved["edit"]["agents"] == (MAIN, "agent:porter")
    assert moved["edit"]["boundary"] == ("delta",) and moved["numbers"]["traces"] >= 3
    assert state.iterations[0]["decision"] == "admitted" and state.verdict["verdict"] == "PROMOTE"
    best = context.program(state.best).by_ref["agent:porter"].texts["AGENT.md"]
    assert "- Tasks of the type delta." in best
    assert "Be brief." in best
    assert 'skills: ["delta-forms"]' in best


@pytest.mark.process
def test_a_specialist_that_harms_is_proposed_and_not_promoted():
    found = [expansion(harmful_world(), seed, 3, (90, 90, 40)) for seed in range(4)]

    assert sum(one.proposed > 0 for one in found) >= 2
    assert not any(one.promoted for one in found)


@pytest.mark.process
def test_where_nothing_is_wrong_the_agents_stay_as_they_are():
    assert [expansion(null_world(), seed, 3, (60, 60, 40)).actions for seed in range(4)] == [()] * 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with driving(tmp_path_factory.mktemp("place")) as found:
        found.save(
            [
                {"id": f"{split}-{n}", "prompt": f"Letter {split} {n}.", "split": split}
                | {"expected": f"{split} {n}"}
                for split in ("train", "val", "test")
                for n in range(5)
            ]
        )
        yield found


@pytest.mark.process
def test_an_executor_that_cannot_be_given_agents_is_refused_with_those_that_can(
    place: DrivingPlace,
):
    refs = [one.ref for one in place.library.store.heads(Kind.SKILL)]
    options = {"mode": "structure", "iterations": 1}
    for executor in (
        {"kind": "simulated"},
        {"kind": "codex", "model": "m"},
        {"kind": "anthropic", "model": "m"},
    ):
        with pytest.raises(InvalidArgument, match=executor["kind"]) as refused:
            start_run(place.library, PERSON, place.means, LETTERS, refs, executor, options)
        assert "claude:MODEL" in refused.value.hint
        assert "executor add NAME --agents" in refused.value.hint
    assert list((place.library.store.home / "evolve").glob("2*")) == []


@pytest.mark.process
def test_a_command_is_given_agents_where_a_person_declared_it(place: DrivingPlace):
    words = tuple(COMMAND.split())
    with pytest.raises(InvalidArgument, match="cannot"):
        place.begin(mode="structure")
    roles = ("executors", "proposers", "judges", "scorers")
    own = {"own": NamedCommand("own", words, agents=True)}
    named = {role: NamedCommands(role, own if role == "executors" else {}) for role in roles}
    place.means = replace(place.means, commands=named)

    begun = place.begin("own", mode="structure", structure={"mass": 0.5})

    settings = place.state.settings
    assert begun.run
    assert settings["executor"]["agents"] is True
    assert settings["structure"] == {"mass": 0.5}
