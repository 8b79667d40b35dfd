"""Small programs, tasks and trials for the tests of evolution."""

from evolvable_evolve.evolution.candidates.programs import (
    Program,
    ProgramPart,
    make_part,
    make_program,
)
from evolvable_evolve.evolution.task import ModelUsage, ScorerSpec, Split, Task, Trial, TrialOutcome
from evolvable_store.resource import Kind


def a_skill(
    name: str, *lines: str, description: str = "", more: str = "", **files: str
) -> ProgramPart:
    """A skill; underscores in the names of other files are dots."""
    text = f"---\nname: {name}\ndescription: {description or f'Works with {name}.'}\n{more}---\n\n"
    data = {"SKILL.md": (text + "\n".join(lines or ("Do it.",)) + "\n").encode()}
    return make_part(
        Kind.SKILL,
        name,
        data | {path.replace("_", "."): each.encode() for path, each in files.items()},
    )


def a_program(*parts: ProgramPart) -> Program:
    return make_program(parts)


def a_task(
    name: str = "t",
    prompt: str = "Do it.",
    expected: str | None = None,
    split: Split = Split.TRAIN,
    **more: object,
) -> Task:
    return Task(
        name, prompt, ScorerSpec("exact"), split, f"digest-{name}", expected=expected, **more
    )  # type: ignore[arg-type]


def a_trial(
    task: Task, output: str = "", score: float | None = 0.0, trace: str = "", feedback: str = ""
) -> Trial:
    outcome = TrialOutcome.PASS if score == 1.0 else TrialOutcome.FAIL
    return Trial("k", task.id, "p", 0, outcome, score, ModelUsage(), 1.0, output, trace, feedback)
