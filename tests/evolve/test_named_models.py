"""Models that a person named, in all roles of a run: one stand-in for OpenAI's protocols proposes,
judges and works.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driving_place import LETTERS, PERSON, POLITE, DrivingPlace, driving, judged, letters
from evolving import a_program, a_skill, a_task
from model_api import Asked, ModelApi, Reply, chats, fails, responds

from evolvable_evolve.evolution.candidates.static_gate import find_executable_change
from evolvable_evolve.evolution.executors.model_api import ApiSettings, ModelExecutor
from evolvable_evolve.evolution.ledger.run_reducer import read_records
from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.proposers.proposer_model import (
    ModelQuestion,
    ModelRole,
    make_proposer_model,
)
from evolvable_evolve.evolution.run_config import RunSettings, parse_executor_spec
from evolvable_evolve.evolution.start import start_run
from evolvable_evolve.evolution.task import ModelUsage, Price, TrialOutcome
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_tools.llm.endpoint import ModelEndpoint, NamedModels

KEY = "sk-secret-of-the-test"


def call_of(protocol: str, tool: str, **given: Any) -> Reply:
    """The answer of a model that uses a tool."""
    arguments = json.dumps(given)
    if protocol == "openai-responses":
        return responds(
            {
                "id": "f",
                "type": "function_call",
                "call_id": "c1",
                "name": tool,
                "arguments": arguments,
            }
        )
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return chats(None, stop="tool_calls", tool_calls=[call])


class Letters(ModelApi):
    """A model that writes letters by the skill polite, proposes that it says dear, and knows a kind
    letter.
    """

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if asked.body["model"] == "down":
            return fails(503, "overloaded", retry_after="60")
        messages = asked.body["messages"]
        if "tools" in asked.body:
            return self._work(messages)
        data = json.loads(messages[-1]["content"])
        return chats(json.dumps(self._think(data)))

    def _work(self, messages: list[dict[str, Any]]) -> Reply:
        read = next((one["content"] for one in messages if one["role"] == "tool"), None)
        if read is not None:
            word = re.search(r"kestrel-[0-9a-f]+", read)
            return chats(
                word[0] if word else f"{'dear' if 'Say dear' in read else 'stupid'} friend"
            )
        skills = re.findall(r"^- ([a-z-]+): ", messages[0]["content"], re.MULTILINE)
        if not skills:
            return chats("NONE" if "canary" in messages[1]["content"] else "stupid friend")
        return call_of("openai-chat", "read_skill", name=skills[0])

    def _think(self, data: dict[str, Any]) -> dict[str, Any]:
        if "answer" in data:
            kind = "dear" in str(data["answer"])
            return {
                "score": float(kind),
                "passed": kind,
                "reason": "so",
                "feedback": "Be kind.",
                "errors": [],
            }
        if "intents" in data:
            change = {"path": "SKILL.md", "old": "Say hello.", "new": "Say dear."}
            return {
                "edits": [{"op": "edit", "ref": data["intents"][0]["ref"], "changes": [change]}]
            }
        failed = [one["task"] for one in data["evidence"] if one["result"] == "failed"]
        intent = {"op": "edit", "ref": "skill:polite", "tasks": failed, "modification": "Say dear"}
        return {
            "diagnoses": [],
            "approaches": [],
            "intents": [intent],
            "summary": "s",
            "justification": "They failed.",
        }


def endpoint(api: ModelApi, name: str, model: str = "qwen", **more: Any) -> ModelEndpoint:
    return ModelEndpoint(
        name, "openai-chat", model, api.url, **{"attempts": 1, "price": (1.0, 2.0)} | more
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[DrivingPlace]:
    with driving(tmp_path) as place:
        yield place


def begun(place: DrivingPlace, api: ModelApi, tmp_path: Path) -> RunState:
    key = tmp_path / "key"
    key.write_text(KEY, encoding="utf-8")
    key.chmod(0o600)
    ends = [
        endpoint(api, "local", key_file=str(key)),
        endpoint(api, "busy", "down"),
        endpoint(api, "critical", "critic"),
    ]
    roles = {"proposer": ("busy", "local"), "judge": ("local", "busy"), "critic": ("critical",)}
    place.means = replace(place.means, models=NamedModels({one.name: one for one in ends}, roles))
    place.save(letters(judged()))
    spec = parse_executor_spec("local", None, place.means.models, scripted=True)
    options = {"iterations": 1, "brain": "busy,local", "test_repeats": 1, "concurrency": 2}
    started = start_run(place.library, PERSON, place.means, LETTERS, [POLITE], spec, options)
    assert started.judge == "local", "one judge for all scores, whatever others the role names"
    return place.drive()


def all_records(place: DrivingPlace) -> list[dict[str, Any]]:
    return [dict(one) for one in read_records(place.folder)]


def every_attempt_stands_between_its_reservation_and_its_bill(place: DrivingPlace) -> None:
    open_, tried = set(), dict[tuple[str, int], dict[str, list[dict[str, Any]]]]()
    for one in all_records(place):
        about = one.get("key"), one.get("attempt")
        if one["type"] == "started":
            open_.add(about)
        elif one["type"] == "attempted" and "key" in one:
            assert about in open_, "no request before its reservation, and none after its bill"
            tried.setdefault(about, {"executor": [], "judge": []})[one["role"]].append(one)
        elif one["type"] == "trial" and not one["trial"]["cached"]:
            key = one["trial"]["key"], one["attempt"]
            open_.remove(key)
            for role, billed in (("executor", "usage"), ("judge", "judging")):
                made, usage = tried[key][role], one["trial"][billed]
                sums = [
                    sum(each[name] for each in made) for name in ("input_tokens", "output_tokens")
                ]
                assert [*sums, len(made)] == [
                    usage[name] for name in ("input_tokens", "output_tokens", "calls")
                ]
                assert sum(each["cost"] for each in made) == pytest.approx(usage["cost"])
    assert tried and not open_


@pytest.mark.process
def test_a_whole_run_is_proposed_judged_and_done_by_an_openai_compatible_model(
    place: DrivingPlace, tmp_path: Path
) -> None:
    with Letters() as api:
        state = begun(place, api, tmp_path)

    assert not state.stopped, state.stopped
    [candidate] = [one for one in state.candidates.values() if one.digest != state.base]
    assert sum(candidate.scores.values()) > 0 == sum(candidate.parent_scores.values())
    assert place.records("verdict")
    tried = [(one["role"], one["model"], one["outcome"]) for one in place.records("attempted")]
    assert [one for one in tried if one[0] in ("proposer", "builder")] == [
        ("proposer", "busy:down", "status 503"),
        ("proposer", "local:qwen", "answered"),
        ("builder", "busy:down", "status 503"),
        ("builder", "local:qwen", "answered"),
    ]
    paid = [one for one in place.records("answered") if one["role"] in ("proposer", "builder")]
    assert [(one["by"], one["calls"], one["input_tokens"]) for one in paid] == [
        ("local:qwen", 2, 10)
    ] * 2
    assert state.bill.unpriced == 0 and state.bill.cost > 0, "the price is the model's own"
    every_attempt_stands_between_its_reservation_and_its_bill(place)
    calibrated = [one for one in tried if one == ("judge", "local:qwen", "answered")]
    assert len(calibrated) > 20, "those of the calibration, and one for each score"
    sent = sum(one.body["model"] == "qwen" for one in api.asked)
    noted = [
        one
        for one in all_records(place)
        if one["type"] == "attempted" and one["model"] == "local:qwen"
    ]
    assert len(noted) == sent, "no request without a record, those of the canary too"
    whole = "".join(
        path.read_text("utf-8", "replace")
        for path in place.folder.path.rglob("*")
        if path.is_file()
    )
    assert "local:qwen" in whole and KEY not in whole
    assert {
        one.headers.get("authorization") for one in api.asked if one.body["model"] == "qwen"
    } == {f"Bearer {KEY}"}
    assert "authorization" not in json.dumps(
        [one.headers for one in api.asked if one.body["model"] == "down"]
    )


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses"])
def test_a_model_works_with_tools_over_each_protocol_of_openai(
    tmp_path: Path, protocol: str
) -> None:
    work = tmp_path / "trial" / "work"
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("forty-two", encoding="utf-8")
    program = a_program(a_skill("notes", "Read the file.", description="Reads notes."))
    ends = chats("42") if protocol == "openai-chat" else responds("42")
    steps = [
        call_of(protocol, "read_skill", name="notes", path="SKILL.md"),
        call_of(protocol, "read_file", path="../secret"),
        call_of(protocol, "read_file", path="notes.txt"),
        ends,
    ]
    with ModelApi(*steps) as api:
        settings = ApiSettings(
            "", "qwen", api.url, price=Price(1.0, 10.0), scripted=True, protocol=protocol
        )
        task = a_task(prompt="What is in notes.txt?", timeout_s=20.0, expected="EXPECTED-ANSWER")
        rollout = asyncio.run(ModelExecutor(settings).run(task, program, 0, work))

    assert (rollout.output, rollout.outcome, rollout.read) == ("42", None, ("skill:notes",))
    assert rollout.usage == ModelUsage(40, 20, 4, pytest.approx(240e-6))
    last = api.asked[-1].body
    sent = last["messages"] if protocol == "openai-chat" else last["input"]
    results = [
        one.get("content") or one["output"]
        for one in sent
        if "tool_call_id" in one or "output" in one
    ]
    assert "Read the file." in results[0]
    assert results[1].startswith("Error: Only files")
    assert results[2] == "forty-two"
    assert "EXPECTED-ANSWER" not in json.dumps([one.body for one in api.asked])


def test_what_a_model_says_wrong_of_a_tool_and_what_fails_is_no_verdict(tmp_path: Path) -> None:
    odd = chats(
        None,
        tool_calls=[{"id": "c", "type": "function", "function": {"name": "x", "arguments": "{"}}],
    )
    for reply, outcome, detail in (
        (odd, None, ""),
        (fails(429, f"slow, {KEY}", retry_after="7"), TrialOutcome.INFRA_ERROR, "slow, [key]"),
        (
            Reply(307, b"", {"location": "http://127.0.0.1:9/steal"}),
            TrialOutcome.INFRA_ERROR,
            "307",
        ),
        (Reply(body=b"<html>"), TrialOutcome.INFRA_ERROR, ""),
        (Reply(body=b" " * 8_000_001), TrialOutcome.INFRA_ERROR, "8,000,000 bytes"),
    ):
        with ModelApi(reply, chats("done")) as api:
            executor = ModelExecutor(ApiSettings(KEY, "qwen", api.url, protocol="openai-chat"))
            rollout = asyncio.run(
                executor.run(a_task(prompt="x", timeout_s=20.0), a_program(), 0, tmp_path)
            )
        assert rollout.outcome == outcome and detail in rollout.detail
        assert KEY not in f"{rollout}"
        if outcome is None:
            assert api.asked[1].body["messages"][-1]["content"] == "Error: There is no tool x."
            continue
        [tried] = rollout.attempts
        assert rollout.usage == ModelUsage(tried.input_tokens, tried.output_tokens, 1), (
            "what failed is billed too"
        )
        refused = tried.outcome.startswith("status ")
        assert (tried.known, tried.input_tokens > 0) == (refused, not refused), (
            "the most that it can be, or nothing"
        )


def test_a_named_model_with_tools_may_run_what_it_reads_so_a_person_sees_the_change_first() -> None:
    before, after = (
        a_program(a_skill("notes", text)) for text in ("Read the file.", "Read the other file.")
    )

    assert find_executable_change(before, after, "model") and not find_executable_change(
        before, after, "simulated"
    )


@pytest.mark.process  # a run probes the sandbox
def test_an_endpoint_that_was_named_again_is_another_executor_and_the_run_says_so(
    place: DrivingPlace,
) -> None:
    with ModelApi() as api:
        place.save(letters())
        named = NamedModels({"local": endpoint(api, "local")})
        place.means = replace(place.means, models=named)
        spec = parse_executor_spec("local", None, named)
        start_run(place.library, PERSON, place.means, LETTERS, [POLITE], spec, {"iterations": 0})
        place.means = replace(
            place.means, models=NamedModels({"local": endpoint(api, "local", "another")})
        )
        with pytest.raises(Refused, match="model local is now another"):
            place.drive()
        place.means = replace(place.means, models=NamedModels())
        with pytest.raises(EvolvableError, match="No model is named 'local'"):
            place.drive()
        assert not api.asked


@pytest.mark.process  # a run probes the sandbox
def test_a_budget_in_dollars_ends_a_run_whose_model_has_no_price(place: DrivingPlace) -> None:
    with Letters() as api:
        named = NamedModels({"local": endpoint(api, "local", price=None)})
        place.means = replace(place.means, models=named)
        place.save(letters(judged()))
        options = {"iterations": 0, "brain": "local", "cost": 1.0}
        start_run(
            place.library,
            PERSON,
            place.means,
            LETTERS,
            [POLITE],
            parse_executor_spec("local", None, named),
            options,
        )
        state = place.drive()

    assert "price" in state.stopped and "unknown" in state.stopped and len(api.asked) < 5


@pytest.mark.process  # a run probes the sandbox
def test_a_judge_of_a_run_is_one_model_and_a_key_that_cannot_be_read_ends_it_before_it_begins(
    place: DrivingPlace,
) -> None:
    one = ModelEndpoint("local", "openai-chat", "m", "http://127.0.0.1:9", key_env="NOT_SET")
    place.means = replace(place.means, models=NamedModels({"local": one}))
    place.save(letters(judged()))

    with pytest.raises(InvalidArgument, match="NOT_SET, .*model local, is not set"):
        place.begin(brain="local")
    with pytest.raises(InvalidArgument, match="A run has one judge"):
        place.begin(brain="handoff", judge="local,anthropic")


@pytest.mark.process  # a run probes the sandbox
def test_a_critic_is_asked_where_the_person_named_one_and_each_model_of_a_list_is_reserved_for(
    place: DrivingPlace,
) -> None:
    with ModelApi(chats('{"word": "a"}'), chats('{"word": "b"}')) as api:
        ends = [endpoint(api, "local"), endpoint(api, "critical", "critic")]
        roles = {"critic": ("critical",)}
        host = replace(place.means, models=NamedModels({one.name: one for one in ends}, roles))
        place.save(letters())
        place.begin()
        brain = make_proposer_model(
            RunSettings("environment:x", brain="local, critical"), host, place.folder
        )
        schema = {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        }
        asked = ModelQuestion(ModelRole.PROPOSER, "Say a word.", {}, schema)
        answers = [asyncio.run(brain.ask(one)) for one in (asked, replace(asked, role="critic"))]  # type: ignore[arg-type]

    assert [one.by for one in answers] == ["local:qwen", "critical:critic"]
    assert [one.body["model"] for one in api.asked] == ["qwen", "critic"]
    assert getattr(brain, "tries", 0) == 2
