"""A script as a brain: for tests and demonstrations, and honest about it."""

from collections.abc import Callable, Mapping
from typing import Any

from evolvable_evolve.evolution.proposers.proposer_model import (
    ModelAnswer,
    ModelQuestion,
    ModelRole,
    check_answer,
)
from evolvable_evolve.evolution.task import ModelUsage

ONE_CALL = ModelUsage(calls=1)

Script = Callable[[ModelQuestion], Mapping[str, Any]]


class ScriptedModel:
    """Answers by functions, one for each role. `asked` keeps every question in order."""

    label = "scripted"

    def __init__(
        self,
        scripts: Mapping[ModelRole, Script],
        name: str = "scripted",
        usage: ModelUsage = ONE_CALL,
    ) -> None:
        self.name = name
        self.asked: list[ModelQuestion] = []
        self._scripts, self._usage = dict(scripts), usage

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return what the script of the role says.

        Raises WrongAnswer when it does not fit, KeyError without one.
        """
        self.asked.append(question)
        value = self._scripts[question.role](question)
        return ModelAnswer(check_answer(question, value, self.name), self._usage, self.name)
