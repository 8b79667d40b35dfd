"""No answer in a client counts as a person's where no person gives it: hooks, agents' shells,
clients without one.
"""

import json
from pathlib import Path

import mcp_types as types
import pytest
from command_line import CommandLine

from evolvable_server.clients.attendance import MAX_BYTES, why_unattended
from evolvable_store.store import Store
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

HOOK = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": "accept"}]}]}}
SETTINGS = json.dumps(HOOK)


def save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path / "user"))
    (tmp_path / "work/project").mkdir(parents=True)
    return tmp_path / "work/project"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("work/project/.claude/settings.json", SETTINGS),
        (
            "work/project/.claude/settings.local.json",
            json.dumps({"hooks": {"ElicitationResult": []}}),
        ),
        (
            "work/project/.claude/settings.json",
            SETTINGS.replace("Elicitation", "\\u0045licitation"),
        ),
        ("work/project/.claude/settings.json", "\ufeff" + SETTINGS),
        ("work/project/.claude/settings.json", SETTINGS + "// a remark"),
        ("work/project/.claude/settings.json", "{" + " " * MAX_BYTES + "}"),
        ("work/project/.claude/settings.json", "[" * 100_000),
        ("work/.claude/settings.json", SETTINGS),
        ("user/.claude/settings.json", SETTINGS),
        ("user/.claude/plugins/cache/market/tools/1.0/hooks/hooks.json", SETTINGS),
        (
            "user/.claude/plugins/tools/.claude-plugin/plugin.json",
            json.dumps({"name": "tools", **HOOK}),
        ),
        (
            "work/project/.claude/skills/pdf/SKILL.md",
            "---\nname: pdf\nhooks:\n  Elicitation: []\n---\nText.\n",
        ),
        (
            "work/project/.claude/skills/pdf/SKILL.md",
            '---\n"\\x68ooks":\n  "\\x45licitation": []\n---\nText.\n',
        ),
        (
            "work/project/.claude/skills/pdf/SKILL.md",
            "---\nhooks: {}\nhooks:\n  Elicitation: []\n---\nText.\n",
        ),
        (
            "work/project/.claude/agents/sub/helper.md",
            "---\nhooks: !!map {Elicitation: []}\n---\nText.\n",
        ),
    ],
)
def test_a_hook_that_may_answer_is_named_wherever_the_client_reads_it(
    project: Path, tmp_path: Path, place: str, text: str
) -> None:
    save(tmp_path / place, text)

    assert str(tmp_path / place) in (why_unattended({}, project) or "")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            "settings.json",
            json.dumps({"hooks": {"PreToolUse": []}, "permissions": {"allow": ["Elicitation"]}}),
        ),
        (
            "skills/hooks/SKILL.md",
            "---\nname: hooks\ndescription: Elicitation hooks.\n---\nhooks: Elicitation\n",
        ),
        ("commands/ask.md", "Elicitation of requirements, without a head.\n"),
    ],
)
def test_settings_and_skills_without_such_a_hook_leave_the_answer_to_the_person(
    project: Path, place: str, text: str
) -> None:
    save(project / ".claude" / place, text)

    assert why_unattended({"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}, project) is None


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("user/.claude/plugins/tools/tsconfig.json", "{ // a remark, with \\u0041\n}"),
        ("user/.claude/plugins/tools/package-lock.json", "{" + " " * MAX_BYTES + "}"),
        ("user/.claude/plugins/tools/node_modules/x/a.json", SETTINGS),
        (
            "user/.claude/skills/x/SKILL.md",
            "---\nname: x\ndescription: About: git hooks in C:\\x\n---\n",
        ),
    ],
)
def test_files_that_are_no_settings_leave_the_answer_to_the_person(
    project: Path, tmp_path: Path, place: str, text: str
) -> None:
    save(tmp_path / place, text)

    assert why_unattended({}, project) is None


def test_the_folder_that_the_client_names_as_its_own_is_searched(
    project: Path, tmp_path: Path
) -> None:
    save(tmp_path / "elsewhere/settings.json", SETTINGS)

    assert why_unattended({"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}, project)


@pytest.mark.process
def test_doctor_names_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evolvable = CommandLine(tmp_path)
    save(evolvable.user / ".claude/settings.json", SETTINGS)
    evolvable("init", "--yes")

    said = " ".join(evolvable("doctor", code=None).out.split())
    assert (
        f"approves anything here: {evolvable.user / '.claude/settings.json'} names a hook" in said
    )


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("environment", "settings", "said"),
    [
        ({}, SETTINGS, "names a hook"),
        ({"CLAUDE_CODE_CHILD_SESSION": "1"}, "", "an agent's shell"),
        ({"COPILOT_CLI": "1"}, "", "an agent's shell"),
        ({"QWEN_CODE": "1"}, "", "an agent's shell"),
        ({"FACTORY_EXEC_TARGET_AUTONOMY": "auto-high"}, "", "an agent's shell"),
        ({"CODEX_THREAD_ID": "1"}, "", "an agent's shell"),
        ({"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, "", "runs without a person"),
    ],
)
async def test_an_accept_that_no_person_gives_leaves_the_change_waiting(
    place, era, monkeypatch, environment, settings, said
):
    async def accept(context, params):
        return types.ElicitResult(action="accept", content={})

    given = {**place.environment, "EVOLVABLE_APPROVE": "guarded", **environment}
    monkeypatch.setattr(type(place), "environment", given)
    if settings:
        save(place.root / ".claude/settings.json", settings)
    async with place.client(era, elicitation_callback=accept) as client:
        removed = await client.call_tool("remove_resource", {"ref": "csv", "reason": "tidy"})
        decided = await client.call_tool("review_inbox", {"action": "approve", "proposal_id": 1})

    assert said in removed.structured_content["warnings"][-1]
    assert decided.is_error and said in decided.content[0].text
    with Store.open(place.home) as store:
        assert {str(head.ref) for head in store.heads()} == {"skill:csv", "skill:pdf"}
    with Library.open(place.home) as library:
        assert [one.ref for one in proposal_inbox.list_waiting(library)] == ["skill:csv"]
