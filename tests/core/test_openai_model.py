"""Models behind OpenAI's protocols: the real SDK against a scripted API on this machine.

Then all protocols alike.
"""

import gzip
import json
import logging
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from model_api import CUT, DRIPS, HANGS, ModelApi, Reply, chats, fails, responds, says

from evolvable_store.errors import EvolvableError
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.llm.endpoint import FallbackModel, ModelEndpoint, NamedModels, parse_endpoint
from evolvable_tools.llm.language_model import ModelAttempt, ProviderError, Request, WrongAnswer

platform.platform()  # OpenAI's SDK asks for it, and on some systems its first call runs `uname`

KEY = "sk-secret-of-the-test"
SCHEMA = {
    "type": "object",
    "properties": {"choice": {"type": "string", "enum": ["A", "B"]}},
    "required": ["choice"],
    "additionalProperties": False,
}
WRITTEN = '{"choice": "B"}'
PROTOCOLS = {"anthropic": says, "openai-chat": chats, "openai-responses": responds}
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
}


@pytest.fixture(scope="module")
def serving() -> Iterator[ModelApi]:
    with ModelApi() as api:
        yield api
        for model in OPENED.values():
            model.close()


@pytest.fixture
def api(serving: ModelApi) -> ModelApi:
    serving.asked.clear()
    serving.forget()
    return serving


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OPENED: dict[str, Any] = {}
"""Models by their endpoints; to open one takes 50 ms of the processor."""


def asked(
    api: ModelApi, protocol: str = "openai-chat", max_tokens: int = 100, **options: Any
) -> Any:
    """Asks the model once.

    Returns its answer, else its error, with the attempts; the key is nowhere in the error.
    """
    attempts: list[ModelAttempt] = []
    given = {"key": KEY, "attempts": 1, "price": (1.0, 2.0)} | options
    endpoint = ModelEndpoint("local", protocol, "qwen", api.url, **given)
    model = OPENED.setdefault(f"{endpoint} {endpoint.key}", endpoint.open(5.0))
    try:
        request = Request(
            "Choose one.", '{"task": "x"}', SCHEMA, max_tokens, attempted=attempts.append
        )
        answer: Any = model.think(request)
    except ProviderError as error:
        answer = error
        assert KEY not in "".join(traceback.format_exception(error)) and error.hint
    return answer, attempts


def test_each_protocol_is_given_the_question_and_the_schema_and_reports_one_priced_attempt(
    api: ModelApi, protocol: str
) -> None:
    api.then(PROTOCOLS[protocol](WRITTEN))

    answer, [attempt] = asked(api, protocol)

    assert answer == {"choice": "B"}
    assert (attempt.model, attempt.number, attempt.outcome, attempt.answered_by) == (
        "local:qwen",
        1,
        "answered",
        "scripted",
    )
    assert (attempt.input_tokens, attempt.output_tokens, attempt.known) == (10, 5, True)
    assert attempt.cost == pytest.approx(20e-6)
    [seen] = api.asked
    assert seen.path == PATHS[protocol] and seen.body["model"] == "qwen"
    assert any(KEY in value for value in seen.headers.values())
    assert '"enum": ["A", "B"]' in json.dumps(seen.body)
    assert 100 in (seen.body.get(name) for name in ("max_tokens", "max_output_tokens"))


@pytest.mark.parametrize(("structured", "form"), [("object", "json_object"), ("text", None)])
def test_an_endpoint_without_json_schemas_is_not_asked_for_one(
    api: ModelApi, structured: str, form: str | None
) -> None:
    api.then(chats(WRITTEN), responds(WRITTEN))

    assert (
        asked(api, structured=structured)[0]
        == asked(api, "openai-responses", structured=structured)[0]
        == {"choice": "B"}
    )
    assert api.asked[0].body.get("response_format", {}).get("type") == form
    assert api.asked[1].body["text"]["format"]["type"] == form or form is None
    assert api.asked[1].body["store"] is False


def test_an_endpoint_of_ones_own_needs_no_key_and_is_sent_none(api: ModelApi) -> None:
    api.then(chats(WRITTEN))

    assert asked(api, key="")[0] == {"choice": "B"}
    assert "authorization" not in api.asked[0].headers


def test_a_busy_api_is_asked_again_and_each_attempt_is_reported(
    api: ModelApi, protocol: str
) -> None:
    api.then(
        fails(429, "slow", retry_after_ms="1"),
        fails(500, "oops", retry_after_ms="1"),
        PROTOCOLS[protocol](WRITTEN),
    )

    answer, attempts = asked(api, protocol, attempts=3)

    assert answer == {"choice": "B"} and len(api.asked) == 3
    assert [(one.number, one.outcome, one.input_tokens, one.cost == 0) for one in attempts] == [
        (1, "status 429", 0, True),
        (2, "status 500", 0, True),
        (3, "answered", 10, False),
    ]


NO_ANSWERS = [
    (CUT, "cut off", "cannot be reached"),
    (HANGS, "timeout", "did not answer within"),
    (DRIPS, "timeout", "did not answer within"),
    (Reply(body=b'{"choices": ['), "no message", "could not be asked"),
    (Reply(body=b"[]"), "no message", "other than a message"),
    (
        Reply(body=b'{"choices": 3, "output": 3, "content": 3}'),
        "no message",
        "other than a message",
    ),
    (
        Reply(body=b"<html>", headers={"content-type": "text/html"}),
        "no message",
        "other than a message",
    ),
    (Reply(body=b" " * 8_000_001), "too large", "more than 8,000,000 bytes"),
    (
        Reply(body=gzip.compress(b" "), headers={"content-encoding": "gzip"}),
        "too large",
        "compressed",
    ),
]


def test_what_may_have_been_charged_for_is_not_repeated_and_counts_as_the_most_it_can_be(
    api: ModelApi, protocol: str
) -> None:
    for reply, outcome, said in NO_ANSWERS:
        api.then(reply)

        error, [attempt] = asked(
            api, protocol, attempts=3, timeout=0.3 if reply.hang or reply.drip else None
        )

        assert said in str(error)
        assert (attempt.outcome, attempt.known, attempt.output_tokens) == (outcome, False, 100)
        assert attempt.input_tokens > 500
    assert len(api.asked) == len(NO_ANSWERS)


def test_an_api_that_asks_for_a_long_wait_is_not_waited_for(api: ModelApi) -> None:
    for wait in ("3600", "Sun, 21 Nov 2286 00:00:00 GMT", "nan"):
        api.then(fails(429, f"slow down, {KEY}", retry_after=wait))

        error, [attempt] = asked(api, attempts=3)

        assert "answered 429: slow down, [key]" in str(error)
        assert f"wait {wait} s" in str(error) and attempt.output_tokens == 0


def test_a_wrong_name_of_a_model_says_what_to_check(api: ModelApi, protocol: str) -> None:
    api.then(fails(404, "model 'qwen' not found"))

    error, [attempt] = asked(api, protocol, attempts=3)

    assert (
        "answered 404: model 'qwen' not found" in str(error) and "name of the model" in error.hint
    )
    assert attempt.outcome == "status 404"


def refusing(protocol: str) -> Reply:
    content = [{"type": "refusal", "refusal": "I will not"}]
    item = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    return {
        "anthropic": says(
            "", stop="refusal", stop_details={"type": "refusal", "explanation": "I will not"}
        ),
        "openai-chat": chats(None, refusal="I will not"),
        "openai-responses": responds(item),
    }[protocol]


def test_a_refusal_is_an_answer_that_was_paid_for(api: ModelApi, protocol: str) -> None:
    api.then(refusing(protocol))

    error, [attempt] = asked(api, protocol, attempts=3)

    assert "refused to answer: I will not" in str(error)
    assert (attempt.outcome, attempt.output_tokens) == ("refused to answer", 5)


def test_an_empty_and_a_cut_answer_and_one_by_another_schema_say_so(api: ModelApi) -> None:
    api.then(chats(""), chats(None), responds(), chats('{"choice"', stop="length"))
    api.then(
        responds("", status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        chats('{"choice": "Z"}'),
    )

    assert "without a JSON object" in str(asked(api)[0]) and "without a JSON object" in str(
        asked(api)[0]
    )
    assert "without a JSON object" in str(asked(api, "openai-responses")[0])
    assert "cut off" in str(asked(api)[0]) and "cut off" in str(asked(api, "openai-responses")[0])
    error = asked(api)[0]
    assert isinstance(error, WrongAnswer) and error.answer == {"choice": "Z"}


def test_a_redirect_to_another_host_is_not_followed_and_the_key_goes_nowhere(
    api: ModelApi, protocol: str
) -> None:
    with ModelApi(PROTOCOLS[protocol](WRITTEN)) as other:
        for status in (301, 302, 303, 307, 308):
            api.then(Reply(status, b"", {"location": f"{other.url}/steal"}))

            error, [attempt] = asked(api, protocol, attempts=3)

            assert f"answered {status}" in str(error) and "Redirects are not followed" in error.hint
            assert attempt.outcome == f"status {status}" and not other.asked


SET_BY_A_PROJECT = {
    "OPENAI_API_KEY": "sk-theirs",
    "OPENAI_ADMIN_KEY": "sk-theirs",
    "OPENAI_ORG_ID": "org-theirs",
    "OPENAI_PROJECT_ID": "proj-theirs",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-theirs\nX-Theirs: 1\nHost: theirs.example",
    "ANTHROPIC_API_KEY": "sk-theirs",
    "ANTHROPIC_AUTH_TOKEN": "sk-theirs",
    "ANTHROPIC_CUSTOM_HEADERS": (
        "x-api-key: sk-theirs\nAuthorization: Bearer sk-theirs\nanthropic-beta: theirs\n"
        "anthropic-version: theirs\ncontent-length: 3\ncontent-type: text/theirs"
    ),
}


def test_no_variable_that_a_project_sets_changes_the_address_or_the_key_of_a_model(
    api: ModelApi, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelApi() as other:
        for name in (
            "OPENAI_BASE_URL",
            "ANTHROPIC_BASE_URL",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ):
            monkeypatch.setenv(name, other.url)
        for name, value in SET_BY_A_PROJECT.items():
            monkeypatch.setenv(name, value)
        api.then(PROTOCOLS[protocol](WRITTEN), PROTOCOLS[protocol](WRITTEN))
        OPENED.clear()  # what an SDK reads when it is opened is read now

        assert asked(api, protocol)[0] == {"choice": "B"}
        if protocol != "anthropic":
            assert asked(api, protocol, key="")[0] == {"choice": "B"}

        sent = json.dumps([one.headers for one in api.asked])
        assert "theirs" not in sent and not other.asked
        names = {"host", "accept", "accept-encoding", "content-type", "content-length"}
        assert {name for one in api.asked for name in one.headers} <= names | {
            "x-api-key",
            "anthropic-version",
            "authorization",
        }
        assert api.asked[0].headers["host"] == api.url.removeprefix("http://")


def test_the_key_is_in_no_log_of_the_libraries(
    api: ModelApi, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    api.then(fails(401, f"who is {KEY}?"))
    with caplog.at_level(logging.DEBUG):
        error, _ = asked(api, protocol)

    assert "who is [key]?" in str(error)
    assert len(caplog.records) > 3 and KEY not in caplog.text


def test_the_next_model_answers_where_the_first_gives_no_answer(api: ModelApi) -> None:
    api.then(fails(400, "no"), says(WRITTEN))
    attempts: list[ModelAttempt] = []
    first = ModelEndpoint("local", "openai-chat", "qwen", api.url, attempts=1).open(5.0)
    model = FallbackModel(
        [first, ModelEndpoint("claude-api", "anthropic", "big", api.url, key=KEY).open(5.0)]
    )

    assert model.think(Request("Choose one.", "{}", SCHEMA, attempted=attempts.append)) == {
        "choice": "B"
    }
    model.close()

    assert model.name == "local:qwen | claude-api:big" and model.tries == 2
    assert [(one.model, one.outcome) for one in attempts] == [
        ("local:qwen", "status 400"),
        ("claude-api:big", "answered"),
    ]


@pytest.mark.process
def test_a_command_behind_a_model_is_an_attempt_too_with_what_it_told(
    api: ModelApi, tmp_path: Path
) -> None:
    told = {
        "type": "result",
        "result": WRITTEN,
        "usage": {"input_tokens": 7, "output_tokens": 3},
        "total_cost_usd": 0.5,
    }
    script = tmp_path / "said.py"
    seen: list[tuple[str, str, int, int, bool, float | None]] = []
    for said in (json.dumps(told), WRITTEN, "I do not know."):
        api.then(fails(429, "busy", retry_after="60"))
        script.write_text(f"print({said!r})", encoding="utf-8")
        first = ModelEndpoint("local", "openai-chat", "qwen", api.url, price=(1.0, 2.0)).open(5.0)
        model, attempts = (
            FallbackModel([first, CommandModel([sys.executable, "-IS", str(script)])]),
            list[ModelAttempt](),
        )
        with suppress(ProviderError):
            model.think(Request("Choose one.", "{}", SCHEMA, 100, attempted=attempts.append))
        model.close()
        assert [one.cost for one in attempts[:1]] == [0.0]
        one = attempts[-1]
        seen.append(
            (
                one.model.partition(":")[0],
                one.outcome,
                one.output_tokens,
                len(attempts),
                one.known,
                one.cost,
            )
        )

    assert seen == [
        ("command", "answered", 3, 2, True, 0.5),
        ("command", "answered", 100, 2, False, None),
        ("command", "no answer", 100, 2, False, None),
    ]


def test_where_no_model_answers_the_reason_of_each_is_said(api: ModelApi) -> None:
    api.then(fails(400, "first"), fails(401, "second"))
    models = [
        ModelEndpoint(name, "openai-chat", "m", api.url, attempts=1).open(5.0)
        for name in ("a", "b")
    ]

    with pytest.raises(ProviderError, match=r"a:m answered 400: first .* b:m answered 401: second"):
        FallbackModel(models).think(Request("Choose one.", "{}", SCHEMA))
    for one in models:
        one.close()


# What a person names.


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"protocol": "telnet"}, "protocol is 'telnet'"),
        ({"model": ""}, "model is missing"),
        ({"model": 3}, "model is no text"),
        ({"key": "sk-x"}, "holds no keys"),
        ({"api_key": "sk-x"}, "holds no keys"),
        ({"adress": "x"}, "no setting 'adress'"),
        ({"address": "file:///etc/passwd"}, "http"),
        ({"address": "http://"}, "a host"),
        ({"address": "http://user:pass@h/v1"}, "more than a host and a path"),
        ({"address": "http://h/v1?key=1"}, "more than a host and a path"),
        ({"address": "http://[h"}, "address cannot be parsed"),
        ({"key_file": "key", "key_env": ""}, "no whole path"),
        ({"key_file": "/k", "key_env": "K"}, "one is enough"),
        ({"price": [1]}, "two numbers"),
        ({"price": [1, -1]}, "from 0 to"),
        ({"price": [True, 1]}, "from 0 to"),
        ({"timeout": 0}, "timeout"),
        ({"attempts": 1000}, "attempts"),
        ({"structured": "yaml"}, "structured"),
    ],
)
def test_a_table_that_names_no_model_says_why(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_endpoint("local", {"protocol": "openai-chat", "model": "m", **table})


def key_of(tmp_path: Path, write: Callable[[Path], object]) -> str:
    path = tmp_path / "key"
    write(path)
    named = NamedModels(
        {"m": parse_endpoint("m", {"protocol": "anthropic", "model": "x", "key_file": str(path)})}
    )
    return named.resolve("m").key


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_file_of_a_key_is_private_and_holds_one(tmp_path: Path) -> None:
    def holding(data: bytes, mode: int = 0o600) -> Callable[[Path], object]:
        return lambda path: (path.write_bytes(data), path.chmod(mode))

    assert key_of(tmp_path, holding(f"{KEY}\n".encode())) == KEY
    for write, said in (
        (holding(KEY.encode(), 0o644), "other accounts can read it"),
        (holding(b"two words"), "holds no key"),
        (holding("schlüssel".encode()), "holds no key"),
        (holding(b""), "holds no key"),
        (holding(b"x" * 20_000), "holds no key"),
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: os.mkfifo(path, 0o600), "is no file"),
    ):
        with pytest.raises(EvolvableError, match=said) as failure:
            key_of(tmp_path, write)
        assert KEY not in failure.value.text and "two words" not in failure.value.text


def test_a_key_comes_from_the_named_variable_alone() -> None:
    one = parse_endpoint("m", {"protocol": "openai-chat", "model": "x", "key_env": "MY_KEY"})

    assert NamedModels({"m": one}, variables={"MY_KEY": KEY}).resolve("m").key == KEY
    assert KEY not in repr(NamedModels({"m": one}, variables={"MY_KEY": KEY}).resolve("m"))
    with pytest.raises(EvolvableError, match=r"MY_KEY.* model m\b.* not set"):
        NamedModels({"m": one}, variables={"OPENAI_API_KEY": KEY}).resolve("m")


def test_a_proxy_is_for_other_machines(api: ModelApi, protocol: str) -> None:
    written = PROTOCOLS[protocol](WRITTEN)
    api.then(written)
    with ModelApi(written) as proxy:
        addresses = {"here": api.url, "there": "http://models.example/v1"}
        ends = {
            name: ModelEndpoint(name, protocol, "x", url, key=KEY, key_env="K")
            for name, url in addresses.items()
        }
        named = NamedModels(ends, variables={"K": KEY}, proxy=proxy.url)
        for name in named.endpoints:
            model = named.resolve(name).open(5.0)
            assert model.think(Request("Choose one.", "{}", SCHEMA)) == {"choice": "B"}
            model.close()

    [seen] = proxy.asked
    assert (
        seen.path == f"http://models.example/v1{PATHS[protocol]}"
        and seen.headers["host"] == "models.example"
    )
    assert len(api.asked) == 1
