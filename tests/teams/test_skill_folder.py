"""In which folder a loaded skill lies, and what becomes of the variables by which its text names
that folder.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from http_place import http_server
from mcp import Client
from mcp_place import Place

from evolvable_server.config import Config
from evolvable_server.serving import Serving
from evolvable_tools.library import Library
from evolvable_tools.verbs import load

LINE = "no folder that can be read here holds this version."
VARIABLES = ["${CLAUDE_SKILL_DIR}", "$CLAUDE_SKILL_DIR", "${SKILL_DIR}", "$SKILL_DIR", "{baseDir}"]
SCRIPT = "#!/bin/sh\necho ${CLAUDE_SKILL_DIR}\n"


def text_of(variable: str = "${CLAUDE_SKILL_DIR}", more: str = "") -> str:
    return (
        "---\nname: sorting\ndescription: Sorts papers.\n---\n\n"
        f"Run `{variable}/scripts/sort.sh`. {more}\n"
    )


class Machine(CommandLine):
    """A person's machine with a skill that brings a program, in Claude Code's folder."""

    @property
    def folder(self) -> Path:
        return self.user / ".claude/skills/sorting"

    def save(self, text: str, folder: Path | None = None) -> None:
        for path, content in (
            ("SKILL.md", text),
            ("scripts/sort.sh", SCRIPT),
            ("more.md", "{baseDir}/a\n"),
        ):
            file = (folder or self.folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")

    def load(self, *arguments: str) -> load.Loaded:
        return load.Loaded(**self("load", "sorting", "--json", *arguments).json)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.save(text_of())
    machine("init", machine.user / ".claude/skills", "--yes")
    return machine


@pytest.fixture
def serving(machine: Machine) -> Iterator[Serving]:
    serving = Serving(Config(machine.home, machine.project, embedder="off"))
    yield serving
    serving.close()


@pytest.mark.anyio
async def test_a_client_on_this_machine_gets_the_folder_and_the_paths_of_its_files(
    machine: Machine, serving: Serving
) -> None:
    async with Client(serving.server, mode="legacy") as client:
        loaded = (await client.call_tool("load_skill", {"ref": "sorting"})).content[0].text
        more = (
            (await client.call_tool("load_skill", {"ref": "sorting", "path": "more.md"}))
            .content[0]
            .text
        )
        program = (
            (await client.call_tool("load_skill", {"ref": "sorting", "path": "scripts/sort.sh"}))
            .content[0]
            .text
        )
        exact = (await client.call_tool("get_resource", {"ref": "sorting"})).content[0].text
        prompt = str(await client.get_prompt("use_skill", {"name": "sorting"}))

    folder = machine.folder.as_posix()
    assert f"Run `{folder}/scripts/sort.sh`." in loaded
    assert f"\nfolder: {folder}\n" in loaded
    assert LINE not in loaded
    assert f"Run `{folder}/scripts/sort.sh`." in prompt
    assert more.startswith(f"{folder}/a\n")
    assert program.startswith(SCRIPT)  # a program is given as it is
    assert exact.startswith(text_of()) and "folder:" not in exact


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_way_to_name_the_folder_is_replaced(machine: Machine, variable: str) -> None:
    machine.save(text_of(variable))
    machine("sync")

    assert f"Run `{machine.folder.as_posix()}/scripts/sort.sh`." in (machine.load().text or "")


@pytest.mark.parametrize(
    "text", ["${baseDir}/a", "${MY_SKILL_DIR}/a", "$SKILL_DIRS/a", "{basedir}/a", "$HOME/a"]
)
def test_what_names_something_else_stays(machine: Machine, text: str) -> None:
    machine.save(text_of(text))
    machine("sync")
    loaded = machine.load()

    assert (
        f"Run `{text}/scripts/sort.sh`." in (loaded.text or "") and loaded.folder["variable"] == ""
    )


def test_a_variable_that_the_text_gives_a_value_itself_stays(machine: Machine) -> None:
    machine.save(text_of("$SKILL_DIR", "First: SKILL_DIR=/opt/sorting"))
    machine("sync")
    loaded = machine.load()

    assert "$SKILL_DIR/scripts" in (loaded.text or "") and loaded.folder["variable"] == ""


def test_an_older_version_keeps_the_variable_and_names_the_files(machine: Machine) -> None:
    machine.save(text_of(more="Twice."))
    machine("sync")
    loaded = machine.load("--version", "1")

    assert loaded.text == text_of()
    assert loaded.folder == {
        "path": "",
        "variable": "${CLAUDE_SKILL_DIR}",
        "files": ["scripts/sort.sh"],
    }
    said = machine("load", "sorting", "--version", "1").out
    assert "${CLAUDE_SKILL_DIR}: no folder here" in said and "--path: scripts/sort.sh" in said


@pytest.mark.parametrize(
    ("path", "content"), [("scripts/sort.sh", "echo other\n"), ("new.sh", "echo new\n")]
)
def test_a_folder_whose_files_are_others_than_the_versions_is_not_named(
    machine: Machine, path: str, content: str
) -> None:
    """A save that no server has imported yet, or that is held: the program would not be the one of
    the text.
    """
    (machine.folder / path).write_text(content, encoding="utf-8")
    loaded = machine.load()

    assert "${CLAUDE_SKILL_DIR}/scripts" in (loaded.text or "")
    assert loaded.folder["path"] == "" and loaded.folder["files"] == ["scripts/sort.sh"]


def test_a_folder_that_is_gone_and_a_skill_that_lies_in_none_keep_the_variable(
    machine: Machine,
) -> None:
    (machine.user / ".claude").rename(machine.user / "elsewhere")
    assert machine.load().folder["variable"] == "${CLAUDE_SKILL_DIR}"


def test_a_folder_whose_path_would_end_a_command_is_not_put_into_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    skills = machine.user / "$(touch x)/skills"
    machine.save(text_of(), skills / "sorting")
    machine("init", skills, "--yes")

    assert "touch x" not in (machine.load().text or "")


def test_the_root_of_a_plugin_is_replaced_where_the_skill_lies_in_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    plugin = machine.user / "office"
    machine.save(text_of("${CLAUDE_PLUGIN_ROOT}/skills/sorting"), plugin / "skills/sorting")
    machine("init", plugin / "skills", "--yes")

    loaded = machine.load()
    assert loaded.folder["variable"] == "${CLAUDE_PLUGIN_ROOT}" and loaded.folder["files"] == [
        "scripts/sort.sh"
    ]
    (plugin / ".claude-plugin").mkdir()
    (plugin / ".claude-plugin/plugin.json").write_text('{"name": "office"}', encoding="utf-8")
    assert f"Run `{plugin.as_posix()}/skills/sorting/scripts/sort.sh`." in (
        machine.load().text or ""
    )


@pytest.mark.anyio
@pytest.mark.process
async def test_over_http_no_folder_is_named_and_one_line_says_which_files_to_load(
    tmp_path: Path,
) -> None:
    """The server's folders are not the client's."""
    place = Place(tmp_path)
    place.save(
        "pdf",
        "---\nname: pdf\ndescription: d\n---\n\nRun ${CLAUDE_SKILL_DIR}/scripts/fill.sh\n",
        "SKILL.md",
    )
    place.save("pdf", "echo\n", "scripts/fill.sh")
    with Library.open(place.home) as library:
        library.working_copies.sync()
    with http_server(place) as server:
        async with Client(server.url, mode="legacy") as client:
            loaded = (await client.call_tool("load_skill", {"ref": "pdf"})).content[0].text

    assert "Run ${CLAUDE_SKILL_DIR}/scripts/fill.sh" in loaded and str(place.skills) not in loaded
    assert f"${{CLAUDE_SKILL_DIR}}: {LINE} Read by load_skill: scripts/fill.sh\n" in loaded
