"""Who thinks in a run: the calling agent, the Anthropic API, a command, or a script."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest
from baselines.scripted_model import ScriptedModel
from model_api import ModelApi, asking, fails, says

from evolvable_evolve.evolution.proposers.proposer_model import (
    HandOffModel,
    ModelQuestion,
    ModelRole,
    NeedsAnswer,
    NoAnswer,
    PromptedModel,
    ProposerModel,
    named_model,
)
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.task import ModelUsage, Price, add_usage
from evolvable_store.errors import InvalidArgument
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.llm.language_model import WrongAnswer
from evolvable_tools.redaction.redactor import Redactor

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
QUESTION = ModelQuestion(ModelRole.PROPOSER, "Say a word.", {"seen": ["a", {"b": 1}]}, SCHEMA)
REDACTOR = Redactor()


def asked(brain: ProposerModel, question: ModelQuestion = QUESTION) -> Any:
    return asyncio.run(brain.ask(question))


def test_a_question_without_an_answer_stops_the_run_and_is_answered_later() -> None:
    answers: dict[str, Any] = {}
    brain = HandOffModel(answers.get, "host-model")

    with pytest.raises(NeedsAnswer) as waits:
        asked(brain)
    packet = waits.value.question.packet()
    answers[packet["question_id"]] = {"word": "heron"}

    assert asked(brain).value == {"word": "heron"}
    assert packet["answer_schema"] == SCHEMA and packet["data"] == QUESTION.data
    assert json.loads(json.dumps(packet)) == packet
    assert asked(brain).usage == ModelUsage(calls=1) and brain.label == "real model host-model"


def test_the_same_question_has_the_same_id_and_another_has_another() -> None:
    again = ModelQuestion(
        ModelRole.PROPOSER, "Say a word.", {"seen": ["a", {"b": 1}]}, dict(SCHEMA)
    )
    others = [
        ModelQuestion(ModelRole.BUILDER, "Say a word.", QUESTION.data, SCHEMA),
        ModelQuestion(ModelRole.PROPOSER, "Say a word!", QUESTION.data, SCHEMA),
        ModelQuestion(ModelRole.PROPOSER, "Say a word.", {"seen": ["a", {"b": 2}]}, SCHEMA),
    ]

    assert again.id == QUESTION.id
    assert len({QUESTION.id, *(other.id for other in others)}) == 4


@pytest.mark.parametrize(
    "value", [{"word": 1}, {}, [], {"word": "a", "more": 1}, None, {"word": {1, 2}}]
)
def test_an_answer_that_does_not_fit_is_never_taken(value: Any) -> None:
    with pytest.raises((WrongAnswer, NeedsAnswer)):
        asked(HandOffModel({QUESTION.id: value}.get))


def test_a_script_says_that_it_is_one() -> None:
    brain = ScriptedModel({ModelRole.PROPOSER: lambda question: {"word": question.data["seen"][0]}})

    assert asked(brain).value == {"word": "a"}
    assert brain.label == "scripted" and brain.asked == [QUESTION]


def test_the_api_answers_with_what_it_cost() -> None:
    with ModelApi(says('{"word": "heron"}')) as api, asking(api) as thinker:
        answer = asked(PromptedModel(thinker, redactor=REDACTOR, price=Price(1.0, 10.0)))

    assert answer.value == {"word": "heron"} and answer.by == "anthropic:claude-haiku-5-5"
    assert answer.usage == ModelUsage(10, 5, 1, pytest.approx(60e-6))


def test_an_answer_that_does_not_fit_is_asked_for_once_more_and_both_are_paid() -> None:
    with ModelApi(says('{"word": 3}'), says('{"word": "heron"}')) as api, asking(api) as thinker:
        answer = asked(PromptedModel(thinker, redactor=REDACTOR, price=Price(1.0, 10.0)))

    assert answer.value == {"word": "heron"}
    assert answer.usage == ModelUsage(20, 10, 2, pytest.approx(120e-6))
    assert "was not taken" in api.asked[1].body["system"][0]["text"]


@pytest.mark.parametrize(
    "replies", [[says("no"), says("no")], [says('{"word": 3}')] * 2, [fails(529, "busy")]]
)
def test_without_an_answer_what_was_spent_is_known_all_the_same(replies: list[Any]) -> None:
    with ModelApi(*replies) as api, asking(api) as thinker, pytest.raises(NoAnswer) as failed:
        asked(PromptedModel(thinker, redactor=REDACTOR, price=Price(1.0, 10.0)))

    calls = len(api.asked)
    assert failed.value.usage.calls == calls
    assert failed.value.usage.input_tokens == (0 if "529" in failed.value.text else 10 * calls)


def test_no_secret_leaves_with_a_question() -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    with ModelApi(says('{"word": "heron"}')) as api, asking(api) as thinker:
        asked(
            PromptedModel(thinker, redactor=REDACTOR),
            ModelQuestion(
                ModelRole.PROPOSER, "Say a word.", {"trace": f"export TOKEN={secret}"}, SCHEMA
            ),
        )

    assert secret not in json.dumps(api.asked[0].body) and "[redacted:" in json.dumps(
        api.asked[0].body
    )


@pytest.mark.process
def test_a_command_answers_with_what_its_envelope_says_it_cost(tmp_path: Path) -> None:
    event = {
        "type": "result",
        "result": '{"word": "heron"}',
        "usage": {"input_tokens": 30, "output_tokens": 4},
    }
    script = (
        "import sys; sys.stdin.read(); "
        f"print({json.dumps(json.dumps({**event, 'total_cost_usd': 0.5}))})"
    )
    thinker = CommandModel([sys.executable, "-S", "-c", script], 30.0, folder=tmp_path)

    answer = asked(PromptedModel(thinker, redactor=REDACTOR))

    assert (answer.value, answer.usage) == ({"word": "heron"}, ModelUsage(30, 4, 1, 0.5))


@pytest.mark.process
def test_who_is_no_longer_waited_for_stops_thinking(tmp_path: Path) -> None:
    note = tmp_path / "id"
    script = (
        f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); "
        "time.sleep(60)"
    )
    brain = PromptedModel(
        CommandModel([sys.executable, "-S", "-c", script], 60.0, folder=tmp_path), redactor=REDACTOR
    )

    async def given_up() -> None:
        asking = asyncio.create_task(brain.ask(QUESTION))
        await until(lambda: note.exists() and note.read_text())
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not psutil.pid_exists(int(note.read_text())))

    asyncio.run(given_up())


async def until(holds: Callable[[], object]) -> None:
    deadline = monotonic() + 20
    while not holds():
        assert monotonic() < deadline
        await asyncio.sleep(0.02)


def test_costs_add_up_and_an_unknown_one_makes_the_sum_unknown() -> None:
    known, unknown = ModelUsage(1, 2, 1, 0.5), ModelUsage(3, 4, 1, None)

    assert add_usage(known, known) == ModelUsage(2, 4, 2, 1.0)
    assert add_usage(known, unknown) == ModelUsage(4, 6, 2, None)
    assert add_usage(ModelUsage(), known) == known == add_usage(known, ModelUsage())


def test_a_model_outside_of_a_run_is_no_hand_off(tmp_path):
    with pytest.raises(InvalidArgument, match="A hand-off cannot answer here"):
        named_model("handoff", HostContext({}), tmp_path)
