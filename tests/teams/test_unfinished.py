"""What a crash, a full disk or an open merge leaves of a document comes in through no door."""

import os
import zipfile
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from mcp_place import Place
from remote_place import Machine, commit_tree, make_hub
from remote_place import skill_text as committed_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

MARKS = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> main\n"

LEFT = {
    "nothing": "",
    "white space": "\n\n",
    "nul": "\0" * 64,
    "marks": skill_text("pdf", body=MARKS),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine whose library holds what lies in a watched folder."""
    line = CommandLine(tmp_path)
    monkeypatch.chdir(line.project)
    line.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    line("init", tmp_path / "skills")
    return line


@pytest.mark.process
@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_an_unfinished_document_is_named_by_sync_status_and_doctor_and_the_version_is_served(
    run, tmp_path, left
):
    (tmp_path / "skills/pdf/SKILL.md").write_text(left)

    synced, status, doctor = run("sync").out, run("status").out, run("doctor", code=None).out

    for told in (synced, status, doctor):
        assert "SKILL.md: it " in told and ("it is empty" in told or "conflict marks" in told)
    assert "three" in run("load", "pdf").out


@pytest.mark.process
def test_init_names_an_empty_document_and_imports_the_rest(run, tmp_path):
    run.save(tmp_path / "more", "csv", "")
    run.save(tmp_path / "more", "xml", skill_text("xml"))

    told = run("init", tmp_path / "more").out

    assert "SKILL.md: " in told and "0 bytes" in told
    assert [one["ref"] for one in run("list", "--json").json["resources"]] == [
        "skill:pdf",
        "skill:xml",
    ]


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_a_person_and_an_archive_bring_no_unfinished_document(run, tmp_path, left):
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("new/SKILL.md", left)

    update = run("update", "pdf", "--file", "SKILL.md=-", stdin=left, code=None)
    brought = run("import", tmp_path / "one.zip", code=None)

    assert update.code != 0 and "SKILL.md: it " in update.err
    assert "SKILL.md: it " in brought.out + brought.err
    assert [one["version"] for one in run("list", "--json").json["resources"]] == [1]


@pytest.mark.process
@pytest.mark.anyio
async def test_an_agent_that_empties_a_document_gets_a_sentence(tmp_path):
    place = Place(tmp_path)
    async with place.client("modern") as client:
        change = {
            "ref": "pdf",
            "reason": "shorter",
            "files": {"SKILL.md": ""},
            "expected_version": 1,
        }
        answer = await client.call_tool("update_resource", change)

    assert answer.is_error and "SKILL.md: " in answer.content[0].text
    assert "(0 bytes)" in answer.content[0].text


@pytest.mark.process
def test_a_remote_that_emptied_a_document_leaves_the_version_as_it_is(tmp_path):
    hub = make_hub(tmp_path / "hub.git")
    ada = Machine(tmp_path / "ada", hub)
    ada.put("pdf", "one\n")
    ada.push()
    tip = (hub / "refs/heads/main").read_text().strip()
    commit_tree(
        hub,
        [
            ("100644", "skills/pdf/SKILL.md", b""),
            ("100644", "skills/csv/SKILL.md", committed_text("csv", MARKS)),
        ],
        "a full disk",
        tip,
    )

    told = ada.pull()

    assert ada.text("pdf") == "one\n" and list(ada.texts()) == ["skill:pdf"]
    assert "it is empty" in str(told) and "conflict marks" in str(told)


@pytest.mark.process
def test_a_history_with_an_empty_version_still_moves_to_another_library(run, tmp_path):
    """Libraries of older versions hold such versions."""
    with Store.open(run.home) as store:
        for data in (b"", skill_text("old").encode()):
            with store.transaction(Actor.HUMAN, "an older version of this program") as tx:
                tx.put(Ref.parse("old"), {"SKILL.md": File(data)})
    run("export", tmp_path / "all.json")

    told = run("import", tmp_path / "all.json", "--accept", EVOLVABLE_HOME=str(tmp_path / "other"))

    assert "skill:old" in told.out and ", 0 refused" in told.out
    assert os.path.exists(tmp_path / "other/library.db")


@pytest.mark.process
def test_a_synchronisers_copy_is_named_by_init_status_and_doctor(run, tmp_path):
    run.save(tmp_path / "skills", "pdf (conflicted copy 2026-11-01)", skill_text("pdf"))

    for told in (run("sync").out, run("status").out, run("doctor", code=None).out):
        assert "pdf (conflicted copy 2026-11-01)" in told and "synchroniser" in told
    assert [one["ref"] for one in run("list", "--json").json["resources"]] == ["skill:pdf"]


@pytest.mark.parametrize("form", ["zip", "folder"])
def test_an_import_whose_text_names_a_file_of_no_version_is_refused_without_the_persons_answer(
    run, tmp_path, form
):
    text = skill_text("deploy", body="Run bash scripts/node_modules/x.sh first.")
    files = {"deploy/SKILL.md": text, "deploy/scripts/node_modules/x.sh": "echo"}
    for path, content in files.items():
        (tmp_path / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / path).write_text(content)
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        for path in files:
            archive.write(tmp_path / "out" / path, path)
    source = tmp_path / ("out.zip" if form == "zip" else "out")

    refused = run("import", source, code=None)

    assert "file.left-out" in refused.out + refused.err
    assert len(run("list", "--json").json["resources"]) == 1
    assert "file.left-out" in run("scan", tmp_path / "out/deploy", code=None).out
    run("import", source, "--accept", code=None)
    assert len(run("list", "--json").json["resources"]) == 2
