"""The lists of Codex and Copilot CLI: what they cut is said, and a person switches skills off and
on again.
"""

import json
import tomllib
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

FOLDERS = {"codex": ".agents/skills", "copilot": ".copilot/skills"}
SETTINGS = {"codex": ".codex/config.toml", "copilot": ".copilot/settings.json"}
BEFORE = {
    "codex": '# mine\nmodel = "gpt-5.5"\n\n[[skills.config]]\nname = "forms"\nenabled = false\n',
    "copilot": '{\n  // mine\n  "disabledSkills": ["forms"],\n  "theme": "dark"\n}\n',
}


def switched_off(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return [
            one["name"]
            for one in tomllib.loads(text)["skills"]["config"]
            if one["enabled"] is False
        ]
    return json.loads(text.replace("// mine", ""))["disabledSkills"]


def machine_with(tmp_path: Path, client: str, names: list[str], length: int = 40) -> CommandLine:
    line = CommandLine(tmp_path)
    (line.user / SETTINGS[client]).parent.mkdir()
    for name in names:
        line.save(
            line.user / FOLDERS[client],
            name,
            skill_text(name, f"Works with {name}. ".ljust(length - 1, "x") + "."),
        )
    line("init", line.user / FOLDERS[client], "--yes")
    return line


@pytest.mark.parametrize("client", FOLDERS)
def test_the_list_of_a_collection_is_written_beside_the_persons_settings_and_goes_byte_by_byte(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    line = machine_with(tmp_path, client, ["csv", "forms", "pdf", "slides"])
    path = line.user / SETTINGS[client]
    path.write_text(BEFORE[client], encoding="utf-8")
    line("collection", "add", "work", "pdf")
    line("collection", "use", "work", "--client", client, "--dry-run")
    assert path.read_text("utf-8") == BEFORE[client]
    used = line("collection", "use", "work", "--client", client, "--json").json
    assert (used["listed"], used["hidden"], used["kept"]) == (
        ["pdf"],
        ["csv", "forms", "slides"],
        ["forms"],
    )
    assert switched_off(path) == ["forms", "csv", "slides"] and "mine" in path.read_text("utf-8")
    line("collection", "add", "work", "csv")
    line("collection", "use", "work", "--client", client)
    assert switched_off(path) == ["forms", "slides"]
    assert line("collection", "--json").json["lists"] == []
    line("collection", "stop", "--client", client)
    assert path.read_text("utf-8") == BEFORE[client]


@pytest.mark.parametrize(("client", "cut"), [("codex", 30), ("copilot", 17)])
def test_what_is_cut_is_said_in_status_and_in_the_list_of_collections(
    client: str, cut: int, tmp_path: Path
) -> None:
    line = machine_with(
        tmp_path, client, [f"craft-{number:02}" for number in range(30)], length=1_000
    )
    (one,) = line("collection", "--json").json["others"]
    assert (one["skills"], len(one["cut"])) == (30, cut)
    assert {"codex": "shortened to", "copilot": "by their name alone"}[client] in line("status").out


def test_settings_that_cannot_be_edited_stay(tmp_path: Path) -> None:
    line = machine_with(tmp_path, "codex", ["csv", "pdf"])
    path = line.user / SETTINGS["codex"]
    path.write_text("skills = { config = [] }\n", encoding="utf-8")
    line("collection", "add", "work", "pdf")
    assert "is broken" in line("collection", "use", "work", "--client", "codex", code=1).err
    assert path.read_text("utf-8") == "skills = { config = [] }\n"


@pytest.mark.parametrize("client", FOLDERS)
def test_an_agents_shell_is_refused_to_decide_what_a_client_lists(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    line = machine_with(tmp_path, client, ["csv", "pdf"])
    path = line.user / SETTINGS[client]
    path.write_text(BEFORE[client], encoding="utf-8")
    line("collection", "add", "work", "pdf")

    def refused(*arguments: str) -> None:
        before = path.read_bytes()
        for marks in (
            {"OPENCODE": "1"},
            {"QWEN_CODE": "1"},
            {"FACTORY_UPSTREAM_CLIENT_TYPE": "cli"},
        ):
            ran = line("collection", *arguments, "--client", client, code=None, **marks)
            assert ran.code and "Only a person" in ran.err
        line.person = False
        assert line("collection", *arguments, "--client", client, code=None).code
        line.person = True
        assert path.read_bytes() == before

    refused("use", "work")
    refused("use", "work", "--dry-run")
    line("collection", "use", "work", "--client", client)
    refused("stop")
