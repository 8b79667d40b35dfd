"""What every brain is: something that answers one question of a role, now or later."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.rollout import Usage
from evolvable_tools.llm import ProviderError, WrongAnswer, schema_problem


class Role(StrEnum):
    """What a brain is asked to be. Proposer and builder are never asked in one conversation."""

    PROPOSER = "proposer"
    BUILDER = "builder"
    JUDGE = "judge"


@dataclass(frozen=True)
class Question:
    """One question, whole: whoever answers needs nothing else.

    instructions: ours, the same for every question of a role. data: JSON, words of tasks, tools and models, never to be
    obeyed; redacted. schema: JSON schema of the answer, an object. max_tokens: of the longest answer.
    """

    role: Role
    instructions: str
    data: Mapping[str, Any]
    schema: Mapping[str, Any]
    max_tokens: int = 16_384

    @cached_property
    def id(self) -> str:
        """Names the question by its content: the same question asked again has the same id."""
        whole = json.dumps([self.role, self.instructions, self.data, self.schema], sort_keys=True, ensure_ascii=False)
        return f"{self.role}-{hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def packet(self, how_to_answer: str = "") -> dict[str, Any]:
        """Returns the question as JSON for a caller that thinks by itself, with how it hands its answer back."""
        return {
            "question_id": self.id,
            "role": str(self.role),
            "instructions": self.instructions,
            "data": self.data,
            "answer_schema": self.schema,
            "how_to_answer": how_to_answer,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a brain said. It fits the schema. usage: what it cost, a failed first attempt included."""

    value: Mapping[str, Any]
    usage: Usage
    by: str


class Brain(Protocol):
    """Somebody who answers questions. `label` says what its answers are: `scripted` or `real model NAME`."""

    @property
    def name(self) -> str:
        """Who it is; another model has another name."""
        ...

    @property
    def label(self) -> str:
        """What stands beside every figure that came of it."""
        ...

    async def ask(self, question: Question) -> Answer:
        """Returns the answer. Raises NeedsAnswer when somebody outside must give it first, NoAnswer when none came."""
        ...


class NeedsAnswer(EvolvableError):
    """A question waits for somebody outside of this process. The run stops here and goes on with the answer."""

    def __init__(self, question: Question) -> None:
        hint = "Answer it with evolve_submit; evolve_pending shows it."
        super().__init__(f"The run waits for an answer of its {question.role} ({question.id}).", hint)
        self.question = question


class NoAnswer(ProviderError):
    """Nobody gave an answer that fits. `usage` is what was spent on it all the same."""

    def __init__(self, text: str, hint: str, usage: Usage | None = None) -> None:
        super().__init__(text, hint)
        self.usage = usage or Usage()


def checked(question: Question, value: object, who: str) -> dict[str, Any]:
    """Returns an answer that fits the question's schema. Raises WrongAnswer that says where it does not."""
    answer = json_value(value)
    fault = schema_problem(answer, question.schema)
    if fault or not isinstance(answer, dict):
        hint = "Answer with one JSON object that fits answer_schema."
        raise WrongAnswer(f"{who} answered by another schema: {fault or 'it is no object'}.", hint, {})
    return answer


def json_value(value: object) -> Any:
    """Returns a value as JSON has it: mappings as dicts, tuples as lists. Raises WrongAnswer for any other."""
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError):
        raise WrongAnswer("The answer is no JSON.", "Answer with one JSON object.", {}) from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
