"""Names in any script, whole through every door, with a guard against names that look alike."""

import unicodedata
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from command_line import CommandLine, skill_text
from mcp_place import Place
from remote_place import Machine, make_hub
from wcwidth import width as cell_len

from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_teams.remotes.layout import folder_of, locate

NAMES = ("отчёт", "번역", "翻译-v2", "データ", "café")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine whose library holds skills with names in five scripts, in folders as macOS names
    them.
    """
    line = CommandLine(tmp_path)
    monkeypatch.chdir(line.project)
    for name in NAMES:
        line.save(
            tmp_path / "skills",
            unicodedata.normalize("NFD", name),
            skill_text(name, f"Works on {name}."),
        )
    line("init", tmp_path / "skills")
    return line


def refs(run: CommandLine, **env: str) -> set[str]:
    return {one["ref"] for one in run("list", "--json", **env).json["resources"]}


@pytest.mark.process
def test_a_folder_keeps_its_names_whatever_normal_form_the_system_gives(run, tmp_path):
    run.save(
        tmp_path / "skills", unicodedata.normalize("NFD", "번역"), skill_text("번역", body="next")
    )

    run("sync")

    assert refs(run) == {f"skill:{name}" for name in NAMES}
    assert "next" in run("load", "번역").out
    assert "next" in run("load", unicodedata.normalize("NFD", "번역")).out
    assert len(list((tmp_path / "skills").iterdir())) == len(NAMES)
    doctor = run("doctor", code=None).out
    assert "is not imported" not in doctor and "another skill of this name" not in doctor


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_and_a_near_one_is_meant(run, name):
    assert run("find", f"use {name} now", "--json").json["matches"][0]["ref"] == f"skill:{name}"
    assert (
        f"Did you mean {name}"
        in run("load", f"{name}x" if name.isascii() else f"{name}-x", code=None).err
    )


@pytest.mark.process
@pytest.mark.parametrize("form", ["json", "zip", "folders"])
def test_an_export_and_its_import_keep_the_names(run, tmp_path, form):
    target = tmp_path / ("out" if form == "folders" else f"out.{form}")
    run("export", target, "--format", form)

    told = run("import", target, "--accept", EVOLVABLE_HOME=str(tmp_path / "other"))

    assert refs(run, EVOLVABLE_HOME=str(tmp_path / "other")) == {
        f"skill:{name}" for name in NAMES
    }, told.out + told.err


@pytest.mark.process
def test_a_remote_keeps_the_names(tmp_path):
    hub = make_hub(tmp_path / "hub.git")
    ada, ben = Machine(tmp_path / "ada", hub), Machine(tmp_path / "ben", hub)
    for ref in ("отчёт", "翻译-v2", "agent:번역"):
        ada.put(ref, "one\n")
    ada.push()

    ben.pull()

    assert set(ben.texts()) == {"skill:отчёт", "skill:翻译-v2", "agent:번역"}
    assert locate(f"{folder_of(Ref.parse('проект/翻译-v2'))}/SKILL.md") == Ref.parse(
        "проект/翻译-v2"
    )


@pytest.mark.process
def test_a_message_shows_the_name_and_a_table_counts_its_width(run):
    told = run("load", "Отчёт", code=None).err
    table = run.on_screen("list", columns=100).splitlines()

    assert "'Отчёт' is not a name" in told and "'отчёт' would do" in told and "\\u" not in told
    rows = [line for line in table if any(name in line for name in NAMES)]
    starts = {cell_len(line.partition("Works on")[0]) for line in rows}
    assert len(rows) == len(NAMES) and len(starts) == 1


@pytest.mark.process
def test_a_copy_gets_the_name_in_its_head(run):
    run("update", "итог", "--create", "--copy-of", "отчёт", "--reason", "x")

    assert "name: итог" in run("load", "итог").out


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.save("翻译-v2", skill_text("翻译-v2", "翻译文档。"))
    with Store.open(place.home) as store:
        WorkingCopies(store).sync()
    return place


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_client_reads_lists_finds_and_changes_such_a_name(place, era):
    async with place.client(era) as client:
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        uri = next(one for one in listed if quote("翻译-v2") in one or "翻译-v2" in one)
        read = await client.read_resource(uri)
        raw = await client.read_resource("skill://翻译-v2/SKILL.md")
        loaded = await client.call_tool(
            "load_skill", {"ref": unicodedata.normalize("NFD", "翻译-v2")}
        )
        found = await client.call_tool("find_skill", {"task": "翻译文档"})
        edit = {"path": "SKILL.md", "old": "three", "new": "four"}
        changed = await client.call_tool(
            "update_resource", {"ref": "翻译-v2", "reason": "x", "edits": [edit]}
        )

    assert "翻译文档" in read.contents[0].text == raw.contents[0].text
    assert "翻译文档" in loaded.content[0].text and "翻译-v2" in str(found.structured_content)
    assert not changed.is_error and "four" in (place.skills / "翻译-v2/SKILL.md").read_text()


@pytest.mark.process
@pytest.mark.anyio
async def test_a_whole_name_of_another_script_waits_where_an_agent_makes_it(place):
    place.save("cop", skill_text("cop", "Counts police cars."))
    with Store.open(place.home) as store:
        WorkingCopies(store).sync()

    async with place.client("modern") as client:
        answer = await client.call_tool(
            "update_resource",
            {"ref": "сор", "reason": "x", "create": True, "files": {"SKILL.md": skill_text("сор")}},
        )
        mixed = await client.call_tool(
            "update_resource",
            {"ref": "рdf", "reason": "x", "create": True, "files": {"SKILL.md": skill_text("рdf")}},
        )
        own = {
            "ref": "отчёт",
            "reason": "x",
            "create": True,
            "files": {"SKILL.md": skill_text("отчёт")},
        }
        other = await client.call_tool("update_resource", own)

    assert mixed.is_error and "'рdf' is not a name" in mixed.content[0].text
    assert other.structured_content["version"] == 1
    assert answer.structured_content["proposal_id"]
    assert "taken for that of skill:cop" in answer.content[0].text
    with Store.open(place.home) as store:
        assert store.head_or_none(Ref.parse("сор")) is None


@pytest.mark.process
def test_a_name_like_another_waits_where_an_archive_brings_it_and_a_person_may_give_it(
    run, tmp_path
):
    run.save(tmp_path / "skills", "cop", skill_text("cop"))
    run("sync")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("сор/SKILL.md", skill_text("сор"))
    run.person = False
    told = run("import", tmp_path / "one.zip", "--json", code=None)
    run.person = True
    assert "skill:сор" not in refs(run), told.out
    held = run("inbox", "show", "1").err

    run.save(tmp_path / "skills", "сор", skill_text("сор"))
    run("sync")

    assert "taken for that of skill:cop" in held
    assert "skill:сор" in refs(run)
    warnings = run("doctor", "--json", code=None).json["warnings"]
    assert "taken for that of skill:cop" in str(warnings)
