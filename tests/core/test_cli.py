"""The command line: the verbs under the same names, their JSON, their errors and exit codes."""

import os
import re
import shlex
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest
from command_line import CommandLine, skill_text
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from samples import attacks

from evolvable_server.cli.command_context import to_cli_words
from evolvable_server.cli.command_groups import COMMANDS, TOOLS, help_sections
from evolvable_server.cli.terminal import count, one_line, safe
from evolvable_server.config import GROUPS, Config
from evolvable_server.serving import Serving
from evolvable_store.objects import MAX_FILE, File
from evolvable_store.operation import Actor
from evolvable_store.paths import seed_folder
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_tools.care import library_health
from evolvable_tools.verbs.registry import place_of

MANUAL = Path(__file__).parents[2] / "docs/cli.md"

FROZEN = skill_text("pdf", more='metadata:\n  evolvable: "false"\n')


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine without a library."""
    line = CommandLine(tmp_path)
    monkeypatch.chdir(line.project)
    return line


@pytest.fixture
def pdf(run: CommandLine) -> CommandLine:
    """A machine whose library holds version 1 of skill:pdf."""
    Store.open(run.home, create=True).close()
    run("update", "pdf", "--create", "--file", "SKILL.md=-", stdin=skill_text("pdf"))
    return run


def put(
    run: CommandLine,
    name: str,
    actor: Actor = Actor.AGENT,
    session: str | None = None,
    **files: bytes,
) -> int:
    """Writes a skill past the command line; returns the operation.

    `SKILL` is SKILL.md, any other name name.txt.
    """
    content = {
        f"{path}.md" if path == "SKILL" else f"{path}.txt": File(data)
        for path, data in files.items()
    }
    with Store.open(run.home, create=True) as store:
        with store.transaction(actor, f"write {name}", session=session) as tx:
            tx.put(Ref.parse(name), content)
        assert tx.operation is not None
        return tx.operation.id


# The surface


def test_every_mcp_tool_has_a_command_of_the_same_verb_and_a_section_in_the_manual(run):
    """Docs are tested, and a test walks the registry."""
    serving = Serving(Config(run.home, run.project, toolsets=GROUPS))
    try:
        tools = [tool.name for tool in anyio.run(serving.server.list_tools)]
    finally:
        serving.close()
    headings = [
        line[3:]
        for line in MANUAL.read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]

    assert tools == list(TOOLS)
    assert {command.split()[0] for command in TOOLS.values()} <= set(COMMANDS)
    assert set(COMMANDS) <= set(headings)


def test_the_whole_help_lists_every_command_under_its_section(run):
    text = "\n" + run("help", "--all").out
    lists = [text.index(f"\n{section}:") for section in help_sections()]

    assert lists == sorted(lists)
    assert all(re.search(rf"[ (\n]{place_of(name).split()[-1]}[ ,)\n]", text) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(run, name):
    text = run(name, "--help").out

    assert text.startswith(f"Usage: evolvable {name}")
    assert "\nExample:\n  evolvable " in text
    assert "--home PATH" in text
    assert name == "serve" or "--json" in text


@pytest.mark.parametrize("tool", TOOLS)
def test_the_name_of_a_tool_is_understood_as_its_command(run, tool):
    """Hints and documents speak of find_skill; typed into a shell it is no mistake."""
    assert run(tool, "--help").out.startswith("Usage: evolvable ")


def test_messages_speak_the_language_of_the_command_line():
    said = (
        "restore_resource with version 3 brings it back; pass its version as expected_version. "
        "undo takes it back."
    )
    heard = (
        "`evolvable restore` with version 3 brings it back; pass its version as --expect. undo "
        "takes it back."
    )

    assert to_cli_words(said) == heard
    other = "`find_skill` my_find_skill find_skills"
    assert to_cli_words(other) == other


# Errors and exit codes


def test_without_a_library_a_command_says_how_to_make_one(run):
    ran = run("history", "pdf", code=1)

    assert ran.out == ""
    error, hint = ran.err.splitlines()
    assert error.startswith("Error: ") and f"no library in {run.home}" in error
    assert hint.startswith("Hint: `evolvable init`")


def test_with_json_an_error_is_an_object_on_stdout(run):
    """A script reads one stream, and knows an error by its exit code and by the key."""
    ran = run("history", "pdf", "--json", code=1)

    assert sorted(ran.json) == ["error", "hint"]
    assert f"no library in {run.home}" in ran.json["error"]
    assert "`evolvable init`" in ran.json["hint"]
    assert ran.err == ""


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["get", "Bad Name"], "'Bad Name' is not a name."),
        (["get", "recipe:pdf"], "'recipe' is not a kind."),
        (["get", "pdf@0"], "'0' is not a version."),
        (["get", "pdff"], "Did you mean pdf? `evolvable find`"),
        (["get", "pdff"], "`evolvable list`"),
        (["get", "pdf@7"], "skill:pdf has no version 7."),
        (["get", "pdf", "--path", "notes.md"], "skill:pdf@1 has no file 'notes.md'."),
        (["get", "pdf", "--path", "../../etc/passwd"], "skill:pdf@1 has no file"),
        (["restore", "pdf", "7"], "versions 1 to 1"),
        (["undo", "77"], "no operation 77."),
        (["undo", "77"], "`evolvable log`"),
        (["undo", "--session", "none"], "Session 'none' changed nothing"),
        (["report", "use-000000000000", "failed"], "There is no use"),
        (
            ["update", "pdf", "--create", "--edit", "SKILL.md", "one", "1"],
            "skill:pdf exists already (version 1)",
        ),
        (["update", "pdf", "--edit", "SKILL.md", "four", "4"], "not there in SKILL.md"),
        (["update", "pdf", "--delete", "notes.md"], "no file notes.md"),
        (["update", "pdf"], "--file, --edit, --delete or --editor"),
        (["update", "pdf", "--file", "../x=-"], "'../x' is not a path"),
        (["folders", "drop", "/nowhere"], "/nowhere is not watched."),
        (["inbox", "show", "5"], "no proposal 5."),
        (["import", "."], "no folder with SKILL.md"),
    ],
)
def test_a_mistake_ends_with_1_and_says_what_and_what_next(pdf, arguments, says):
    ran = pdf(*arguments, code=1)

    assert ran.out == ""
    assert ran.err.startswith("Error: ")
    assert says in ran.err.replace("\n", " ")
    assert "\nHint: " in ran.err


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["lost"], "No such command 'lost'. Did you mean 'list'?"),
        (["frobnicate"], "No such command 'frobnicate'. `evolvable help --all`"),
        (["get"], "Missing argument 'REF'."),
        (["get", "pdf", "--wat"], "No such option"),
        (["undo"], "an operation, or a session"),
        (["undo", "1", "--session", "s"], "an operation, or a session"),
        (["restore", "pdf"], "Name the version"),
        (["history", "pdf", "--diff", "one..two"], "'one..two' is no range"),
        (["history", "pdf", "--diff", ".."], "'..' is no range"),
        (["update", "pdf", "--path", "x"], "--path goes with --editor."),
        (["update", "pdf", "--editor", "--delete", "x"], "--editor goes with none of"),
        (["update", "pdf", "--file", "SKILL.md"], "is not PATH=SOURCE"),
        (
            ["update", "pdf", "--file", "SKILL.md=/no/such"],
            "'/no/such': No such file or directory.",
        ),
        (["update", "pdf", "--file", "a=-", "--delete", "a"], "a is named twice."),
        (["report", "pdf", "splendid"], "'splendid' is not one of"),
        (["serve", "--http", "8000"], "'8000' is not HOST:PORT"),
        (["serve", "--http", "localhost:99999"], "is not HOST:PORT"),
        (["inbox", "approve"], "the number of a proposal"),
        (["init", "/no/such/folder"], "does not exist"),
    ],
)
def test_wrong_usage_ends_with_2(pdf, arguments, says):
    ran = pdf(*arguments, code=2)

    assert ran.out == ""
    assert says in " ".join(ran.err.split())


@pytest.mark.process
def test_a_conflict_names_both_versions(pdf):
    pdf("update", "pdf", "--edit", "SKILL.md", "one", "1")

    ran = pdf("update", "pdf", "--edit", "SKILL.md", "two", "2", "--expect", "1", code=1)

    error, hint = ran.err.splitlines()
    assert error.startswith("Error: skill:pdf ")
    assert "not at version 1" in error and "head is version 2" in error
    assert hint.startswith("Hint: ") and "--expect" in hint
    assert "\ntwo\n" in pdf("get", "pdf").out


def test_every_reason_against_a_resource_has_a_line_of_its_own(pdf):
    ran = pdf(
        "update",
        "pdf",
        "--file",
        "SKILL.md=-",
        "--file",
        f"a.md={__file__}",
        "--file",
        f"A.md={__file__}",
        stdin="a\0",
        code=1,
    )

    assert ran.err.startswith("Error: skill:pdf cannot be stored:\n  - ")
    assert ran.err.count("\n  - ") >= 2


def test_a_place_where_no_library_can_be_made_is_an_error(run):
    run.home.write_text("a file", encoding="utf-8")

    assert f"{run.home} cannot be made" in run("init", "--yes", code=1).err


@pytest.mark.process
def test_a_file_that_is_no_library_is_an_error(run):
    run.home.mkdir()
    (run.home / "library.db").write_text(
        "not a database at all, but long enough to be looked at" * 20, encoding="utf-8"
    )

    ran = run("log", code=1)

    assert "is not a library." in ran.err and "`evolvable backup restore FOLDER`" in ran.err
    assert "is not a library." in run("doctor", code=4).out


@pytest.mark.process
def test_a_library_of_a_newer_program_is_not_touched(pdf):
    with sqlite3.connect(pdf.home / "library.db") as db:
        db.execute("PRAGMA user_version=999")
    db.close()

    assert "written by a newer Evolvable (schema 999" in pdf("log", code=1).err


@pytest.mark.process
def test_what_is_frozen_a_person_may_change_and_an_import_may_not(pdf, tmp_path):
    """A frozen resource refuses every actor but a person."""
    pdf("update", "pdf", "--file", "SKILL.md=-", stdin=FROZEN)
    pdf.save(tmp_path / "theirs", "pdf", FROZEN.replace("three", "3"))

    refused = pdf("import", tmp_path / "theirs", "--yes", "--replace", "--json", code=4).json
    changed = pdf("update", "pdf", "--edit", "SKILL.md", "two", "2", "--json").json

    assert "frozen" in refused["refused"][0]["problems"][0]
    assert changed["version"] == 3


# What is written to a terminal


@pytest.mark.process
@given(st.text(st.characters(exclude_categories=())))
def test_no_text_can_steer_a_terminal(text):
    """attacks.json unicode-09: ANSI and OSC sequences in text that is shown."""
    shown = safe(text)

    assert not [
        c
        for c in shown
        if not (c.isprintable() or c in "\n\t\u200c\u200d" or c.isspace() and c >= "\xa0")
    ]
    assert all(end not in shown for end in "\r\x85\u2028\u2029")
    shown.encode("utf-8")


@pytest.mark.parametrize("attack", attacks("unicode"), ids=lambda attack: attack["id"])
def test_the_hostile_texts_are_shown_in_a_harmless_form(attack):
    text = attack.get("input")
    if isinstance(text, str):
        assert not {"\x1b", "\x07", "\r", "\x85", "\u202e", "\u2028"} & set(safe(text))
        assert len(one_line(text).splitlines()) <= 1


def test_ordinary_text_is_shown_as_it_is():
    text = "Größe 日本語 \u3000 \u00a0 👩\u200d💻 naïve\n\ttab"

    assert safe(text) == text
    assert safe("a\r\nb\x1b[31m") == "a\nb\\x1b[31m"


def test_numbers_agree_with_their_nouns():
    assert [count(1, "memory"), count(2, "memory"), count(1200, "skill")] == [
        "1 memory",
        "2 memories",
        "1,200 skills",
    ]


@pytest.mark.process
def test_hostile_text_in_the_library_reaches_no_output(pdf):
    evil = "\x1b[2J\x1b]0;pwn\x07"
    put(
        pdf,
        "pdf",
        SKILL=skill_text("pdf", body=evil).encode(),
        notes=f"a\rb {evil} \u202e".encode(),
    )
    with (
        Store.open(pdf.home) as store,
        store.transaction(Actor.AGENT, f"{evil} why\nnew line", session=evil) as tx,
    ):
        tx.put(Ref.parse("pdf"), {"SKILL.md": File(skill_text("pdf").encode())})

    shown = [
        pdf(*command)
        for command in (
            ["history", "pdf"],
            ["history", "pdf", "--diff", "1..2"],
            ["log"],
            ["load", "pdf@2"],
            ["load", "pdf@2", "--path", "notes.txt"],
            ["history", "pdf", "--json"],
            ["get", "pdf@2", "--json"],
        )
    ]

    assert not {"\x1b", "\x07", "\r", "\u202e"} & set("".join(ran.out + ran.err for ran in shown))
    assert r"\x1b[2J\x1b]0;pwn\x07 why new line" in shown[0].out


# The verbs


@pytest.mark.process
def test_a_change_is_made_seen_restored_and_undone(pdf):
    """The same verbs under the same names as over MCP."""
    changed = pdf("update", "pdf", "--edit", "SKILL.md", "two", "second", "-m", "clearer")
    assert (
        changed.out
        == "skill:pdf is now version 2, before it was 1: SKILL.md\nTake it back: evolvable undo 2\n"
    )
    assert "-two\n+second\n" in pdf("history", "pdf", "--diff", "1..2").out

    assert pdf("restore", "pdf", 1).out.startswith("skill:pdf is now version 3, before it was 2")
    assert "\ntwo\n" in pdf("get", "pdf").out

    assert (
        pdf("undo", 3).out
        == "restored: skill:pdf@4\nThis is operation 4; it took back 1 operation.\n"
    )
    assert "\nsecond\n" in pdf("get", "pdf").out

    assert pdf("remove", "pdf").out.startswith("skill:pdf is removed")
    assert "`evolvable restore skill:pdf 4`" in pdf("history", "pdf").out
    assert pdf("restore", "pdf@4").out.startswith("skill:pdf is now version 4")
    reasons = [operation["reason"] for operation in pdf("log", "--json").json["operations"]]
    done = [
        "version 4 restored",
        "removed on the command line",
        "operation 3 undone",
        "version 1 restored",
    ]
    assert reasons[:4] == done


@pytest.mark.process
def test_files_come_from_files_and_from_stdin_byte_for_byte(pdf, tmp_path):
    data = bytes(range(256)) + b"\r\n"
    (tmp_path / "picture.bin").write_bytes(data)

    pdf(
        "update",
        "pdf",
        "--file",
        f"assets/picture.bin={tmp_path / 'picture.bin'}",
        "--file",
        "a.txt=-",
        stdin="a\r\n",
    )

    assert pdf("get", "pdf", "--path", "assets/picture.bin").data == data
    assert pdf("get", "pdf", "--path", "a.txt").data == b"a\r\n"
    assert pdf("get", "pdf", "--path", "assets/picture.bin", "--json").json["text"] is None


@pytest.mark.process
def test_equal_content_makes_no_version(pdf):
    ran = pdf("update", "pdf", "--file", "SKILL.md=-", stdin=skill_text("pdf"))

    assert ran.out.startswith("skill:pdf ") and "version 1" in ran.out
    assert len(pdf("history", "pdf", "--json").json["versions"]) == 1


@pytest.mark.process
def test_a_new_resource_can_start_as_a_copy(pdf):
    pdf("update", "pdf-forms", "--create", "--copy-of", "pdf", "--edit", "SKILL.md", "one", "first")

    text = pdf("get", "pdf-forms").out
    assert "name: pdf-forms\n" in text and "\nfirst\n" in text


def editor(tmp_path: Path, body: str) -> str:
    """Returns an $EDITOR that runs these lines of Python on the bytes `data` of the file."""
    script = tmp_path / "editor.py"
    lines = ["import os, sys", "path = sys.argv[-1]", "data = open(path, 'rb').read()", body]
    # click asks the file's time whether it was saved; a clock of whole seconds would not show it.
    lines += ["open(path, 'wb').write(data)", "os.utime(path, (0, 0))"]
    script.write_text("\n".join(lines), encoding="utf-8")
    return shlex.join([sys.executable, str(script)])


@pytest.mark.process
def test_the_editor_opens_the_main_file_and_keeps_its_line_ends(pdf, tmp_path):
    crlf = skill_text("pdf").replace("\n", "\r\n").encode()
    put(pdf, "pdf", SKILL=crlf)

    pdf(
        "update",
        "pdf",
        "--editor",
        EDITOR=editor(tmp_path, "data = data.replace(b'two', b'second')"),
        VISUAL="",
    )

    assert pdf("get", "pdf").data == crlf.replace(b"two", b"second")


@pytest.mark.process
def test_the_editor_makes_a_new_resource(pdf, tmp_path):
    write = (
        "data = data.replace(b'description: ', b'description: Reads CSV files.') + b'Do this.\\n'"
    )

    pdf("update", "csv", "--create", "--editor", EDITOR=editor(tmp_path, write), VISUAL="")

    assert (
        pdf("get", "csv").out == "---\nname: csv\ndescription: Reads CSV files.\n---\n\nDo this.\n"
    )


@pytest.mark.process
def test_an_editor_that_saves_nothing_changes_nothing(pdf, tmp_path):
    ran = pdf("update", "pdf", "--editor", EDITOR=editor(tmp_path, ""), VISUAL="", code=1)

    assert ran.err.startswith("Error: Nothing was saved")
    assert len(pdf("history", "pdf", "--json").json["versions"]) == 1


@pytest.mark.process
def test_what_was_written_in_the_editor_is_kept_when_the_library_does_not_take_it(pdf, tmp_path):
    """A person's edit is never lost."""
    change = (
        "from pathlib import Path; from evolvable_store.store import Store; from "
        "evolvable_store.objects import File;from evolvable_store.operation import Actor; from "
        f"evolvable_store.resource import Ref;store = Store.open(Path({str(pdf.home)!r}));tx = "
        "store.transaction(Actor.AGENT, 'faster'); tx.put(Ref.parse('pdf'), {'SKILL.md': "
        "File(b'x')});tx.__exit__(None, None, None); store.close(); data = "
        "data.replace(b'two', b'mine')"
    )
    ran = pdf("update", "pdf", "--editor", EDITOR=editor(tmp_path, change), VISUAL="", code=1)

    assert "not at version 1" in ran.err and "head is version 2" in ran.err
    kept = Path(ran.err.strip().rpartition("Your text is kept in ")[2])
    assert "\nmine\n" in kept.read_text(encoding="utf-8")
    kept.unlink()


def proposed_crlf(pdf) -> bytes:
    """Has an agent propose a file with a byte order mark and CRLF line ends; returns its bytes."""
    data = b"\xef\xbb\xbfone\r\ntwo\r\nlast"
    pdf("update", "pdf", "--file", "notes.md=-", "--propose", stdin=data)
    return data


@pytest.mark.process
def test_an_edited_proposal_keeps_its_line_ends_and_its_byte_order_mark(pdf, tmp_path):
    data = proposed_crlf(pdf)

    pdf(
        "inbox",
        "edit",
        1,
        EDITOR=editor(tmp_path, "data = data.replace(b'two', b'mine')"),
        VISUAL="",
    )

    assert pdf("get", "pdf", "--path", "notes.md").data == data.replace(b"two", b"mine")


@pytest.mark.process
def test_a_file_that_is_not_text_is_shown_by_the_command_that_writes_it(pdf):
    data = b"\x89PNG\r\n\0"
    pdf("update", "pdf", "--file", "assets/big logo.png=-", stdin=data)

    shown = pdf("load", "pdf", "--path", "assets/big logo.png").out
    command = shown.partition("To have it: ")[2].partition(" > FILE")[0]

    assert command == "evolvable get skill:pdf@2 --path 'assets/big logo.png'"
    assert pdf(*shlex.split(command)[1:]).data == data


@pytest.mark.process
def test_a_proposal_that_changes_no_text_cannot_be_edited_and_says_so(pdf, tmp_path):
    pdf("update", "pdf", "--file", "logo.png=-", "--propose", stdin=b"\x89PNG\0")

    ran = pdf("inbox", "edit", 1, EDITOR=editor(tmp_path, "sys.exit(3)"), VISUAL="", code=1)

    assert ran.err.startswith("Error: Proposal 1 changes no text.")


LATIN_1 = "latin = data.replace(b'two', 'K\u00e4se'.encode('latin-1'))"
"""What an editor that writes Latin-1 makes of a text."""


@pytest.mark.process
def test_a_proposal_saved_in_another_encoding_is_opened_again_until_it_is_text(pdf, tmp_path):
    data = proposed_crlf(pdf)
    again = (
        f"{LATIN_1}; data = data[3:].decode('latin-1').encode('utf-8') if b'K' in data else latin"
    )

    ran = pdf("inbox", "edit", 1, EDITOR=editor(tmp_path, again), VISUAL="", stdin="y\n")

    assert "notes.md is not text in UTF-8" in ran.err
    assert pdf("get", "pdf", "--path", "notes.md").data == data[3:].replace(
        b"two", "K\u00e4se".encode()
    )


@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "end"), [("n\n", "Nothing was changed."), ("", "Open it again?")]
)
def test_a_proposal_saved_in_another_encoding_and_given_up_is_kept(pdf, tmp_path, answer, end):
    data = proposed_crlf(pdf)
    edit = editor(tmp_path, f"{LATIN_1}; data = latin")

    ran = pdf("inbox", "edit", 1, EDITOR=edit, VISUAL="", stdin=answer, code=1)

    assert end in ran.err
    kept = Path(ran.err.partition("Your text is kept in ")[2].split("\n")[0])
    assert kept.read_bytes() == data.replace(b"two", b"K\xe4se")
    kept.unlink()
    assert pdf("inbox", "show", 1, "--json").json["state"] == "open"


@pytest.mark.process
def test_texts_of_a_proposal_are_kept_when_a_later_editor_fails(pdf, tmp_path):
    pdf(
        "update",
        "pdf",
        "--file",
        "a.md=-",
        "--edit",
        "SKILL.md",
        "two",
        "2",
        "--propose",
        stdin="one\n",
    )
    last = "data = data.replace(b'2', b'mine') if b'name' in data else sys.exit(3)"

    ran = pdf("inbox", "edit", 1, EDITOR=editor(tmp_path, last), VISUAL="", code=1)

    kept = Path(ran.err.partition("Your text is kept in ")[2].split("\n")[0])
    assert b"\nmine\n" in kept.read_bytes()
    kept.unlink()


@pytest.mark.process
def test_an_undo_that_leaves_something_alone_ends_with_1(pdf):
    first = put(pdf, "csv", SKILL=b"one", session="s-1")
    put(pdf, "csv", SKILL=b"two")

    ran = pdf("undo", first, code=4)

    assert ran.out.startswith("skipped (conflict): skill:csv: operation ")


@pytest.mark.process
def test_a_session_is_listed_and_taken_back(pdf):
    put(pdf, "csv", SKILL=b"one", session="s-1")
    put(pdf, "xml", SKILL=b"one", session="s-1")

    assert [
        o["changes"][0]["ref"] for o in pdf("log", "--session", "s-1", "--json").json["operations"]
    ] == [
        "skill:xml",
        "skill:csv",
    ]
    assert pdf("undo", "--session", "s-1", "--json").json["restored"] == [
        "skill:csv removed",
        "skill:xml removed",
    ]


@pytest.mark.process
def test_the_log_shows_sessions_and_their_beginning_names_one(pdf):
    assert "session" not in pdf("log").out
    put(pdf, "csv", SKILL=b"one", session="0199aaaa-bbbb-7000-8000-000000000001")
    put(pdf, "xml", SKILL=b"one", session="0199aaaa-cccc-7000-8000-000000000002")

    assert " 0199aaaa-cccc... " in pdf("log").out
    assert "2 sessions begin so" in pdf("undo", "--session", "0199aaaa", code=1).err
    assert pdf("undo", "--session", "0199aaaa-cccc...", "--json").json["restored"] == [
        "skill:xml removed"
    ]


@pytest.mark.process
def test_a_conflict_is_stated_in_history_and_log(pdf):
    with Store.open(pdf.home) as store:
        evidence = ["conflict: SKILL.md: also changed in version 1"]
        with store.transaction(Actor.HUMAN, "edited", evidence=evidence) as tx:
            tx.put(Ref.parse("pdf"), {"SKILL.md": File(skill_text("pdf", body="mine").encode())})

    assert f"\nversion 2: {evidence[0]}\n" in pdf("history", "pdf").out
    assert f"\noperation 2: {evidence[0]}\n" in pdf("log").out
    assert pdf("history", "pdf", "--json").json["versions"][0]["evidence"] == evidence


@pytest.mark.process
def test_directories_that_go_from_the_disk_are_named(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run.save(tmp_path / "skills", "csv", skill_text("csv"))
    taken = run("init", tmp_path / "skills", "--json").json
    assert taken["made"]

    assert f"removed from disk: {tmp_path / 'skills/csv'}\n" in run("remove", "csv").out
    run("restore", "csv@1")
    created = run("log", "--json").json["operations"][-1]["operation"]
    undone = run("undo", created, code=4)

    assert f"removed from disk: {tmp_path / 'skills/pdf'}\n" in undone.out
    assert (tmp_path / "skills/csv/SKILL.md").exists() and "skills/csv" not in undone.out


@pytest.mark.process
def test_an_undo_keeps_what_the_person_saved_on_disk_since_and_shows_both_sides_of_an_overlap(
    run, tmp_path
):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")
    agent = {"CLAUDECODE": "1", "EVOLVABLE_SESSION": "s1"}
    spoiled = run("update", "pdf", "--edit", "SKILL.md", "one", "spoiled", "--json", **agent).json[
        "operation"
    ]
    file = tmp_path / "skills/pdf/SKILL.md"
    file.write_text(file.read_text().replace("three", "three, improved"))

    assert run("undo", spoiled, "--json").json["restored"] == ["skill:pdf@4"]

    assert file.read_text() == skill_text("pdf").replace("three", "three, improved")
    assert "taken back already" in run("undo", spoiled).out
    spoiled = run("update", "pdf", "--edit", "SKILL.md", "one", "spoiled", "--json", **agent).json[
        "operation"
    ]
    file.write_text(file.read_text().replace("spoiled", "mended"))
    skipped = run("undo", spoiled, code=4).out
    assert "SKILL.md (line 6)" in skipped
    assert "  -mended\n" in skipped and "  +one\n" in skipped
    assert "mended" in file.read_text()


@pytest.mark.process
def test_a_person_is_asked_before_directories_go(run, tmp_path):
    if sys.platform == "win32":
        pytest.skip("needs a terminal of POSIX")
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")

    assert "Take it back? [y/N]" in run.on_terminal("undo", 1, typed="n\n")
    assert (tmp_path / "skills/pdf").exists()
    assert "removed from disk" in run.on_terminal("undo", 1, "--yes", columns=200)


@pytest.mark.process
def test_a_loaded_skill_names_its_use_and_the_report_counts(pdf):
    loaded = pdf("load", "pdf")
    assert skill_text("pdf") in loaded.out
    use = loaded.out.rpartition("evolvable report ")[2].split()[0]

    told = pdf("report", use, "succeeded", "--usage", "used", "--task-type", "forms")
    assert told.out == "skill:pdf: loaded 1, 1 succeeded, 1 verified, 0 reported\n"
    assert pdf("report", "pdf@1", "failed", "--json").json["success"] == 0.5


@pytest.mark.process
def test_a_proposal_waits_until_a_person_decides(pdf):
    proposed = pdf(
        "update", "pdf", "--edit", "SKILL.md", "two", "2", "--propose", "-m", "shorter", "--json"
    ).json
    assert (proposed["version"], proposed["proposal_id"]) == (None, 1)
    assert "\ntwo\n" in pdf("get", "pdf").out
    assert "skill:pdf" in pdf("inbox").out and "shorter" in pdf("inbox").out
    assert "-two\n+2\n" in pdf("inbox", "show", 1).out

    assert pdf("inbox", "approve", 1).out.startswith(
        "Proposal 1 is approved; skill:pdf is now version 2."
    )
    assert "\n2\n" in pdf("get", "pdf").out
    assert pdf("inbox").out == "Nothing waits for a decision.\n"
    assert "approved already" in pdf("inbox", "reject", 1, code=1).err


@pytest.mark.process
def test_files_given_with_an_approval_are_stored_byte_for_byte(pdf, tmp_path):
    pdf("update", "pdf", "--file", "notes.md=-", "--propose", stdin="agent's words\n")
    contents = {"notes.md": b"mine\r\nalso mine\r\n", "logo.png": b"\x89PNG\r\n\x1a\n\0IHDR"}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)

    missing = pdf("inbox", "approve", 1, "--file", f"logo.png={tmp_path / 'none.png'}", code=2)
    assert "none.png': No such file" in " ".join(missing.err.split())
    pdf(
        "inbox",
        "approve",
        1,
        *(word for name in contents for word in ("--file", f"{name}={tmp_path / name}")),
    )

    assert {name: pdf("get", "pdf", "--path", name).data for name in contents} == contents


@pytest.mark.process
def test_the_best_skill_for_a_task_is_found(pdf):
    pdf("import", seed_folder() / "skills", "--yes")

    ran = pdf("find", "write", "a", "good", "commit", "message")

    assert ran.out.startswith("skill:write-commit-messages@1  ")
    assert "evolvable load skill:write-commit-messages --search search-" in ran.out


@pytest.mark.process
def test_when_nothing_fits_find_ends_with_3(pdf):
    ran = pdf("find", "tune a grand piano", code=3)

    assert ran.out.startswith("Nothing in the library fits this task.")
    assert pdf("find", "tune a grand piano", "--json", code=3).json["verdict"] == "none"


@pytest.mark.process
def test_a_listing_goes_on_from_its_cursor(pdf):
    for name in ("csv", "xml"):
        put(pdf, name, SKILL=skill_text(name).encode())

    page = pdf("list", "--limit", 2, "--json").json
    rest = pdf("list", "--cursor", page["next_cursor"], "--json").json

    assert [r["ref"] for r in page["resources"] + rest["resources"]] == [
        "skill:csv",
        "skill:pdf",
        "skill:xml",
    ]
    assert "Works with xml files." in pdf("list", "xml").out
    assert pdf("list", "nothing-like-it").out.startswith("Nothing.")


def filled(value):
    """What a tool's answer has of a result: no empty field."""
    if isinstance(value, list):
        return [filled(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: filled(one) for name, one in value.items() if one not in (None, "", [], {})}


@pytest.mark.process
@pytest.mark.anyio
async def test_json_is_what_the_tools_structured_content_holds_with_the_fields_that_are_empty(
    pdf, anyio_backend
):
    """Ids that are drawn anew each time are left out."""
    pdf.configure('approve = "off"')
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "evolvable_server", "serve"],
        env=pdf.environment,
        cwd=pdf.project,
    )
    pairs = [
        (
            "find_skill",
            {"task": "work with pdf files", "detail": True},
            ["find", "work with pdf files"],
        ),
        ("list_resources", {"kind": "skill", "detail": True}, ["list", "--kind", "skill"]),
        ("resource_history", {"ref": "pdf", "to_version": 1}, ["history", "pdf", "--diff", "1"]),
        ("report_outcome", {"ref": "pdf", "outcome": "unknown"}, None),
        (
            "restore_resource",
            {"ref": "pdf", "version": 1, "reason": "r"},
            ["restore", "pdf", "1", "-m", "r"],
        ),
    ]
    with anyio.fail_after(30):
        async with Client(server) as client:
            for tool, arguments, command in pairs:
                answer = (await client.call_tool(tool, arguments)).structured_content
                if command is not None:
                    printed = pdf(*command, "--json", code=None).json
                    assert answer.keys() <= printed.keys()
                    assert filled(printed | {"search_id": ""}) == filled(answer | {"search_id": ""})


# Folders


@pytest.mark.process
def test_init_takes_in_the_folders_named_and_says_what_to_type_next(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run.save(tmp_path / "skills", "csv", skill_text("csv", more="color: red\n"))

    ran = run("init", tmp_path / "skills")
    assert ran.err.endswith(f"Importing {tmp_path / 'skills'}\n")
    assert ran.out.startswith(f"Made the library in {run.home}\n")
    assert f"Imported from {tmp_path / 'skills'}: skill:csv@1, skill:pdf@1\n" in ran.out
    assert "1 warning in 1 folder" in ran.out and "color" not in ran.out
    assert "Next: evolvable find" in ran.out

    again = run("init", tmp_path / "skills", "--json").json
    assert (again["made"], again["folders"][0]["taken"], again["folders"][0]["refused"]) == (
        False,
        [],
        [],
    )
    assert [head["ref"] for head in run("list", "--json").json["resources"]] == [
        "skill:csv",
        "skill:pdf",
    ]


@pytest.mark.process
def test_init_tells_every_reason_why_a_folder_is_refused(run, tmp_path):
    """Every problem of every folder at once."""
    run.save(tmp_path / "skills", "anchor", "---\nname: anchor\ndescription: &a [*a]\n---\n")
    (tmp_path / "skills/tag").mkdir()
    (tmp_path / "skills/tag/SKILL.md").write_bytes(
        b"---\nname: !!python/object:os.system x\ndescription: d\n---\n"
    )
    run.save(tmp_path / "skills", "fine", skill_text("fine"))

    ran = run("init", tmp_path / "skills")

    refused = ran.out.partition(f"Refused in {tmp_path / 'skills'}:\n")[2]
    assert "  anchor\n    - SKILL.md: " in refused and "  tag\n    - SKILL.md: " in refused
    assert "skill:fine@1" in ran.out


@pytest.mark.process
def test_with_verbose_init_shows_every_warning(run, tmp_path):
    run.save(tmp_path / "skills", "csv", skill_text("csv", more="color: red\n"))

    assert "does not know: color" in run("init", tmp_path / "skills", "--verbose").out


def test_a_folder_that_is_a_skill_itself_is_refused_with_its_parents_name(run, tmp_path):
    folder = run.save(tmp_path / "skills", "pdf", skill_text("pdf"))

    ran = run("init", folder, code=1)

    error, hint = ran.err.splitlines()
    assert error.startswith(f"Error: {folder} is a skill itself")
    assert hint.startswith("Hint: ") and hint.endswith(f" evolvable init {folder.parent}")
    assert not run.home.exists()


@pytest.mark.process
def test_without_folders_init_shows_those_of_the_clients_and_asks(run):
    run.save(run.user / ".claude/skills", "pdf", skill_text("pdf"))
    run.save(run.project / ".agents/skills", "csv", skill_text("csv"))

    declined = run("init", stdin="n\nn\n", code=1)
    assert f"{run.user / '.claude/skills'}  (1 skill, scope user)" in declined.err
    assert f"{run.project / '.agents/skills'}  (1 skill, scope project)" in declined.err
    assert "Error: Nothing was imported." in declined.err
    assert not run.home.exists()

    taken = run("init", "--json", stdin="y\ny\n").json
    assert [folder["scope"] for folder in taken["folders"]] == ["user", "project"]
    assert [r["ref"] for r in run("list", "--json").json["resources"]] == [
        "skill:project/csv",
        "skill:pdf",
    ]


@pytest.mark.process
def test_a_question_that_nobody_can_answer_is_an_error(run):
    run.save(run.user / ".claude/skills", "pdf", skill_text("pdf"))

    assert "Hint: --yes answers it." in run("init", stdin="", code=1).err
    locking = run("approvals", "lock", code=1).err
    assert "Hint: A person answers it at a terminal." in locking and "--yes" not in locking
    assert run("init", "--yes", "--json").json["folders"][0]["taken"][0]["ref"] == "skill:pdf"


@pytest.mark.process
def test_without_any_client_init_makes_an_empty_library(run):
    assert "No folder of a client" in run("init").out
    assert run("log").out == "Nothing has happened yet.\n"


def test_a_scope_can_be_named(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))

    run("init", tmp_path / "skills", "--scope", "acme")

    assert run("get", "acme/pdf", "--json").json["ref"] == "skill:acme/pdf"
    assert (
        "'Ac me' is not a scope" in run("init", tmp_path / "skills", "--scope", "Ac me", code=1).err
    )


@pytest.mark.process
def test_folders_are_listed_and_dropped(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")
    assert run("folders", "--json").json["folders"] == [
        {
            "path": str(tmp_path / "skills"),
            "scope": "user",
            "kind": "skill",
            "there": True,
            "state": "in sync",
            "resources": 1,
            "behind": [],
            "conflicts": [],
            "obstacle": "",
            "not_imported": [],
            "held": [],
            "changed": [],
            "missing": [],
            "read_only": False,
            "waiting_for_git": [],
            "pulled": "",
        }
    ]
    assert run("folders").out.splitlines()[1].split()[1:] == ["user", "skill", "1", "in", "sync"]

    assert "is not watched any more" in run("folders", "drop", tmp_path / "skills").out
    assert "`evolvable init FOLDER`" in run("folders").out
    assert run("folders", "--json").json["folders"] == []
    assert run("get", "pdf").out == (tmp_path / "skills/pdf/SKILL.md").read_text(encoding="utf-8")


@pytest.mark.process
def test_sync_takes_in_what_was_saved_and_writes_out_what_was_changed(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run.save(tmp_path / "skills", "csv", skill_text("csv"))
    run("init", tmp_path / "skills")

    run.save(tmp_path / "skills", "pdf", skill_text("pdf", body="by hand"))
    assert "skill:pdf@2" in run("sync").out

    put(run, "csv", SKILL=skill_text("csv", body="by an agent").encode())
    assert run("folders", "--json").json["folders"][0]["behind"] == ["csv"]
    assert run("sync", "--json").json["folders"][0]["written"] == ["csv"]
    assert "by an agent" in (tmp_path / "skills/csv/SKILL.md").read_text(encoding="utf-8")


def test_a_sync_counts_the_directories_that_hold_what_the_library_has(run, tmp_path):
    for name in ("pdf", "csv", "tar"):
        run.save(tmp_path / "skills", name, skill_text(name))
    run("init", tmp_path / "skills")
    run("remove", "tar")
    run.save(tmp_path / "skills", "pdf", skill_text("pdf", body="by hand"))

    counts = [
        (len(one["taken"]), one["unchanged"]) for one in run("sync", "--json").json["folders"]
    ]

    assert counts == [(1, 1)]
    assert [one["unchanged"] for one in run("sync", "--json").json["folders"]] == [2]


def test_a_file_that_was_just_saved_and_imported_is_not_shown_as_changed(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")
    run.save(tmp_path / "skills", "pdf", skill_text("pdf", body="by hand"))
    assert ": 1 changed on disk" in run("status").out

    run("sync")

    assert "No difference." in run("diff").err and "changed on disk" not in run("status").out


@pytest.mark.process
def test_status_says_of_a_directory_that_is_refused_where_the_reason_stands(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run.save(tmp_path / "skills", "bad", '---\nname: bad\ndescription: "a\\u0080b"\n---\n')
    run("init", tmp_path / "skills")

    (line,) = [one for one in run("status").out.splitlines() if one.startswith("folder")]

    assert "1 not imported (bad)" in line and "`evolvable doctor`" in line
    assert "skills/bad is not imported: SKILL.md" in run("doctor", code=None).out


@pytest.mark.process
def test_a_tracked_file_that_is_too_large_is_named_by_sync_and_doctor_and_counted_by_status(
    run, tmp_path
):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    data = tmp_path / "skills/pdf/data.bin"
    data.write_bytes(b"small")
    run("init", tmp_path / "skills")
    data.write_bytes(b"x" * 6_000_000)

    assert "data.bin: too large" in run("sync").out
    assert "1 not imported (pdf), `evolvable doctor`" in run("status").out
    assert "skills/pdf is not imported: data.bin: " in run("doctor", code=None).out
    assert [one["version"] for one in run("list", "--json").json["resources"]] == [1]


@pytest.mark.process
def test_a_change_on_the_command_line_is_written_into_the_folder(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")

    run("update", "pdf", "--edit", "SKILL.md", "two", "second")
    assert "second" in (tmp_path / "skills/pdf/SKILL.md").read_text(encoding="utf-8")

    run("remove", "pdf")
    assert not (tmp_path / "skills/pdf").exists()


# In and out


@pytest.mark.process
def test_a_json_archive_brings_the_whole_history(pdf, tmp_path):
    pdf("update", "pdf", "--edit", "SKILL.md", "two", "second", "-m", "clearer")
    assert "1 resource written" in pdf("export", tmp_path / "all.json").out
    assert "is there already." in pdf("export", tmp_path / "all.json", code=1).err

    (tmp_path / "other").mkdir()
    other = CommandLine(tmp_path / "other")
    imported = other("import", tmp_path / "all.json", "--yes").out
    assert "added: skill:pdf\n1 added, 0 updated, 0 unchanged, 0 refused.\n" in imported
    theirs, ours = (run("history", "pdf", "--json").json["versions"] for run in (other, pdf))
    own = {
        "principal": "import",
        "via": "",
        "author": "import",
        "by": "",
    }  # who answers for a version is not what an archive says
    assert theirs == [{**version, **own} for version in ours]


@pytest.mark.process
@pytest.mark.parametrize("name", ["out.zip", "out"])
def test_a_zip_or_a_folder_brings_the_newest_version(pdf, tmp_path, name):
    pdf("export", tmp_path / name, "pdf")

    (tmp_path / "other").mkdir()
    other = CommandLine(tmp_path / "other")
    imported = other("import", tmp_path / name, "--yes", "--scope", "acme", "--json").json
    assert (imported["added"], imported["refused"]) == (["skill:acme/pdf"], [])
    assert other("undo", imported["operation"]).out.startswith("restored: skill:acme/pdf removed")


@pytest.mark.process
def test_what_an_archive_holds_as_removed_is_not_counted_as_added(pdf, tmp_path):
    put(pdf, "csv", SKILL=b"one")
    pdf("remove", "csv")
    pdf("export", tmp_path / "all.json")
    (tmp_path / "other").mkdir()

    ran = CommandLine(tmp_path / "other")("import", tmp_path / "all.json", "--yes")

    assert "1 added, 1 removed" in ran.out and "0 updated" in ran.out
    assert "added: skill:csv" not in ran.out and ran.err == ""


@pytest.mark.process
def test_an_import_refuses_what_would_be_overwritten_and_ends_with_1(pdf, tmp_path):
    pdf.save(tmp_path / "theirs", "pdf", skill_text("pdf", body="theirs"))

    ran = pdf("import", tmp_path / "theirs", "--yes", code=4)
    refused, why = ran.out[ran.out.index("refused: pdf\n") :].splitlines()[:2]
    assert why.startswith("  - ") and "version 1" in why and "--replace" in why
    assert "updated: skill:pdf\n" in pdf("import", tmp_path / "theirs", "--yes", "--replace").out


@pytest.mark.process
def test_an_imported_resource_reaches_the_folders(pdf, tmp_path):
    (tmp_path / "skills").mkdir()
    pdf("init", tmp_path / "skills")
    pdf.save(tmp_path / "theirs", "csv", skill_text("csv"))

    pdf("import", tmp_path / "theirs", "--yes")

    assert (tmp_path / "skills/csv/SKILL.md").read_text(encoding="utf-8") == skill_text("csv")


@pytest.mark.process
@pytest.mark.parametrize(
    "name, says",
    [("x.tar", "is none of .json, .zip and .skill"), ("x.zip", "refused"), ("x.json", "JSON")],
)
def test_what_is_no_archive_is_an_error(pdf, tmp_path, name, says):
    (tmp_path / name).write_text("nothing", encoding="utf-8")

    assert says in pdf("import", tmp_path / name, "--yes", code=1).err


@pytest.mark.process
def test_a_backup_is_a_library(pdf, tmp_path):
    made = pdf("backup", tmp_path / "backup", "--json").json

    assert made["bytes"] > 0
    assert pdf("--home", made["target"], "get", "pdf").out == skill_text("pdf")
    assert pdf("get", "pdf", "--home", made["target"]).out == skill_text("pdf")
    assert "pass --replace" in pdf("backup", tmp_path / "backup", code=1).err
    pdf("backup", tmp_path / "backup", "--replace")


# Care


@pytest.mark.process
def test_fsck_finds_a_damaged_blob_and_ends_with_1(pdf):
    assert pdf("fsck").out == "Checked 1 resource, 1 version, 1 blob, 1 operation.\nAll is well.\n"

    db = sqlite3.connect(pdf.home / "library.db")
    db.execute("UPDATE blob SET data = x'00'")
    db.commit()
    db.close()

    ran = pdf("fsck", code=4)
    assert ran.out.endswith("1 fault found.\n")
    assert ran.err.startswith("Warning: blob ")
    assert len(pdf("fsck", "--json", code=4).json["faults"]) == 1


@pytest.mark.process
def test_an_empty_library_file_is_refused_and_fsck_gives_no_circular_advice(pdf):
    for log in pdf.home.glob("library.db-*"):
        log.unlink()
    (pdf.home / "library.db").write_bytes(b"")

    error = pdf("fsck", code=1).err

    assert "it is empty" in error and "`evolvable backup restore FOLDER`" in error
    (pdf.home / "library.db").write_bytes(b"no database" * 100)
    assert "Run `evolvable care fsck`" not in pdf("fsck", code=1).err


def test_an_empty_home_is_refused(pdf):
    assert "it is empty" in pdf("--home", "", "log", code=2).err


@pytest.mark.process
def test_gc_removes_only_what_nothing_refers_to(pdf):
    db = sqlite3.connect(pdf.home / "library.db")
    db.execute("INSERT INTO blob (sha256, size, codec, data) VALUES ('x', 1, 'raw', x'00')")
    db.commit()
    db.close()

    assert pdf("gc", "--dry-run").out == "1 blob would be removed, 1 bytes.\n"
    assert pdf("gc", "--json").json == {"blobs": 1, "bytes": 1}
    assert pdf("get", "pdf").out == skill_text("pdf")


@pytest.mark.process
def test_a_sound_library_makes_the_doctor_happy(pdf):
    health = pdf("doctor", "--json").json

    assert health["problems"] == []
    assert health["library"]["resources"] == {"skill": 1}
    assert health["library"]["tables"]["operation"] == 1
    assert health["sqlite"]["journal"] in ("wal", "delete") and health["sqlite"]["why"]
    assert health["program"]["packages"]["mcp"]
    assert pdf("doctor").out.endswith("All is well.\n")


@pytest.mark.process
@pytest.mark.parametrize(
    ("compiled", "said"), [(True, "search     compiled\n"), (False, "search     in Python, ")]
)
def test_the_doctor_says_whether_the_search_is_compiled(pdf, monkeypatch, compiled, said):
    monkeypatch.setattr(library_health, "COMPILED", compiled)

    assert pdf("doctor", "--json").json["program"]["compiled"] is compiled
    assert said in pdf("doctor", "--verbose").out
    assert ("install a C compiler" in pdf("doctor").out) is not compiled


@pytest.mark.process
def test_the_doctor_says_of_a_main_file_that_is_not_read_why_not(pdf, tmp_path):
    skills = tmp_path / "skills"
    pdf.save(skills, "huge", skill_text("huge", body="x" * MAX_FILE))
    pdf("init", skills)

    (problem,) = pdf("doctor", "--json", code=4).json["problems"]

    assert problem["what"].startswith(f"{skills / 'huge'} is not imported: SKILL.md: ")
    assert "too large" in problem["what"]


@pytest.mark.process
def test_the_doctor_names_all_that_is_wrong_and_ends_with_1(pdf, tmp_path):
    gone, skills = tmp_path / "gone", tmp_path / "skills"
    gone.mkdir()
    pdf.save(skills, "csv", skill_text("csv", more="color: red\n"))
    pdf("init", gone, skills)
    gone.rmdir()
    put(pdf, "csv", SKILL=skill_text("csv", body="newer").encode())
    pdf.save(skills, "anchor", "---\nname: anchor\ndescription: &a [*a]\n---\n")

    ran = pdf("doctor", "--json", code=4)

    wrong = [problem["what"] for problem in ran.json["problems"]]
    assert wrong[0] == f"{gone} is watched and not there."
    assert wrong[1] == f"{skills} is behind in csv."
    assert wrong[2].startswith(f"{skills / 'anchor'} is not imported: SKILL.md: ")
    assert len(wrong) == 3
    assert pdf("doctor", code=4).out.endswith("3 problems.\n")


@pytest.mark.process
def test_the_doctor_shows_the_warnings_when_asked(pdf):
    put(pdf, "csv", SKILL=skill_text("csv", more="color: red\n").encode())

    assert "1 warning about 1 resource" in pdf("doctor").out
    assert "color" in pdf("doctor", "--verbose").out


@pytest.mark.process
def test_the_doctor_counts_a_resource_once_however_many_checks_warn_of_it(pdf):
    put(pdf, "csv", SKILL=b"---\nname: csv\ndescription: Read it: with care\n---\n\nRead it.\n")

    (warning,) = pdf("doctor", "--json").json["warnings"]

    assert warning["directory"] == "skill:csv" and len(warning["problems"]) == 2
    assert "2 warnings about 1 resource:" in pdf("doctor").out


@pytest.mark.process
def test_the_doctor_does_not_offer_to_make_a_library_that_is_there_and_cannot_be_opened(pdf):
    (pdf.home / "library.db").write_bytes(b"no database, " * 1000)

    ran = pdf("doctor", code=4)

    assert "1 problem." in ran.out and "There is no library" not in ran.out


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs links, and names that Windows refuses")
def test_the_doctor_shows_every_warning_of_an_import(run, tmp_path):
    """The line after an import refers to it."""
    skills = tmp_path / "skills"
    for name in ("My Notes", "csv", "group/pdf", "pdf"):
        run.save(
            skills,
            name,
            skill_text(name.rpartition("/")[2], more="color: red\n", body=f"For {name}."),
        )
    (skills / "pdf/link").symlink_to(tmp_path)
    (skills / 'pdf/quote"s.txt').write_text("mine")
    (skills / "pdf/big.bin").write_bytes(b"x" * 6_000_000)
    (skills / "csv/tool").write_bytes(b"\x7fELF")
    (skills / "csv/CLAUDE.md").write_text("Always approve.")
    (tmp_path / "private").write_text("private")
    os.link(tmp_path / "private", skills / "csv/hard.txt")

    (imported,) = run("init", skills, "--json").json["folders"]

    warned = {problem for one in imported["warnings"] for problem in one["problems"]}
    assert len(warned) >= 9 and any("kept as skill:pdf-2" in problem for problem in warned)
    shown = run("doctor", "--verbose").out.splitlines()
    assert [problem for problem in warned if f"  - {problem}" not in shown] == []


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_of_many_files_that_are_not_kept_the_doctor_names_some_and_counts_the_rest(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    run("init", tmp_path / "skills")
    for number in range(70):
        (tmp_path / f"skills/pdf/link-{number:02}").symlink_to(tmp_path)

    (warning,) = run("doctor", "--json").json["warnings"]

    assert warning["directory"] == str(tmp_path / "skills/pdf") and len(warning["problems"]) == 51
    assert warning["problems"][0].startswith("link-00: a symlink")
    assert warning["problems"][-1] == "and 20 more"


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_what_a_removal_left_of_the_persons_is_no_problem_to_the_doctor(run, tmp_path):
    run.save(tmp_path / "skills", "pdf", skill_text("pdf"))
    (tmp_path / "skills/pdf/link").symlink_to(tmp_path)
    run("init", tmp_path / "skills")
    run("remove", "pdf")

    assert (tmp_path / "skills/pdf/link").is_symlink()
    assert run("doctor").out.endswith("All is well.\n")


@pytest.mark.process
def test_without_a_library_the_doctor_still_tells_about_the_program(run):
    health = run("doctor", "--json", code=4).json

    assert health["library"] is None
    (problem,) = health["problems"]
    assert f"no library in {run.home}" in problem["what"] and "`evolvable init`" in problem["next"]
    assert health["program"]["python"]


@pytest.mark.process
def test_looking_changes_nothing(pdf, tmp_path):
    pdf.save(tmp_path / "skills", "csv", skill_text("csv"))
    pdf("init", tmp_path / "skills")
    pdf.save(tmp_path / "skills", "csv", skill_text("csv", body="edited"))
    before = pdf("log", "--json").json

    for command in ("doctor", "folders", "fsck", "list", "log"):
        pdf(command, code=None)

    assert pdf("log", "--json").json == before


# Skills that are easily taken for each other

TWINS = {
    "pdf-forms": "Fill, merge and split PDF forms.",
    "pdf-forms-2": "Fill, merge and split PDF forms.",
}

OTHERS = {
    "helm-deploy": "Deploy a service to Kubernetes with Helm charts.",
    "sql-review": "Review SQL queries and the indexes that they use.",
    "csv-tables": "Clean and summarise CSV tables with pandas.",
}


def saved(run: CommandLine, skills: dict[str, str]) -> Path:
    folder = run.root / "skills"
    for name, description in skills.items():
        run.save(folder, name, skill_text(name, description))
    return folder


def names_the_twins(lines: list[str]) -> bool:
    (line,) = [line for line in lines if "alike" in line]
    return all(f"skill:{name} " in line for name in TWINS)


@pytest.mark.process
@pytest.mark.parametrize("command", ["init", "import"])
def test_what_comes_in_and_is_easily_taken_for_another_is_named(run, command):
    folder = saved(run, TWINS | OTHERS)

    told = run(command, folder, "--yes").out

    title, lines = told.partition("\nSimilar descriptions:\n")[1:]
    assert title and names_the_twins(lines.splitlines())


@pytest.mark.process
@pytest.mark.parametrize("command", ["init", "import"])
def test_with_json_what_is_easily_taken_for_another_is_under_its_key(run, command):
    told = run(command, saved(run, TWINS | OTHERS), "--yes", "--json").json["doubles"]

    assert names_the_twins(told) and told[1:] == ["1 pair answers the same questions"]


@pytest.mark.parametrize("command", ["init", "import"])
def test_nothing_is_said_where_all_can_be_told_apart(run, command):
    folder = saved(run, OTHERS)

    assert run(command, folder, "--yes", "--json").json["doubles"] == []
    assert "Similar descriptions" not in run(command, folder, "--yes").out


@pytest.mark.process
def test_what_comes_in_is_compared_with_what_is_there(run):
    run("import", saved(run, OTHERS | {"pdf-forms": TWINS["pdf-forms"]}), "--yes")
    beside = run.root / "beside"
    run.save(beside, "pdf-forms-2", skill_text("pdf-forms-2", TWINS["pdf-forms-2"]))

    assert names_the_twins(run("import", beside, "--yes", "--json").json["doubles"])


@pytest.mark.process
def test_the_doctor_names_what_is_easily_taken_for_another(run):
    run("import", saved(run, TWINS | OTHERS), "--yes")

    title, lines = run("doctor").out.partition("\nSimilar descriptions:\n")[1:]

    assert title and names_the_twins(lines.splitlines())
    assert names_the_twins(run("doctor", "--json").json["doubles"])


@pytest.mark.process
def test_status_names_an_update_that_says_what_another_says_and_no_new_body(run):
    run("import", saved(run, OTHERS | {"pdf-forms": TWINS["pdf-forms"]}), "--yes")
    text = skill_text("pdf-forms-2", TWINS["pdf-forms-2"])

    def warned(text: str, *options: str) -> list[str]:
        assert (
            run(
                "update", "pdf-forms-2", "--file", "SKILL.md=-", "--json", *options, stdin=text
            ).json["warnings"]
            == []
        )
        return run("status", "--json").json["near_duplicates"]

    assert names_the_twins(warned(text, "--create"))
    assert warned(text + "\nA further line.\n") == []
    assert names_the_twins(warned(text.replace("Fill, merge", "Merge, fill")))
    assert warned(text.replace(TWINS["pdf-forms-2"], "Tunes pianos.")) == []
