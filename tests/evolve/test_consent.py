"""What only a person may do, tried by an agent's shell, over MCP, by a script and by a repository's
configuration.
"""

import json
import os
import stat
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from mcp_place import Place

from evolvable_evolve.run_launcher import evolve_context
from evolvable_server.care.effective_settings import effective_settings
from evolvable_server.cli.role_commands import RESERVED
from evolvable_server.config import read_config
from evolvable_server.model_setup import approval_policies, budget_limits
from evolvable_store.errors import EvolvableError, Refused
from evolvable_store.operation import Principal
from evolvable_store.store import Store

pytestmark = pytest.mark.process

AGENT = {"CLAUDECODE": "1", "EVOLVABLE_SESSION": "s1"}

TEACHES = (
    "evolvable inbox",
    "evolvable evolve",
    "evolvable lab publish",
    "approve",
    "--yes",
    "unset",
    "terminal=",
)
"""What no refusal that an agent reads may hold: a way to do it all the same."""


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    """A machine with seven skills that a person imported, and one proposal."""
    made = CommandLine(tmp_path)
    for name in ("pdf", "csv", "a", "b", "c", "d", "e"):
        made.save(made.user / ".claude/skills", name, skill_text(name))
    made("init", made.user / ".claude/skills")
    made("update", "pdf", "--edit", "SKILL.md", "one", "1", "--propose", "-m", "later", **AGENT)
    return made


FORBIDDEN = [
    ("inbox", "approve", "1"),
    ("inbox", "reject", "1", "-m", "no"),
    ("inbox", "edit", "1"),
    ("inbox", "take", "1"),
    ("publish",),
    ("channel", "policy", "live"),
    ("channel", "withdraw", "pdf"),
    ("memory", "on", "claude-code"),
    ("token", "add", "mine", "--write", "--approve"),
    ("connect", "codex"),
    ("disconnect", "codex"),
    ("checkout", "./out"),
    ("folders", "drop", "."),
    ("folders", "confirm"),
    ("executor", "add", "mine", "--", "touch", "owned"),
    ("reviewer", "add", "mine", "--", "touch", "owned"),
    ("executor", "remove", "mine"),
    ("evolve", "start", "environment:x", "--executor", "simulated"),
    ("evolve", "continue"),
    ("evolve", "adopt"),
]


@pytest.mark.parametrize("words", FORBIDDEN, ids=" ".join)
@pytest.mark.parametrize("shell", ["marked", "no terminal"])
def test_an_agents_shell_may_not_and_the_refusal_does_not_teach_how(
    evolvable: CommandLine, words: tuple[str, ...], shell: str
) -> None:
    evolvable.person = shell == "marked"
    before = sorted(path for path in evolvable.root.rglob("*") if "library" not in path.parts)
    ran = evolvable(*words, code=1, **(AGENT if shell == "marked" else {}))
    assert "Only a person" in ran.err or "only a person" in ran.err
    assert ("or in the client" if shell == "marked" else "It needs a terminal") in ran.err
    assert not [word for word in TEACHES if word in ran.err.replace(f"`{' '.join(words[:2])}`", "")]
    assert (
        sorted(path for path in evolvable.root.rglob("*") if "library" not in path.parts) == before
    )
    evolvable.person = True
    assert [one["proposal_id"] for one in evolvable("inbox", "--json").json["proposals"]] == [1]


def test_an_agent_may_look_at_all_that_a_person_decides(evolvable: CommandLine) -> None:
    for words in (
        ("inbox",),
        ("channel", "policy"),
        ("publish", "--dry-run"),
        ("token",),
        ("executor", "list"),
    ):
        evolvable(*words, **AGENT)
    assert "inbox approve" not in evolvable("inbox", "show", "1", **AGENT).out
    assert "inbox approve" in evolvable("inbox", "show", "1").out


def test_an_agents_undo_of_the_persons_import_waits_and_takes_nothing_from_the_disk(
    evolvable: CommandLine,
) -> None:
    undone = evolvable("undo", "1", "--json", code=4, **AGENT).json
    assert (undone["operation"], undone["undid"], len(undone["waiting"])) == (None, [], 7)
    assert undone["proposal_ids"] == undone["waiting"]
    assert "waits in the inbox" in undone["warnings"][-1]
    assert len(list((evolvable.user / ".claude/skills").iterdir())) == 7


def test_an_undo_that_waits_says_so_and_waits_once_however_often_it_is_asked_for(
    evolvable: CommandLine,
) -> None:
    removed = evolvable("remove", "csv", "--json").json["operation"]
    for _ in range(2):
        waits = evolvable("undo", removed, code=4, **AGENT)
        assert "Nothing is taken back" in waits.out and "1 proposal (2)" in waits.out
        assert "taken back already" not in waits.out
        assert evolvable("undo", removed, "--json", code=4, **AGENT).json["waiting"] == [2]
    evolvable("inbox", "approve", "2")
    assert "csv" in evolvable("list").out


def test_an_undo_that_takes_nothing_back_names_no_operation_as_undone(
    evolvable: CommandLine,
) -> None:
    first = evolvable("update", "csv", "--edit", "SKILL.md", "one", "1", "--json").json["operation"]
    evolvable("update", "csv", "--edit", "SKILL.md", "1", "uno")
    skipped = evolvable("undo", first, "--json", code=4).json
    assert (skipped["operation"], skipped["undid"], skipped["waiting"]) == (None, [], [])
    assert [one["ref"] for one in skipped["conflicts"]] == ["skill:csv"]


def test_a_removal_that_waits_says_so_on_its_output(evolvable: CommandLine) -> None:
    told = evolvable("remove", "csv", **AGENT).out
    assert "skill:csv" in told and "waits for a person" in told


def test_a_split_of_a_task_set_that_waits_names_the_proposal_and_no_version(
    evolvable: CommandLine,
) -> None:
    lines = [
        json.dumps({"id": f"t{n}", "prompt": f"Add {n} and 3.", "expected": str(n + 3)})
        for n in range(12)
    ]
    (evolvable.root / "tasks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    document = evolvable.root / "ENVIRONMENT.md"
    document.write_text(
        "---\nname: sums\ndescription: Sums of two numbers.\n---\nx\n", encoding="utf-8"
    )
    files = [f"ENVIRONMENT.md={document}", f"tasks.jsonl={evolvable.root / 'tasks.jsonl'}"]
    evolvable("update", "environment:sums", "--create", "--file", files[0], "--file", files[1])
    evolvable.configure('approve = "all"')
    written = evolvable("taskset", "split", "environment:sums", "--write", "--json", **AGENT).json[
        "written"
    ]
    assert written.startswith("proposal 2 for environment:sums") and "waits" in written


def test_an_agents_removal_of_others_work_waits_and_of_its_own_goes_until_the_sixth(
    evolvable: CommandLine,
) -> None:
    assert evolvable("remove", "csv", "--json", **AGENT).json["proposal_id"]
    for number in range(7):
        text = evolvable.root / "text"
        text.write_text(skill_text(f"own-{number}"), encoding="utf-8")
        evolvable("update", f"own-{number}", "--create", "--file", f"SKILL.md={text}", **AGENT)
    waits = [
        evolvable("remove", f"own-{n}", "--json", **AGENT).json["proposal_id"] is not None
        for n in range(7)
    ]
    assert waits == [False] * 5 + [True] * 2
    other = {**AGENT, "EVOLVABLE_SESSION": "s2"}
    evolvable("update", "own-6", "--edit", "SKILL.md", "one", "1", **AGENT)
    assert evolvable("remove", "own-6", "--json", **other).json["proposal_id"]


def test_a_person_may_all_of_it(evolvable: CommandLine) -> None:
    evolvable("inbox", "approve", "1")
    evolvable("remove", "csv")
    assert evolvable("undo", "1", "--json", code=4).json["operation"]


@pytest.mark.parametrize(
    ("permission", "may"), [((), 0), (("--write",), 1), (("--write", "--approve"), 2)]
)
def test_a_script_may_what_its_token_says(
    evolvable: CommandLine, permission: tuple[str, ...], may: int
) -> None:
    secret = evolvable("token", "add", "ci", *permission, "--json").json["secret"]
    file = evolvable.root / "token"
    file.write_text(f"{secret}\n", encoding="utf-8")
    evolvable.person = False
    given = ("--token-file", file)
    evolvable(*given, "list")
    evolvable(*given, "update", "csv", "--edit", "SKILL.md", "two", "2", code=0 if may else 1)
    evolvable(*given, "inbox", "approve", "1", code=0 if may > 1 else 1)
    assert (
        "no token stands for that"
        in evolvable(*given, "executor", "add", "x", "--", "true", code=1).err
    )
    with Store.open(evolvable.home) as store:
        made = [one for one in store.operations() if one.principal is Principal.SCRIPT]
    assert [one.intent.via for one in made] == ["token:ci"] * may
    assert "Only a person" in evolvable(*given, "inbox", "approve", "1", code=1, **AGENT).err
    file.write_text("evo_wrong", encoding="utf-8")
    assert "is not valid" in evolvable(*given, "list", code=1).err


# Commands by name


@pytest.mark.skipif(os.name != "posix", reason="needs modes")
def test_named_commands_stand_in_a_file_of_the_person_with_its_comments(
    evolvable: CommandLine,
) -> None:
    evolvable.configure('# mine\napprove = "all"  # strict\n')
    path = evolvable.user / ".config/evolvable/config.toml"
    for role in ("executor", "scorer", "judge", "reviewer", "proposer"):
        evolvable(
            role, "add", "mine", "--folder", evolvable.project, "--", "python3", "-I", "run.py"
        )
        listed = evolvable(role, "list", "--json").json["commands"]
        assert listed == [
            {
                "name": "mine",
                "command": ["python3", "-I", "run.py"],
                "folder": str(evolvable.project),
            },
        ]
    text = path.read_text(encoding="utf-8")
    assert text.startswith('# mine\napprove = "all"  # strict\n') and text.count("[") == 10
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (
        0o600,
        0o700,
    )
    given = evolvable(
        "executor", "add", "clerks", "--agents", "--json", "--", "python3", "run.py"
    ).json
    assert given["agents"] is True and "agents = true" in path.read_text(encoding="utf-8")
    assert evolvable("executor", "list", "--json").json["commands"][-1]["agents"] is True
    assert (
        "only an executor" in evolvable("judge", "add", "clerks", "--agents", "--", "x", code=2).err
    )
    evolvable("scorer", "remove", "mine")
    assert evolvable("scorer", "list", "--json").json["commands"] == []
    assert "No scorer is named" in evolvable("scorer", "remove", "mine", code=1).err
    for word in (*RESERVED, "A b", "../x"):
        evolvable("executor", "add", word, "--", "true", code=1)
    assert evolvable("executor", "add", "mine", code=2).err


@pytest.mark.parametrize("line", ["touch owned", "./run.sh", "sh -c 'touch owned'", "unknown"])
def test_a_command_line_is_refused_from_everybody(evolvable: CommandLine, line: str) -> None:
    config = read_config({"EVOLVABLE_HOME": str(evolvable.home)})
    for role, commands in (
        evolvable_commands := evolve_context(config, person=True).commands or {}
    ).items():
        with pytest.raises(Refused) as refusal:
            commands.get(line)
        assert f"evolvable role {role.removesuffix('s')} add" in refusal.value.hint
    assert set(evolvable_commands) == {"executors", "scorers", "judges", "reviewers", "proposers"}
    for role, command in (("reviewer", "review"), ("judge", "list")):
        evolvable(
            command, "--json", code=None, **{f"EVOLVABLE_{role.removesuffix('er').upper()}": line}
        )
        assert (
            "No model is named"
            in evolvable("model", "role", role, line, "--json", code=1).json["error"]
        )
        evolvable.configure(f"[roles]\n{role} = {json.dumps([line])}\n")
        assert f"The role {role}: " in evolvable(command, "--json", code=1).json["error"]
    assert not (evolvable.project / "owned").exists()


@pytest.mark.anyio
async def test_evolve_start_over_mcp_runs_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack of a client whose sandbox is read-only: a command line as the executor."""
    place = Place(tmp_path)
    monkeypatch.setattr(Place, "environment", {**place.environment, "EVOLVABLE_TOOLSETS": "evolve"})
    owned = tmp_path / "owned"
    async with place.client("handshake") as client:
        for executor in (f"touch {owned}", "claude:m", "simulated"):
            given = {"task_set": "environment:evil", "program": ["pdf"], "executor": executor}
            ran = await client.call_tool("evolve_start", given)
            assert ran.is_error and "a person starts it" in ran.content[0].text
            assert "evolvable evolve" not in ran.content[0].text
            spends = {"task_set": "environment:evil", "program": ["pdf"]}
            for tool, more in (
                ("evolve_measure", {"executors": [executor]}),
                ("evolve_plan", {"executor": executor}),
            ):
                ran = await client.call_tool(tool, spends | more)
                assert ran.is_error and "Nothing was started" in ran.content[0].text
            ran = await client.call_tool(
                "try_skill", {"skill": "pdf", "executor": executor, "prompts": ["Do it."]}
            )
            assert ran.is_error and ran.content[0].text
        ran = await client.call_tool("evolve_continue", {})
        assert ran.is_error and "a person starts it" in ran.content[0].text
    assert not owned.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_one_undo_over_mcp_takes_no_skill_of_the_person(tmp_path: Path, era: str) -> None:
    place = Place(tmp_path)
    async with place.client(era) as client:
        done = (
            await client.call_tool("undo", {"operation": 1, "reason": "tidy"})
        ).structured_content
    assert ("operation" in done, "undid" in done, len(done["proposal_ids"])) == (False, False, 2)
    assert done["waiting"] == done["proposal_ids"]
    assert sorted(
        path.name for path in place.skills.iterdir() if not path.name.startswith(".")
    ) == ["csv", "pdf"]


# Settings only tighten


HOSTILE = {
    "EVOLVABLE_APPROVE": "off",
    "EVOLVABLE_REVIEW_POLICY": "memory=auto",
    "EVOLVABLE_REVIEW_BUDGET": "calls=9999,tokens=999999999",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/evil",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/evil",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
}
"""What a repository's configuration of a client sets."""


def test_what_a_repository_sets_loosens_nothing_and_doctor_says_so(evolvable: CommandLine) -> None:
    home = {"EVOLVABLE_HOME": str(evolvable.project / "home"), "HOME": str(evolvable.project)}
    config, plain = read_config({**HOSTILE, **home}), read_config(home)
    assert (config.approve, config.api_url, config.person) == ("guarded", None, plain.person)
    assert {str(kind): str(policy) for kind, policy in approval_policies(config).items()} == {
        "memory": "ask"
    }
    assert budget_limits(config)[2] == budget_limits(plain)[2]
    handed = evolve_context(config, HOSTILE).environment
    assert not [name for name in handed if name in HOSTILE and "EVOLVABLE" not in name]
    ignored = {
        one.name: one.ignored
        for one in effective_settings(config, {**HOSTILE, **home})
        if one.ignored
    }
    assert set(ignored) == {"approve", "review policy", "review budget", "model addresses"}
    assert "EVOLVABLE_APPROVE=off would loosen" in evolvable("doctor", code=None, **HOSTILE).out
    told = evolvable("doctor", "--verbose", code=None, **HOSTILE).out
    assert "EVOLVABLE_APPROVE=off would loosen" in told and "guarded (default)" in told


def test_the_environment_may_be_stricter_and_the_person_looser(
    evolvable: CommandLine, tmp_path: Path
) -> None:
    evolvable.configure(
        'approve = "off"\nreview_policy = "memory=auto"\n[budgets]\nreview = "calls=50"\n'
        '[models]\nanthropic = "http://a"\n'
    )
    evolvable("list")  # it is read
    os.environ["EVOLVABLE_TEST_ACCOUNT"] = str(evolvable.user)
    try:
        loose, strict = (
            read_config({}),
            read_config({"EVOLVABLE_APPROVE": "all", "EVOLVABLE_REVIEW_BUDGET": "calls=3"}),
        )
        off = read_config({"EVOLVABLE_REVIEW_POLICY": "memory=off"})
    finally:
        del os.environ["EVOLVABLE_TEST_ACCOUNT"]
    assert (loose.approve, strict.approve, loose.api_url) == ("off", "all", "http://a")
    assert (budget_limits(loose)[2].calls, budget_limits(strict)[2].calls) == (50, 3)
    assert [str(*approval_policies(one).values()) for one in (loose, off)] == ["auto", "off"]
    assert {one.name: one.source for one in effective_settings(loose, {})}["approve"].endswith(
        "config.toml"
    )


def test_a_run_of_an_older_version_with_a_command_line_is_reported_and_not_continued(
    evolvable: CommandLine,
) -> None:
    from evolvable_evolve.evolution.run_config import RunSettings
    from evolvable_evolve.evolution.run_context import check_commands_named

    means = evolve_context(read_config({"EVOLVABLE_HOME": str(evolvable.home)}), person=True)
    old = RunSettings("environment:x", executor={"kind": "command", "command": ["touch", "owned"]})
    with pytest.raises(EvolvableError, match="commands are named by a person") as refusal:
        check_commands_named(RunSettings.from_json(json.loads(json.dumps(old.to_json()))), means)
    assert "start a new run" in refusal.value.hint
