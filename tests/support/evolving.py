"""Small programs, tasks and trials for the tests of evolution."""

from evolvable_store.resource import Kind
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.evolve.programs import part_of, program_of
from evolvable_tools.evolve.rollout import Outcome, Trial, Usage
from evolvable_tools.evolve.task import ScorerSpec, Split, Task


def a_skill(name: str, *lines: str, description: str = "", more: str = "", **files: str) -> Part:
    """A skill; underscores in the names of other files are dots."""
    text = f"---\nname: {name}\ndescription: {description or f'Works with {name}.'}\n{more}---\n\n"
    data = {"SKILL.md": (text + "\n".join(lines or ("Do it.",)) + "\n").encode()}
    return part_of(Kind.SKILL, name, data | {path.replace("_", "."): each.encode() for path, each in files.items()})


def a_program(*parts: Part) -> Program:
    return program_of(parts)


def a_task(
    name: str = "t", prompt: str = "Do it.", expected: str | None = None, split: Split = Split.TRAIN, **more: object
) -> Task:
    return Task(name, prompt, ScorerSpec("exact"), split, f"digest-{name}", expected=expected, **more)  # type: ignore[arg-type]


def a_trial(task: Task, output: str = "", score: float | None = 0.0, trace: str = "", feedback: str = "") -> Trial:
    outcome = Outcome.PASS if score == 1.0 else Outcome.FAIL
    return Trial("k", task.id, "p", 0, outcome, score, Usage(), 1.0, output, trace, feedback)
