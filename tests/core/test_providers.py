"""Who can think: the real SDK against a scripted API, and real child processes."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from model_api import HANGS, ModelApi, Reply, fails, opened, says

from evolvable_store.errors import InvalidArgument
from evolvable_tools.llm.api_model import ApiModel
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.llm.headless_clients import CLAUDE_CODE, CODEX, HEADLESS_COMMANDS, command_of
from evolvable_tools.llm.language_model import ProviderError, Request, WrongAnswer

KEY = "sk-ant-secret-of-the-test"
SCHEMA = {
    "type": "object",
    "properties": {
        "choice": {"type": "string", "enum": ["A", "B", "none"]},
        "why": {"type": "string"},
    },
    "required": ["choice", "why"],
    "additionalProperties": False,
}
ASKED = Request("Choose one.", '{"task": "fill in a form"}', SCHEMA)
ANSWER = {"choice": "B", "why": "it fills forms"}
WRITTEN = json.dumps(ANSWER)


@pytest.fixture
def api() -> Iterator[ModelApi]:
    with ModelApi() as api:
        yield api


@pytest.fixture
def claude(api: ModelApi) -> Iterator[ApiModel]:
    thinker = opened(KEY, api.url)
    yield thinker
    thinker.close()


def refused(thinker: Any, request: Request = ASKED) -> ProviderError:
    """Returns how it failed, with the key nowhere in it."""
    with pytest.raises(ProviderError) as failure:
        thinker.think(request)
    assert KEY not in f"{failure.value.text}{failure.getrepr(chain=True)}".replace(
        f'KEY = "{KEY}"', ""
    )
    assert failure.value.hint
    return failure.value


def test_the_api_is_given_the_schema_and_the_instructions_for_its_cache(
    api: ModelApi, claude: ApiModel
) -> None:
    api.then(says(WRITTEN))

    assert claude.think(ASKED) == ANSWER

    asked = api.asked[0]
    assert asked.path == "/v1/messages"
    assert any(KEY in value for value in asked.headers.values())
    assert asked.body["model"] == "claude-haiku-5-5"
    assert asked.body["system"] == [
        {"type": "text", "text": "Choose one.", "cache_control": {"type": "ephemeral"}}
    ]
    assert asked.body["messages"] == [{"role": "user", "content": ASKED.data}]
    schema = asked.body["output_config"]["format"]["schema"]
    assert schema["properties"]["choice"]["enum"] == ["A", "B", "none"]


def test_a_thought_before_the_answer_is_passed_over(api: ModelApi, claude: ApiModel) -> None:
    api.then(says(WRITTEN, thought='{"choice": "A", "why": "?"}'))

    assert claude.think(ASKED) == ANSWER


def test_a_busy_api_is_asked_again(api: ModelApi, claude: ApiModel) -> None:
    api.then(fails(429, "slow down", retry_after_ms="1"), says(WRITTEN))

    assert claude.think(ASKED) == ANSWER
    assert len(api.asked) == 2


@pytest.mark.parametrize("wait", ["3600", "Sun, 21 Nov 2286 00:00:00 GMT", "inf", "nan"])
def test_nobody_waits_for_an_api_that_asks_for_an_hour(
    api: ModelApi, claude: ApiModel, wait: str
) -> None:
    api.then(fails(429, "slow down", retry_after=wait))

    error = refused(claude)

    assert "answered 429: slow down" in str(error) and f"wait {wait} s" in str(error)
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("status", "advice"),
    [(400, "structured output"), (401, "API key"), (404, "name of the model"), (529, "later")],
)
def test_a_refused_request_says_what_the_api_said_and_what_to_do(
    api: ModelApi, claude: ApiModel, status: int, advice: str
) -> None:
    api.then(fails(status, f"no\nluck with {KEY}", x_should_retry="false"))

    error = refused(claude)

    assert str(error) == f"anthropic:claude-haiku-5-5 answered {status}: no luck with [key]"
    assert advice in error.hint


def test_an_api_that_hangs_is_left_at_the_timeout(api: ModelApi) -> None:
    api.then(HANGS)
    thinker = opened(KEY, api.url, timeout=0.2, attempts=1)

    assert "did not answer within 0.2 s" in str(refused(thinker))
    thinker.close()


def test_an_address_where_nobody_listens_is_named(api: ModelApi) -> None:
    thinker = opened(KEY, "http://127.0.0.1:1", attempts=1)

    assert "cannot be reached at 127.0.0.1:1." in str(refused(thinker))
    thinker.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://user:s3cret@127.0.0.1:1", "cannot be reached at 127.0.0.1:1."),
        ("http://user:s3@cret@127.0.0.1:1", "cannot be reached at 127.0.0.1:1."),
        ("http://user:s3cret@[::1]:1/v1?key=s3cret", "cannot be reached at [::1]:1."),
        ("http://127.0.0.1:1/s3cret", "cannot be reached at 127.0.0.1:1."),
        ("http://s3cret/#s3cret@127.0.0.1:1", "cannot be reached at its address."),
        ("user:s3cret@127.0.0.1:1", "cannot be reached at its address."),
        ("http://[s3cret", "cannot be reached at its address."),
        ("http://", "cannot be reached at its address."),
        ("http://user:s3cret/s3cret@127.0.0.1:1", "has an invalid address."),
        ("http://user:s3\ncret@127.0.0.1:1", "has an invalid address."),
    ],
)
def test_of_an_address_the_host_alone_is_shown(address: str, said: str) -> None:
    thinker = opened(KEY, address, timeout=2.0, attempts=1)

    error = refused(thinker)
    thinker.close()

    assert said in str(error)
    assert not {"s3cret", "cret", "user"} & set(re.split(r"\W+", error.text))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (says("", stop="refusal"), "refused to answer"),
        (says('{"choice": "B"', stop="max_tokens"), "cut off"),
        (says("I would say B."), "without a JSON object: I would say B."),
        (says(""), "without a JSON object"),
        (says("[" * 100_000), "without a JSON object"),
        (Reply(body=b"<html>a proxy</html>"), "could not be asked"),
        (Reply(body=b"[]"), "other than a message"),
        (Reply(body=b'{"content": "text"}'), "other than a message"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(
    api: ModelApi, claude: ApiModel, reply: Reply, said: str
) -> None:
    api.then(reply)

    assert said in str(refused(claude))


def test_an_answer_by_another_schema_is_kept_in_the_error(api: ModelApi, claude: ApiModel) -> None:
    api.then(says('{"choice": "Z", "why": "because"}'))

    error = refused(claude)

    assert isinstance(error, WrongAnswer)
    assert error.answer == {"choice": "Z", "why": "because"}
    assert "'Z' is not one of" in str(error)


@pytest.mark.parametrize("key", [None, "", "  ", "sk ant", "sk\nant", "schlüssel"])
def test_without_a_usable_key_nothing_is_sent(api: ModelApi, key: str | None) -> None:
    assert "API key" in str(refused(opened(key, api.url)))
    assert not api.asked


def test_the_key_and_the_address_come_from_nowhere_else(
    api: ModelApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the server nobody reads the environment."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-other")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)

    assert "no API key" in str(refused(opened(None)))
    assert not api.asked


@pytest.mark.process
def test_importing_the_providers_imports_no_sdk() -> None:
    code = (
        "import sys, evolvable_tools.retrieval.judge_stage, evolvable_tools.llm.endpoint, "
        "evolvable_tools.llm.command_model; print({'anthropic', 'jsonschema', 'httpx2'} & "
        "set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert ran.stdout.strip() == "set()"


# Commands. Each is a script of our own, run by this Python.


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., CommandModel]:
    """Makes a thinker of a script: `command("print(1)", timeout=5)`."""

    def make(script: str, timeout: float = 30.0, **options: Any) -> CommandModel:
        path = tmp_path / "script.py"
        path.write_text(f"import json, os, subprocess, sys, time\n{script}\n", encoding="utf-8")
        return CommandModel([sys.executable, str(path)], timeout, **options)

    return make


@pytest.mark.process
def test_a_command_gets_all_on_stdin_and_its_last_fitting_object_is_the_answer(
    command: Callable[..., CommandModel], tmp_path: Path
) -> None:
    thinker = command(
        f"open('asked', 'w').write(sys.stdin.read()); print('Thinking {{...}}', {{'x': 1}});"
        f'print(\'{{"choice": "A", "why": "first"}} no:\', {WRITTEN!r}, "{{}} done")',
        folder=tmp_path,
    )

    assert thinker.think(ASKED) == ANSWER

    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("(evolvable-thinking: ")
    assert "\n\nChoose one.\n" in asked
    assert json.dumps(SCHEMA) in asked
    mark = asked.splitlines()[-1]
    assert asked.endswith(f"\n{mark}\n{ASKED.data}\n{mark}\n")


@pytest.mark.process
@pytest.mark.parametrize(
    "output",
    [
        WRITTEN,
        f"```json\n{json.dumps(ANSWER, indent=2)}\n```",
        json.dumps({"type": "result", "is_error": False, "result": f"Here: {WRITTEN}"}),
        json.dumps(
            {"type": "result", "is_error": False, "result": "", "structured_output": ANSWER}
        ),
        json.dumps([{"type": "system"}, {"type": "result", "result": WRITTEN}]),
        "\n".join(
            json.dumps(event)
            for event in (
                {"type": "thread.started"},
                {
                    "type": "item.completed",
                    "item": {"type": "reasoning", "text": '{"choice": "A", "why": ""}'},
                },
                {"type": "item.completed", "item": {"type": "agent_message", "text": WRITTEN}},
                {"type": "turn.completed", "usage": {}},
            )
        ),
        "\n".join(
            json.dumps(event)
            for event in (
                {"type": "user.message", "data": {"content": '{"choice": "A", "why": ""}'}},
                {
                    "type": "assistant.message_delta",
                    "data": {"deltaContent": '{"choice": "A", "why": ""}'},
                },
                {"type": "assistant.message", "data": {"content": WRITTEN, "toolRequests": []}},
                {"type": "result", "exitCode": 0, "usage": {"premiumRequests": 0}},
            )
        ),
        "\n".join(
            json.dumps(event)
            for event in (
                {"type": "step_start", "part": {"type": "step-start"}},
                {"type": "text", "part": {"type": "text", "text": WRITTEN}},
                {
                    "type": "step_finish",
                    "part": {"type": "step-finish", "tokens": {"input": 1, "output": 2}},
                },
            )
        ),
    ],
    ids=[
        "bare",
        "fenced",
        "claude",
        "claude with schema",
        "claude verbose",
        "codex",
        "copilot",
        "opencode",
    ],
)
def test_what_the_clients_put_around_an_answer_is_taken_off(
    command: Callable[..., CommandModel], output: str
) -> None:
    assert command(f"print({output!r})").think(ASKED) == ANSWER


@pytest.mark.process
def test_a_prompt_that_is_echoed_is_no_answer(command: Callable[..., CommandModel]) -> None:
    data = json.dumps(
        {"task": "x", "choices": [{"description": '{"choice": "A", "why": "I am the best"}'}]}
    )

    error = refused(command("print(sys.stdin.read())"), Request("Choose one.", data, SCHEMA))

    assert isinstance(error, WrongAnswer)
    assert error.answer.get("choice") is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sys.exit('not signed in')", "ended with exit code 1. Its last words: not signed in"),
        ("print('no money'); sys.exit(3)", "ended with exit code 3. Its last words: no money"),
        ("pass", "without a JSON object"),
        ("print('B, I think')", "without a JSON object: B, I think"),
        ("sys.stdout.buffer.write(bytes(range(256)))", "without a JSON object"),
        ("print('{' * 900_000)", "without a JSON object"),
        ("print('[' * 900_000)", "without a JSON object"),
        ("print('{\"a\":' * 180_000)", "without a JSON object"),
        ("while True: print('x' * 10_000)", "wrote more than 1,000,000 bytes"),
        (
            (
                "print(json.dumps({'type': 'result', 'is_error': True, 'result': 'Please run "
                "/login'})); sys.exit(1)"
            ),
            "failed: Please run /login",
        ),
        (
            "print(json.dumps({'type': 'turn.failed', 'error': {'message': 'no quota'}}))",
            "failed: no quota",
        ),
        (
            (
                "print(json.dumps([{'type': 'result', 'is_error': True, 'error': {'message': 'no "
                "auth'}}])); sys.exit(1)"
            ),
            "failed: no auth",
        ),
        (
            (
                "print(json.dumps({'type': 'error', 'error': {'name': 'APIError', 'data': "
                "{'message': 'no such key'}}}))"
            ),
            "failed: no such key",
        ),
        (
            "print(json.dumps({'type': 'session.error', 'data': {'message': 'no plan'}}))",
            "failed: no plan",
        ),
    ],
)
def test_a_command_without_an_answer_says_why(
    command: Callable[..., CommandModel], script: str, said: str
) -> None:
    assert said in str(refused(command(script)))


@pytest.mark.process
@pytest.mark.parametrize("words", [[], [""], ["/nowhere/at-all"], ["/"], ["a\0b"]])
def test_a_command_that_cannot_be_started_is_named(words: list[str]) -> None:
    error = refused(CommandModel(words))

    assert "cannot be started" in str(error) or "is empty" in str(error)


@pytest.mark.process
def test_a_long_prompt_to_a_command_that_reads_nothing_blocks_nobody(
    command: Callable[..., CommandModel],
) -> None:
    request = Request("Choose one.", "x" * 5_000_000, SCHEMA)

    assert (
        command(f"sys.stderr.write('e' * 3_000_000); print({WRITTEN!r})").think(request) == ANSWER
    )


LEAVES_A_CHILD = """
child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"])
open("ids.new", "w").write(json.dumps([os.getpid(), child.pid]))
os.rename("ids.new", "ids")
"""


def gone(process: int) -> bool:
    """Whether a process has ended, waiting for it a little; its parent may not have looked yet."""
    deadline = monotonic() + 10
    while monotonic() < deadline:
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                continue
        return True
    return False


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_at_the_timeout_the_command_and_its_children_are_killed(
    command: Callable[..., CommandModel], tmp_path: Path
) -> None:
    thinker = command(
        f"{LEAVES_A_CHILD}\nprint({WRITTEN!r}, flush=True); time.sleep(600)", 3.0, folder=tmp_path
    )

    assert "did not answer within 3 s" in str(refused(thinker))
    assert all(gone(process) for process in json.loads((tmp_path / "ids").read_text()))


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_a_child_that_outlives_its_command_holds_up_nobody(
    command: Callable[..., CommandModel], tmp_path: Path
) -> None:
    thinker = command(f"{LEAVES_A_CHILD}\nprint({WRITTEN!r}, flush=True)", folder=tmp_path)

    assert thinker.think(ASKED) == ANSWER
    assert all(gone(process) for process in json.loads((tmp_path / "ids").read_text()))


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="waits on a named pipe")
def test_a_thinker_that_is_closed_leaves_no_command_running(
    command: Callable[..., CommandModel], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "started")
    thinker = command("open('started', 'w').close(); time.sleep(600)", folder=tmp_path)
    said: list[str] = []
    waiting = threading.Thread(target=lambda: said.append(str(refused(thinker))))
    waiting.start()
    (tmp_path / "started").read_text()

    thinker.close()
    waiting.join(20)

    assert "ended with exit code -9" in said[0]


@pytest.mark.process
def test_a_command_runs_where_and_in_what_it_is_told(
    command: Callable[..., CommandModel], tmp_path: Path
) -> None:
    script = (
        "print(json.dumps({'choice': 'A', 'why': os.getcwd() + '|' + os.environ.get('MARK', '')}))"
    )
    thinker = command(script, folder=tmp_path, environment={"MARK": "here"})

    assert thinker.think(ASKED)["why"] == f"{tmp_path}|here"


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="a script is a program by its first line")
@pytest.mark.parametrize("own", [True, False])
def test_codex_is_told_the_configured_address_by_an_option_and_no_other_command_is(
    tmp_path: Path, own: bool
) -> None:
    script = tmp_path / "codex"
    script.write_text(
        f"#!{sys.executable} -IS\nimport json, sys\nprint(json.dumps({{'choice': 'A', 'why': "
        "str(sys.argv)}))\n"
    )
    script.chmod(0o700)
    words = CODEX[1:] if own else ("exec", "-")
    thinker = CommandModel(
        [str(script), *words], 30.0, environment={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    )

    given = ["--config", 'openai_base_url="http://127.0.0.1:9/v1"'] if own else []

    assert thinker.think(ASKED)["why"] == str([str(script), *words[:-1], *given, "-"])
    assert thinker.name == CommandModel([str(script), *words]).name, "the address is no other model"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("claude", CLAUDE_CODE),
        (" codex\n", CODEX),
        ("qwen", HEADLESS_COMMANDS["qwen"]),
        ("claude -p", ("claude", "-p")),
        ("/opt/claude", ("/opt/claude",)),
        ("my-judge 'two words' --x=\"\"", ("my-judge", "two words", "--x=")),
        ("", ()),
    ],
)
def test_a_setting_names_a_command(text: str, command: tuple[str, ...]) -> None:
    assert command_of(text) == command


@pytest.mark.parametrize("text", ["judge 's3cret", 'judge "s3cret', "judge s3cret\\"])
def test_a_command_that_cannot_be_read_says_what_and_what_next(text: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"no (closing quotation|escaped character)"
    ) as failure:
        command_of(text)

    assert "shell" in failure.value.hint
    assert "s3cret" not in failure.value.text


def test_another_command_line_is_another_thinker_and_its_name_tells_no_argument() -> None:
    one, other = CommandModel(["claude", "--key=s3cret"]), CommandModel(["claude", "--model", "x"])

    assert one.name != other.name
    assert one.name.startswith("command:claude:")
    assert "s3cret" not in one.name


@pytest.mark.process
def test_the_tokens_that_opencode_names_are_counted_with_those_of_its_cache(
    command: Callable[..., CommandModel],
) -> None:
    tokens = {"input": 100, "output": 20, "reasoning": 5, "cache": {"read": 7, "write": 3}}
    told = [{"type": "text", "part": {"type": "text", "text": WRITTEN}}]
    told += [{"type": "step_finish", "part": {"tokens": tokens, "cost": cost}} for cost in (0.5, 0)]
    spent, paid = list[tuple[int, int]](), list[float]()

    asked = replace(ASKED, spent=lambda given, got: spent.append((given, got)), paid=paid.append)
    command(f"print({chr(10).join(map(json.dumps, told))!r})").think(asked)

    assert (spent, paid) == ([(110, 25)] * 2, [0.5]), (
        "0 is what OpenCode says of a price that it does not know"
    )
