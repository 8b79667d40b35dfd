"""What proposer, builder and judge are asked, what never stands in it, and what their answers come
to.
"""

import json
from typing import Any

import pytest
from evolving import a_program, a_skill, a_task, a_trial
from jsonschema import Draft202012Validator

from evolvable_evolve.evolution.candidates.program_edits import (
    AGENT_OPERATIONS,
    EditOperation,
    InvalidEdit,
    apply_edits,
)
from evolvable_evolve.evolution.candidates.static_gate import LeakCorpus
from evolvable_evolve.evolution.proposers import edit_plan, role_prompts
from evolvable_evolve.evolution.proposers.edit_plan import (
    EditPlan,
    FailureCause,
    InvalidPlan,
    RepairTag,
)
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion
from evolvable_evolve.evolution.proposers.role_prompts import (
    ANSWER_MASK,
    MAX_QUESTION,
    Evidence,
    PastIteration,
)
from evolvable_evolve.evolution.scorers import external_scorers
from evolvable_evolve.evolution.task import Split
from evolvable_store.resource import Kind
from evolvable_tools.redaction.redactor import Redactor

REDACTOR = Redactor()
BASE = a_program(a_skill("ships", "Count the ships."), a_skill("rope"))
FAILED = a_task("t1", "Name the third ship.", "The Blue Heron")
PASSED = a_task("t2", "How many barrels?", '{"barrels": 48317, "store": "north"}')
EVIDENCE = [
    Evidence(
        FAILED,
        a_trial(FAILED, "The Grey Gull", 0.0, "looked at page 2, not 3", "another ship"),
        False,
        "repeated",
    ),
    Evidence(
        PASSED,
        a_trial(PASSED, 'It is 48,317 in the North, {"barrels": 48317}', 1.0, "counted 48317"),
        True,
    ),
]
DIAGNOSIS = {
    "task": "t1",
    "cause": "missing precondition",
    "only_cause": True,
    "repair": "add-guard",
    "quotes": ["looked at page 2"],
}
INTENT = {
    "op": "edit",
    "ref": "skill:ships",
    "tasks": ["t1"],
    "modification": "look at page 3 as well",
}
ANSWER: dict[str, Any] = {
    "diagnoses": [DIAGNOSIS],
    "approaches": [{"approach": "a", "trade_off": "b"}],
    "intents": [INTENT],
    "summary": "Look  further.",
    "justification": "t1 shows that THE-REASON",
}


def asked(**more: Any) -> ModelQuestion:
    return role_prompts.proposer_question(BASE, EVIDENCE, redactor=REDACTOR, **more)


def planned(**changes: Any) -> EditPlan:
    answer = ANSWER | changes
    Draft202012Validator(edit_plan.PLAN_SCHEMA).validate(answer)
    return edit_plan.parse_plan(answer, BASE, asked())


def test_no_expected_answer_stands_in_a_proposers_question() -> None:
    evidence = [
        *EVIDENCE,
        Evidence(
            FAILED,
            a_trial(
                FAILED, "the  blue\nheron?", 0.0, "THE BLUE HERON is it", "not: The Blue Heron"
            ),
            False,
        ),
    ]

    said = json.dumps(
        role_prompts.proposer_question(BASE, evidence, redactor=REDACTOR).data, ensure_ascii=False
    )

    for secret in ("heron", "48317", "48,317", "north"):
        assert secret not in said.lower()
    assert ANSWER_MASK in said and "The Grey Gull" in said and "another ship" in said


def test_what_the_prompt_says_itself_is_not_masked_and_no_piece_of_another_word_is() -> None:
    task = a_task("t", "Is it A or B?", "A")
    trial = a_trial(task, "I say A, as a banana.", 1.0, "I read 3 pages")
    other = a_task("o", "How many?", "3")

    shown = role_prompts.proposer_question(
        BASE,
        [
            Evidence(task, trial, True),
            Evidence(other, a_trial(other, "13 or 3.5, so 3", 0.0), False),
        ],
        redactor=REDACTOR,
    ).data["evidence"]

    assert [one["answer"] for one in shown] == [
        "13 or 3.5, so " + ANSWER_MASK,
        "I say A, as a banana.",
    ]


@pytest.mark.parametrize("split", [Split.VAL, Split.TEST])
def test_nobody_may_learn_from_what_is_not_for_training(split: Split) -> None:
    task = a_task("v1", split=split)

    with pytest.raises(ValueError, match="v1 belongs to"):
        role_prompts.proposer_question(
            BASE, [Evidence(task, a_trial(task), False)], redactor=REDACTOR
        )


def test_a_question_is_cut_until_a_model_can_hold_it_and_keeps_a_failure() -> None:
    evidence = []
    for number in range(40):
        task = a_task(f"t{number}", "p" * 100)
        evidence.append(
            Evidence(
                task, a_trial(task, "x", float(number % 2), "step " * 30_000), bool(number % 2)
            )
        )
    history = [PastIteration(number, "s" * 200, "rejected", 0.01) for number in range(300)]

    question = role_prompts.proposer_question(BASE, evidence, redactor=REDACTOR, history=history)

    assert len(json.dumps(question.data)) <= MAX_QUESTION
    assert question.data["evidence"][0]["result"] == "failed"
    assert question.data["history"][-1]["iteration"] == 299


def test_history_tells_what_was_tried_and_how_it_ended() -> None:
    past = PastIteration(3, "said it twice", "rejected", -0.125, ("a",), ("b", "c"), "broke two")

    assert asked(history=[past]).data["history"] == [
        {
            "iteration": 3,
            "summary": "said it twice",
            "outcome": "rejected",
            "difference": -0.125,
            "fixed": 1,
            "broken": 2,
            "reason": "broke two",
        }
    ]


def test_a_secret_in_a_trace_does_not_leave() -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    evidence = [Evidence(FAILED, a_trial(FAILED, trace=f"TOKEN={secret}"), False)]

    assert secret not in json.dumps(
        role_prompts.proposer_question(BASE, evidence, redactor=REDACTOR).data
    )


def test_a_plan_has_what_was_diagnosed_and_what_may_be_built() -> None:
    plan = planned()

    assert [(d.task, d.cause, d.tag, d.local) for d in plan.diagnoses] == [
        ("t1", FailureCause.MISSING_PRECONDITION, RepairTag.ADD_GUARD, True)
    ]
    assert [(i.op, i.ref, i.tasks) for i in plan.intents] == [
        (EditOperation.EDIT, "skill:ships", ("t1",))
    ]
    assert plan.summary == "Look further." and not plan.dropped


@pytest.mark.parametrize(
    "change",
    [
        {"quotes": ["it never said that"]},
        {"quotes": []},
        {"only_cause": False},
        {"cause": "bad executor assignment", "repair": "handoff-to-structure"},
    ],
)
def test_a_cause_that_the_evidence_does_not_carry_alone_leads_to_no_edit(
    change: dict[str, Any],
) -> None:
    with pytest.raises(InvalidPlan, match="cause .* is not clear"):
        planned(diagnoses=[DIAGNOSIS | change])


def test_two_causes_for_one_failure_are_no_cause() -> None:
    with pytest.raises(InvalidPlan):
        planned(diagnoses=[DIAGNOSIS, DIAGNOSIS | {"cause": "wrong action order"}])


def test_a_repair_that_does_not_fit_its_cause_gives_way() -> None:
    assert (
        planned(diagnoses=[DIAGNOSIS | {"repair": "split-skill"}]).diagnoses[0].tag
        is RepairTag.ADD_GUARD
    )


@pytest.mark.parametrize(
    "intent",
    [
        {"ref": "skill:none"},
        {"op": "create"},
        {"ref": "environment:tasks"},
        {"ref": "not a ref"},
        {"tasks": ["v9"]},
        {"tasks": []},
        {"modification": " "},
        {"op": "merge", "other": "skill:none"},
        {"op": "split", "other": "skill:rope"},
        {"op": "merge", "other": "skill:ships"},
    ],
)
def test_an_intent_that_cannot_be_built_is_left_out_with_its_reason(intent: dict[str, Any]) -> None:
    plan = planned(intents=[INTENT | intent, INTENT | {"ref": "skill:rope"}])

    assert [one.ref for one in plan.intents] == ["skill:rope"]
    assert len(plan.dropped) == 1


def test_one_edit_of_a_resource_and_four_in_all_are_taken() -> None:
    new = [
        {"op": "create", "ref": f"skill:n{n}", "tasks": ["t2"], "capability": "c"} for n in range(6)
    ]

    plan = planned(intents=[INTENT, INTENT, *new])

    assert [one.ref for one in plan.intents] == ["skill:ships", "skill:n0", "skill:n1", "skill:n2"]
    assert len(plan.dropped) == 4


def test_no_builder_is_told_the_words_of_a_task() -> None:
    corpus = LeakCorpus(
        [a_task("v1", "How many barrels did the northern store hold in spring?", split=Split.VAL)]
    )
    leaking = INTENT | {"modification": "count how many barrels did the northern store hold"}

    plan = edit_plan.parse_plan(
        ANSWER | {"intents": [leaking, INTENT | {"ref": "skill:rope"}]},
        BASE,
        asked(),
        corpus=corpus,
    )

    assert [one.ref for one in plan.intents] == ["skill:rope"]
    [dropped] = plan.dropped
    assert dropped.startswith("edit skill:ships: ") and "task of validation" in dropped
    with pytest.raises(InvalidPlan):
        edit_plan.parse_plan(ANSWER | {"intents": [leaking]}, BASE, asked(), corpus=corpus)


def test_nothing_to_do_is_an_answer() -> None:
    assert planned(intents=[]).intents == ()


def test_a_builder_is_told_what_to_write_and_nothing_of_why() -> None:
    question = role_prompts.builder_question(BASE, planned(), redactor=REDACTOR)

    said = json.dumps([question.data, question.instructions])
    assert "look at page 3 as well" in said and "Count the ships." in said
    for hidden in (
        "THE-REASON",
        "Grey Gull",
        "another ship",
        "third ship",
        "t1",
        "page 2",
        "heron",
        "barrels",
    ):
        assert hidden not in said.replace("Blue", "")
    assert question.data["other_resources"] == ["skill:rope"]


def test_what_a_builder_writes_is_applied() -> None:
    change = {"path": "SKILL.md", "old": "Count the ships.", "new": "Look at page 3 as well."}
    answer = {"edits": [{"op": "edit", "ref": "skill:ships", "changes": [change]}]}
    Draft202012Validator(edit_plan.BUILDER_SCHEMA).validate(answer)

    after = apply_edits(BASE, edit_plan.parse_edits(answer, planned()))

    assert b"page 3" in after.parts[1].files["SKILL.md"]


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [{"op": "prune", "ref": "skill:rope"}],
        [{"op": "prune", "ref": "skill:ships"}],
        [
            {
                "op": "edit",
                "ref": "skill:ships",
                "files": [{"path": "a", "text": "1"}, {"path": "a", "text": "2"}],
            }
        ],
    ],
)
def test_a_builder_writes_what_was_asked_for_and_nothing_else(edits: list[Any]) -> None:
    with pytest.raises(InvalidEdit):
        edit_plan.parse_edits({"edits": edits}, planned())


def test_a_mode_shows_in_both_questions() -> None:
    kinds = frozenset({Kind.PROMPT})

    assert asked(kinds=kinds).data["may_change"] == ["prompt"]
    assert role_prompts.builder_question(BASE, planned(), redactor=REDACTOR, kinds=kinds).data[
        "may_change"
    ] == ["prompt"]
    with pytest.raises(InvalidPlan, match="skill may not be changed in this run"):
        edit_plan.parse_plan(ANSWER, BASE, asked(), kinds=kinds)


def test_every_schema_is_one_that_the_api_takes() -> None:
    anthropic = pytest.importorskip("anthropic")

    plan, edits = (
        schema["properties"] for schema in (edit_plan.PLAN_SCHEMA, edit_plan.BUILDER_SCHEMA)
    )
    diagnosis = plan["diagnoses"]["items"]["properties"]
    assert diagnosis["cause"]["enum"] == list(edit_plan.FailureCause)
    assert diagnosis["repair"]["enum"] == list(edit_plan.RepairTag)
    for one in (plan["intents"], edits["edits"]):
        assert one["items"]["properties"]["op"]["enum"] == [
            op for op in edit_plan.EditOperation if op not in AGENT_OPERATIONS
        ]
    cards = (edit_plan.structure_schema(), edit_plan.CARD_SCHEMA)
    for schema in (
        edit_plan.PLAN_SCHEMA,
        edit_plan.BUILDER_SCHEMA,
        external_scorers.JUDGE_SCHEMA,
        *cards,
    ):
        Draft202012Validator.check_schema(schema)
        assert anthropic.transform_schema(json.loads(json.dumps(schema)))["type"] == "object"


JUDGED: dict[str, Any] = {
    "score": 1.0,
    "passed": True,
    "reason": "r",
    "feedback": "f",
    "errors": [],
}


def test_a_judges_reason_goes_to_the_ledger_alone() -> None:
    score = external_scorers.parse_judge_score(
        JUDGED | {"score": 0.25, "passed": False, "errors": [{"type": "wrong", "value": "w"}]}
    )

    assert (score.value, score.feedback, score.evidence) == (0.25, "f", "r\nwrong: w")


@pytest.mark.parametrize(
    "change", [{"score": 1.5}, {"score": -1.0}, {"score": float("nan")}, {"passed": False}]
)
def test_a_judge_that_contradicts_itself_has_not_judged(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="judge"):
        external_scorers.parse_judge_score(JUDGED | change)
