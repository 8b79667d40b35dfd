"""A script as a brain: for tests and demonstrations, and honest about it."""

from collections.abc import Callable, Mapping
from typing import Any

from evolvable_tools.evolve.brains.brain import Answer, Question, Role, checked
from evolvable_tools.evolve.rollout import Usage

ONE_CALL = Usage(calls=1)

Script = Callable[[Question], Mapping[str, Any]]


class Scripted:
    """Answers by functions, one for each role. `asked` keeps every question in order."""

    label = "scripted"

    def __init__(self, scripts: Mapping[Role, Script], name: str = "scripted", usage: Usage = ONE_CALL) -> None:
        self.name = name
        self.asked: list[Question] = []
        self._scripts, self._usage = dict(scripts), usage

    async def ask(self, question: Question) -> Answer:
        """Returns what the script of the role says. Raises WrongAnswer when it does not fit, KeyError without one."""
        self.asked.append(question)
        value = self._scripts[question.role](question)
        return Answer(checked(question, value, self.name), self._usage, self.name)
