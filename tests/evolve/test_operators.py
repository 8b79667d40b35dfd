"""The five operators, what holds of every composition of them, and what no composition can get
around.
"""

import asyncio
import dataclasses
import typing

import pytest
from evolve_runs import program, skill

from evolvable_evolve.evolution import operators
from evolvable_evolve.evolution.candidates.programs import (
    Program,
    make_part,
    make_program,
    program_from_json,
    program_to_json,
)
from evolvable_evolve.evolution.operators import (
    EvaluationResult,
    Improve,
    Mask,
    MaskViolation,
    OptimizerStep,
    commit_if_better,
    make_mask,
)
from evolvable_store.resource import Kind

BASE = program("One.")


async def _thought(traces: object, now: Program) -> list[str]:
    return ["a hypothesis"]


async def _chosen(now: Program, hypotheses: typing.Sequence[str]) -> list[str]:
    return list(hypotheses)


def _builder(after: Program):
    async def build(now: Program, changes: typing.Sequence[str]) -> Program:
        return after

    return build


def _evaluator(delta: float | None, safe: bool = True):
    async def evaluate(candidate: Program, against: Program) -> EvaluationResult:
        return EvaluationResult(candidate, against, safe, delta)

    return evaluate


def _step(
    after: Program, delta: float | None, safe: bool = True, mode: str = "skill_only"
) -> OptimizerStep:
    improve = Improve(_builder(after), make_mask(mode, BASE))
    return OptimizerStep(_thought, _chosen, improve, _evaluator(delta, safe), commit_if_better)


def _with(kind: Kind, name: str, files: dict[str, bytes]) -> Program:
    return make_program([*BASE.parts, make_part(kind, name, files)])


@pytest.mark.parametrize(
    ("delta", "safe", "accepted"),
    [
        (0.1, True, True),
        (0.0, True, False),
        (-0.1, True, False),
        (None, True, False),
        (0.5, False, False),
    ],
)
def test_a_step_accepts_what_is_safe_and_better_and_returns_what_was_there_before_otherwise(
    delta, safe, accepted
):
    after = program("One.", "Two.")

    committed = asyncio.run(_step(after, delta, safe)([], BASE))

    assert committed.accepted is accepted
    assert committed.program == (after if accepted else BASE)


def test_a_tie_goes_to_what_is_smaller():
    assert asyncio.run(_step(program(), 0.0)([], BASE)).accepted


def test_what_changed_nothing_is_not_even_evaluated():
    step = dataclasses.replace(_step(BASE, 1.0), evaluate=None)

    assert asyncio.run(step([], BASE)).why == "nothing changed"


def test_the_mask_stops_whatever_a_builder_returns():
    prompt = _with(Kind.PROMPT, "greet", {"PROMPT.md": b"---\nname: greet\n---\nHi"})

    with pytest.raises(MaskViolation, match="prompt:greet"):
        asyncio.run(_step(prompt, 1.0)([], BASE))
    assert asyncio.run(_step(prompt, 1.0, mode="any")([], BASE)).accepted
    with pytest.raises(MaskViolation, match="skill:forms"):
        asyncio.run(_step(Program(), 1.0, mode="prompt_only")([], BASE))


def test_what_is_frozen_changes_in_no_mode_and_neither_does_the_soul():
    text = skill("forms").replace("---\n#", 'metadata:\n  evolvable: "false"\n---\n#')
    frozen = make_program([make_part(Kind.SKILL, "forms", {"SKILL.md": text.encode()})])
    soul = make_program([*frozen.parts, make_part(Kind.MEMORY, "SOUL", {"SOUL.md": b"I am"})])

    for after in (program("New."), Program(), soul):
        with pytest.raises(MaskViolation):
            make_mask("any", frozen).check(frozen, after)


def test_an_environment_changes_in_no_mode():
    assert all(Kind.ENVIRONMENT not in kinds for kinds in operators.MODES.values())
    with pytest.raises(MaskViolation):
        Mask(operators.MODES["any"]).check(
            BASE, _with(Kind.ENVIRONMENT, "easy", {"ENVIRONMENT.md": b"x"})
        )


def test_nothing_is_committed_that_was_not_evaluated():
    """By its type Commit sees no program, but what Evaluate found of one."""

    assert typing.get_args(operators.Commit) == ([EvaluationResult], operators.CommitResult)
    assert typing.get_type_hints(OptimizerStep)["improve"] == Improve[operators.Change]


def test_a_program_is_the_same_after_it_was_kept():
    kept = _with(
        Kind.TOOL, "run", {"TOOL.md": b"---\nname: run\n---\n", "bin/data": bytes(range(256))}
    )

    assert program_from_json(program_to_json(kept)) == kept
    assert program_from_json(program_to_json(kept)).digest == kept.digest
