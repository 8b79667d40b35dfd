"""Models that a person names: the command, what it refuses, who answers in which role, and what
doctor says of it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from labelled_sessions import labelled
from model_api import ModelApi, chats, fails, responds

pytestmark = pytest.mark.process

KEY = "sk-secret-of-the-test"
AGENT = {"CLAUDECODE": "1"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A person's machine with a library of two similar skills."""
    evolvable = CommandLine(tmp_path_factory.mktemp("models"))
    for name in ("postgres-backup", "postgres-restore"):
        folder = evolvable.user / ".claude/skills" / name
        folder.mkdir(parents=True)
        text = skill_text(name, description="Back up or restore a postgres database dump.")
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    evolvable("init", evolvable.user / ".claude/skills")
    return evolvable


@pytest.fixture
def evolvable(machine: CommandLine) -> Iterator[CommandLine]:
    machine.person = True
    yield machine
    (machine.user / ".config/evolvable/config.toml").unlink(missing_ok=True)


def written(evolvable: CommandLine) -> str:
    return (evolvable.user / ".config/evolvable/config.toml").read_text(encoding="utf-8")


def add(evolvable: CommandLine, name: str, url: str, *more: object, code: int = 0, **env: str):
    words = ("--protocol", "openai-chat", "--model", "qwen", "--address", url, *more)
    return evolvable("model", "add", name, *words, code=code, **env)


def key_file(evolvable: CommandLine) -> Path:
    path = evolvable.root / "key"
    path.write_text(f"{KEY}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_model_is_named_tested_given_a_role_and_removed(evolvable: CommandLine) -> None:
    with ModelApi(
        chats('{"word": "kestrel"}'), fails(401, f"no {KEY}"), chats('{"word": "heron"}')
    ) as api:
        key = key_file(evolvable)
        assert (
            "unencrypted"
            not in add(evolvable, "local", api.url, "--key-file", key, "--price", "0.5/2").err
        )
        tested = evolvable("model", "test", "local", "--json").json
        assert tested["works"] is True
        assert "asked for qwen" in tested["warning"] and "by scripted" in tested["warning"]
        assert tested["attempts"][0]["cost"] == pytest.approx(15e-6)
        failed = evolvable("model", "test", "local", code=1)
        assert "answered 401: no [key]" in failed.out
        assert "not to the question" in evolvable("model", "test", "local", code=1).out
        assert api.asked[0].headers["authorization"] == f"Bearer {KEY}"
    evolvable("model", "role", "judge", "local", "claude")
    listed = evolvable("model", "--json").json
    assert listed["roles"] == {"judge": ["local", "claude"]} and listed["models"][0]["price"] == [
        0.5,
        2.0,
    ]
    assert "answers as judge" in evolvable("model", "remove", "local", code=1).err
    evolvable("model", "role", "judge")
    evolvable("model", "remove", "local")
    assert evolvable("model", "list", "--json").json["models"] == []
    assert KEY not in f"{tested}{failed}{listed}{written(evolvable)}"


def test_only_a_person_names_models_and_what_is_wrong_with_one_is_said(
    evolvable: CommandLine,
) -> None:
    for words in (
        ("add", "x", "--protocol", "anthropic", "--model", "m"),
        ("role", "judge", "claude"),
        ("test", "x"),
    ):
        ran = evolvable("model", *words, code=1, **AGENT)
        assert "Only a person names" in ran.err
    evolvable("model", "list", **AGENT)
    for name, url, more, said in (
        ("Big Name", "http://h", (), "cannot be the name of a model"),
        ("anthropic", "http://h", (), "cannot be the name of a model"),
        ("proxy", "http://h", (), "cannot be the name of a model"),
        ("x", "ftp://h", (), "does not begin with http"),
        ("x", "http://u:p@h", (), "more than a host and a path"),
        ("x", "http://h", ("--key-file", "k", "--key-env", "K"), "one is enough"),
        ("x", "http://h", ("--price", "1/-1"), "from 0 to"),
    ):
        assert said in add(evolvable, name, url, *more, code=1).err
    evolvable("model", "add", "x", code=2)
    evolvable("model", "list", "x", code=2)
    evolvable("model", "test", "x", "--timeout", "3", code=2)
    assert "No model is named 'x'" in evolvable("model", "test", "x", code=1).err
    assert "no role" in evolvable("model", "role", "boss", "claude", code=1).err
    assert "No model is named 'nobody'" in evolvable("model", "role", "judge", "nobody", code=1).err
    evolvable("executor", "add", "mine", "--", "true")
    assert "one of the executors" in add(evolvable, "mine", "http://h", code=1).err
    add(evolvable, "local", "http://127.0.0.1:9")
    assert "is the name of a model" in evolvable("judge", "add", "local", "--", "true", code=1).err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[models.local]\nprotocol = "openai-chat"\nmodel = "m"\nkey = "sk-x"\n',
            "models.local: the configuration holds no",
        ),
        ('[models.local]\nprotocol = "smtp"\nmodel = "m"\n', "models.local: protocol is 'smtp'"),
        ('[roles]\nboss = ["claude"]\n', "roles.boss is no role"),
        ("[roles]\njudge = [3]\n", "roles.judge is no list of names"),
        ('[roles]\njudge = ["a,b"]\n', "a name with a comma"),
        (
            '[models.a]\nprotocol = "anthropic"\nmodel = "m"\n[judges.a]\ncommand = ["true"]\n',
            "'a' names both a model and one of judges",
        ),
    ],
)
def test_a_configuration_that_names_no_model_is_refused_with_the_place(
    evolvable: CommandLine, text: str, said: str
) -> None:
    evolvable.configure(text)

    assert said in evolvable("list", code=1).err


def test_doctor_says_which_model_answers_in_which_role_and_what_keeps_one_from_answering(
    evolvable: CommandLine,
) -> None:
    loose = evolvable.root / "loose"
    loose.write_text(KEY, encoding="utf-8")
    loose.chmod(0o644)
    evolvable.configure(
        '[models.local]\nprotocol = "openai-chat"\nmodel = "qwen"\n'
        'address = "http://127.0.0.1:9/v1"\n[models.far]\nprotocol = "openai-responses"\n'
        f'model = "big"\nkey_file = "{loose}"\naddress = "http://far.example/v1"\n[models.unset]\n'
        'protocol = "anthropic"\nmodel = "m"\nkey_env = "NOT_SET"\n[roles]\n'
        'judge = ["local", "far"]\nproposer = ["nobody"]\n'
    )
    told = evolvable("doctor", "--json", code=4).json
    settings = {one["name"]: one for one in told["settings"]}
    assert settings["judge"]["value"] == "local,far" and settings["judge"]["source"].endswith(
        "config.toml"
    )
    assert settings["role judge"]["value"] == "local, then far"
    assert settings["role reviewer"]["value"] == "the calling agent (handoff)"
    assert settings["role critic"]["value"] == "the proposer"
    for part in ("qwen at http://127.0.0.1:9/v1", "openai-chat", "key: none", "price: unknown"):
        assert part in settings["models.local"]["value"]
    problems = json.dumps(told["problems"])
    for said in (
        "other accounts can read it",
        "goes to far.example unencrypted",
        "NOT_SET, the variable of the key of model unset, is not set",
        "The role proposer names nobody",
    ):
        assert said in problems
    assert KEY not in json.dumps(told)


def test_a_lookup_is_judged_by_a_named_model_and_by_the_next_where_that_gives_no_answer(
    evolvable: CommandLine,
) -> None:
    def choose(asked) -> str:
        choices = json.loads(asked.body["messages"][-1]["content"])["choices"]
        label = next(one["label"] for one in choices if one["name"] == "postgres-restore")
        return json.dumps({"choice": label, "why": "it restores"})

    class Judge(ModelApi):
        def answer(self, asked):
            self.asked.append(asked)
            return (
                fails(503, "down", retry_after="60")
                if asked.body["model"] == "down"
                else chats(choose(asked))
            )

    with Judge() as api:
        evolvable(
            "model",
            "add",
            "down",
            "--protocol",
            "openai-chat",
            "--model",
            "down",
            "--address",
            api.url,
        )
        add(evolvable, "local", api.url)
        evolvable("model", "role", "judge", "down", "local")
        found = evolvable("find", "work on a postgres database dump", "--json").json
        assert found["matches"][0]["ref"] == "skill:postgres-restore"
        assert "local:qwen" in json.dumps(found["stages"]) and "down:down" not in json.dumps(
            found["stages"]
        )
        assert [one.body["model"] for one in api.asked] == ["down", "qwen"]
        evolvable("model", "role", "judge", "off", "--yes")
        evolvable("find", "work on a dump of a postgres database", "--json")
        evolvable("model", "role", "judge", "down", "local", "--yes")
        theirs = {
            "OPENAI_BASE_URL": "http://127.0.0.1:9",
            "OPENAI_API_KEY": "sk-theirs",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }
        evolvable("find", "a postgres database dump is to be worked on", "--json", **theirs)
        assert len(api.asked) == 4 and "sk-theirs" not in json.dumps(
            [one.headers for one in api.asked]
        )


def test_a_session_is_reviewed_by_a_named_model_within_the_budget_of_its_price(
    evolvable: CommandLine,
) -> None:
    session = next(one for one in labelled() if one.name == "alembic")
    said = json.dumps({"candidates": [], "why_none": "nothing"})
    with ModelApi(responds(said), responds(said)) as api:
        words = (
            "--protocol",
            "openai-responses",
            "--model",
            "big",
            "--address",
            api.url,
            "--price",
            "3/15",
        )
        evolvable("model", "add", "reviewing", *words)
        evolvable("model", "role", "reviewer", "reviewing")
        path = session.write(evolvable.root)
        spends = {"EVOLVABLE_REVIEW_BUDGET": "money=1"}
        done = evolvable("review", path, "--json", **spends).json
        assert len(api.asked) == 1, done
        assert "reviewing:big" in json.dumps(done) and os.fspath(path) not in json.dumps(
            api.asked[0].body
        )


def test_a_judge_without_its_key_costs_a_search_nothing_and_the_next_one_answers(
    evolvable: CommandLine,
) -> None:
    """Clients often start the server without the variables of the shell."""
    table = '[models.far]\nprotocol = "anthropic"\nmodel = "m"\nkey_env = "NOT_SET"\n'
    evolvable.configure(f'{table}[roles]\njudge = ["far"]\n')
    evolvable("list")
    found = evolvable("find", "work on a postgres database dump", "--json").json
    assert found["verdict"] == "choose" and "NOT_SET" in json.dumps(found["stages"])
    with ModelApi(chats(json.dumps({"choice": "none", "why": "it fits nothing"}))) as api:
        evolvable.configure(
            f'{table}[models.near]\nprotocol = "openai-chat"\nmodel = "qwen"\n'
            f'address = "{api.url}"\n[roles]\njudge = ["far", "near"]\n'
        )
        evolvable("find", "work on a postgres database dump", "--json", code=3)
        assert len(api.asked) == 1
