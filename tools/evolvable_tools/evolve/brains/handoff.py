"""The calling agent as a brain: a question goes out as a packet, and the run goes on when the answer is there."""

from collections.abc import Mapping
from typing import Any

from evolvable_tools.evolve.brains.brain import Answer, NeedsAnswer, Question, checked
from evolvable_tools.evolve.rollout import Usage


class HandOff:
    """Answers from what was submitted, by the ids of the questions; a question without an answer stops the run.

    Whoever runs again with one answer more comes to the same place and goes on from there. answers: of one run, as its
    ledger has them; the mapping may grow. model: which model answers, where the caller says so.
    """

    def __init__(self, answers: Mapping[str, Mapping[str, Any]], model: str = "") -> None:
        self._answers = answers
        self.name = f"hand-off:{model}" if model else "hand-off"
        self.label = f"real model {model or 'of the calling agent'}"

    async def ask(self, question: Question) -> Answer:
        """Returns what was submitted. Raises NeedsAnswer, WrongAnswer for one that does not fit.

        What the caller spent on it is its own affair and unknown here: no tokens, one call, no cost.
        """
        given = self._answers.get(question.id)
        if given is None:
            raise NeedsAnswer(question)
        return Answer(checked(question, given, self.name), Usage(calls=1), self.name)
