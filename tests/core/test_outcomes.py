"""Finished sessions: which versions were loaded and used in them, and what came of it, never by a
guess.
"""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from earned import seen
from talks import Talk

from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome, SuccessCounts
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.library import Library
from evolvable_tools.outcomes.detection import classify_verdict
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.shell_commands import read_files, run_files, simple_commands
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.sessions.session import Origin
from evolvable_tools.verbs import edit, load

PDF = Ref.parse("pdf")
TEST = "cd app && pytest -q tests/test_forms.py"


@pytest.fixture
def folder(library, person, skill, tmp_path):
    """The user's skills as Claude Code sees them, with one skill of two versions' worth
    of files.
    """
    skill(
        "pdf",
        "Run `qpdf --empty --pages a.pdf -- out.pdf`, then `pdftotext out.pdf`.",
        "```sh",
        "helm lint .",
        "```",
    )
    files = {"scripts/fill.py": "print(1)\n", "reference.md": "Forms.\n"}
    edit.update_resource(library, person, PDF, "files", files=files)
    place = tmp_path / "ada/.claude/skills"
    library.working_copies.check_out(place)
    return place


def taken(library, talk):
    return record_uses(library, talk.session, home=None)


def one(library, talk):
    """Returns what a session showed of the only skill in it."""
    (sighting,) = taken(library, talk).observations
    return sighting


def work(talk):
    """Fails, and passes later."""
    return talk.ran(TEST, "1 failed, 3 passed in 0.1s", error=True).ran(TEST, "4 passed in 0.1s")


# What was loaded and used


@pytest.mark.parametrize(
    ("how", "loaded", "used"),
    [
        ("skill", True, True),
        ("attributed", False, True),
        ("read", True, False),
        ("file", False, True),
    ],
)
def test_claude_shows_what_it_loaded_and_what_it_used(library, folder, how, loaded, used):
    talk = Talk().typed("fill the form")
    {
        "skill": lambda: talk.loaded("pdf"),
        "attributed": lambda: talk.called("Bash", {"command": "true"}, "", skill="pdf"),
        "read": lambda: talk.called("Read", {"file_path": f"{folder}/pdf/SKILL.md"}, "text"),
        "file": lambda: talk.called("Read", {"file_path": f"{folder}/pdf/reference.md"}, "text"),
    }[how]()

    seen = one(library, talk)
    assert (seen.loaded, seen.used, seen.how, seen.version) == (loaded, used, (how,), 2)


@pytest.mark.parametrize("given", ["cmd", "command", "list"])
def test_codex_shows_it_by_the_commands_that_read_and_run(library, folder, given):
    def ran(line):
        value = ["bash", "-lc", line] if given == "list" else line
        return (
            "shell" if given == "list" else "exec_command",
            {"cmd" if given == "cmd" else "command": value},
        )

    talk = (
        Talk(client="codex")
        .typed("fill it")
        .called(*ran(f"sed -n 1,200p {folder}/pdf/SKILL.md"), "text")
    )
    assert (one(library, talk).loaded, one(library, talk).used) == (True, False)

    talk.called(
        *ran(f"python3 {folder}/pdf/scripts/fill.py in.pdf"),
        "Process exited with code 1\nOutput:\n",
    )
    seen = one(library, talk)
    assert (seen.used, seen.how) == (True, ("read", "script"))


def test_a_command_of_the_document_is_a_use_once_the_document_was_loaded(library, folder):
    talk = (
        Talk().typed("merge").ran("qpdf --empty --pages b.pdf -- c.pdf").ran("pdftotext out.pdf -")
    )
    assert taken(library, talk).observations == ()

    talk.called("Read", {"file_path": f"{folder}/pdf/SKILL.md"}, "text").ran("git status").ran(
        "cat out.pdf"
    )
    assert not one(library, talk).used
    assert one(library, talk.ran("helm lint charts")).how == ("read", "step")


def test_what_failed_or_never_answered_or_is_not_ours_was_not_loaded(library, folder):
    talk = Talk().typed("fill it").called("Skill", {"skill": "pdf"}, "Unknown skill", error=True)
    talk.ran(f"cat {folder}/pdf/SKILL.md", "Exit code 1", error=True).called(
        "Skill", {"skill": "pdf"}, None
    )
    talk.loaded("plugin:pdf").loaded("another").ran(f"rm {folder}/pdf/SKILL.md").ran(
        f"echo x > {folder}/pdf/SKILL.md"
    )
    talk.came(f"cat {folder}/pdf/SKILL.md", Origin.WEB).called(
        "Read", {"file_path": "/etc/SKILL.md"}, "x"
    )
    talk.called("Read", {"file_path": ["\0"]}, "x").ran("cat 'unbalanced").called("Skill", {}, "x")

    assert taken(library, talk).observations == ()


def test_a_use_belongs_to_the_version_that_was_live_then(library, person, folder):
    before = datetime.now(UTC)
    edit.update_resource(
        library, person, PDF, "third", edits=[TextEdit("reference.md", "Forms.", "All forms.")]
    )

    assert (
        one(library, Talk("old", start=before - timedelta(microseconds=1)).loaded("pdf")).version
        == 2
    )
    assert one(library, Talk("new").loaded("pdf")).version == 3
    assert (
        taken(library, Talk("older", start=before - timedelta(days=1)).loaded("pdf")).observations
        == ()
    )


def test_a_load_that_the_server_noted_is_not_counted_twice_and_learns_its_session(
    library, agent, folder
):
    nobody = type(agent)(agent.actor)
    loaded = load.load_skill(library, nobody, PDF, version=1)
    text = (
        f"...\n---\nskill:pdf@1 · SKILL.md\nuse_id: {loaded.use_id} (report_outcome with it when "
        "the task is done)"
    )
    talk = Talk("s1").called("mcp__plugin_evolvable_evolvable__load_skill", {"ref": "pdf"}, text)
    told = load.report_outcome(library, nobody, outcome="succeeded", use_id=loaded.use_id)

    assert one(library, talk).version == 1
    assert library.evidence.use(loaded.use_id).session == "s1"
    (attempt,) = library.store.backend.evidence.list_attempts()
    assert (attempt.key, attempt.model, attempt.outcome) == (
        "s1",
        "claude-opus-5-5",
        Outcome.SUCCEEDED,
    )
    assert library.evidence.tally(library.store.head(PDF).id).loaded == told.loaded == 1


# Taken in once


def test_a_session_is_counted_once_however_often_it_comes_and_grows(library, folder):
    seen(library, "session-1")
    talk = Talk().typed("fill it").loaded("pdf")
    short = talk.session
    assert [record_uses(library, short).is_stored for _ in range(2)] == [True, False]
    head = library.store.head(PDF).id

    grown = work(talk).session
    assert [record_uses(library, session).is_stored for session in (grown, short, grown)] == [
        True,
        False,
        False,
    ]
    assert library.store.backend.evidence.count_successes([head]) == {head: SuccessCounts(1, 1)}
    assert library.evidence.tally(head).loaded == 1
    with Library.open(library.store.home) as other:
        assert not record_uses(other, grown).is_stored


def test_many_that_take_it_in_at_once_do_not_double_it(library, folder):
    session = work(Talk().typed("fill it").loaded("pdf")).session
    kept: list[bool] = []

    def work_on_it() -> None:
        with Library.open(library.store.home) as other:
            kept.append(record_uses(other, session).is_stored)

    threads = [threading.Thread(target=work_on_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kept) == [False, False, False, True]
    assert len(library.store.backend.observations.sightings("session-1")) == 1


# What came of it


RUNS = (
    ([("pytest", "1 failed", True), ("pytest", "2 passed", False)], Outcome.SUCCEEDED),
    ([("pytest", "2 passed", False)], None),
    ([("pytest", "1 failed", True)], None),
    ([("pytest", "1 failed", True), ("pytest", "1 failed", True)], Outcome.FAILED),
    ([("pytest", "2 passed", False), ("pytest", "1 failed", True)], Outcome.FAILED),
    ([("pytest a", "1 failed", True), ("pytest b", "2 passed", False)], None),
    (
        [("pytest -q | tail -3", "1 failed", False), ("pytest -q | tail -3", "2 passed", False)],
        Outcome.SUCCEEDED,
    ),
    ([("pytest | tail", "....", False), ("pytest | tail", "....", False)], None),
    (
        [("pytest || true", "1 failed", False), ("pytest || true", "1 failed", False)],
        Outcome.FAILED,
    ),
    ([("pytest", "1 failed", True), ("pytest", "no tests ran", False)], None),
    ([("pytest", "1 failed", True), ("pytest", "Command timed out", False)], None),
    (
        [("npm test", "Tests: 1 failed, 2 passed", True), ("npm run test", "2 passing", False)],
        Outcome.SUCCEEDED,
    ),
    (
        [
            ("cargo test", "test result: FAILED", True),
            ("cargo test", "test result: ok. 3 passed", False),
        ],
        Outcome.SUCCEEDED,
    ),
    ([("echo pytest", "1 failed", True), ("echo pytest", "1 passed", False)], None),
    ([("git commit -m 'it works'", "[main abc1234] it works", False)], Outcome.SUCCEEDED),
    ([("git add . && git commit -m x", "nothing to commit", True)], None),
    (
        [
            ("git commit -m x", "[main abc1234] x", False),
            ("git reset --hard HEAD~1", "HEAD is now", False),
        ],
        None,
    ),
    ([("echo 'git commit'", "git commit", False), ("git commit --dry-run", "x", False)], None),
    (
        [
            ("git commit -m x", "[m abc1234]", False),
            ("pytest", "1 passed", False),
            ("pytest", "E", True),
        ],
        Outcome.UNKNOWN,
    ),
)
"""What was run, with what it printed and whether it failed, and what that tells."""


def test_tests_and_commits_tell_the_outcome_where_they_are_sure(library, folder):
    for number, (runs, outcome) in enumerate(RUNS):
        talk = Talk(f"s{number}").typed("fill it").loaded("pdf")
        for command, printed, error in runs:
            talk.ran(command, printed, error=error)
        assert one(library, talk).outcome == outcome, runs


def test_codex_says_the_exit_code_in_its_text(library, folder):
    talk = (
        Talk(client="codex")
        .typed("x")
        .called("exec_command", {"cmd": f"cat {folder}/pdf/reference.md"}, "x")
    )
    for code in (1, 0):
        talk.called(
            "exec_command",
            {"cmd": "make test"},
            f"Wall time: 1\nProcess exited with code {code}\nOutput:\nx",
        )

    assert one(library, talk).outcome is Outcome.SUCCEEDED


def test_only_what_was_used_has_an_outcome_and_only_of_what_came_after(library, folder):
    read_only = work(Talk("s1").called("Read", {"file_path": f"{folder}/pdf/SKILL.md"}, "x"))
    assert one(library, read_only).outcome is None
    assert one(library, work(Talk("s2").typed("x")).loaded("pdf")).outcome is None
    late = Talk("s3").typed("x").loaded("pdf")
    for turn in range(4):
        late.typed(f"another thing, {turn}")
    assert one(library, work(late)).outcome is None
    assert taken(library, work(Talk("s4").typed("x"))).outcome is Outcome.SUCCEEDED


def test_a_persons_last_word_counts_and_nobody_elses(library, folder):
    talk = Talk().typed("it works").loaded("pdf")
    assert one(library, talk).outcome is None
    talk.came("It works now.", Origin.WEB).came("It works now.", Origin.SKILL).said("It works now.")
    assert one(library, talk).outcome is None
    assert one(library, talk.typed("it still doesn't work")).outcome is Outcome.FAILED
    assert (
        one(library, talk.ran("true").typed("Great, it works now. Next: the header")).outcome
        is Outcome.SUCCEEDED
    )
    assert [signal.kind for signal in one(library, talk).signals] == ["words"]


def test_what_was_reported_and_what_the_session_shows_must_agree(library, agent, folder):
    head = library.store.head(PDF).id
    seen(library, "s1", "s2")
    taken(library, work(Talk("s1").typed("x").loaded("pdf")))
    in_s1, in_s2 = type(agent)(agent.actor, "s1"), type(agent)(agent.actor, "s2")
    load.load_skill(library, in_s1, PDF), load.load_skill(library, in_s2, PDF)
    load.report_outcome(library, in_s1, outcome="succeeded", ref=PDF)
    assert library.store.backend.evidence.count_successes([head]) == {head: SuccessCounts(1, 1)}

    load.report_outcome(library, in_s2, outcome="failed", ref=PDF)
    taken(library, work(Talk("s2").typed("x").loaded("pdf")))
    assert library.store.backend.evidence.count_successes([head]) == {head: SuccessCounts(1, 1)}
    assert {one.key: one.outcome for one in library.store.backend.evidence.list_attempts()} == {
        "s1": Outcome.SUCCEEDED,
        "s2": Outcome.UNKNOWN,
    }


PRAISE = (
    *(
        "It works!",
        "Perfect, thanks",
        "that fixed it",
        "LGTM",
        "ok great, that works now. Now the footer",
    ),
    *("Thanks! Everything works as expected", "looks good to me", "No, it works now", "it’s fixed"),
)
BLAME = (
    *(
        "It doesn't work",
        "that didn't help",
        "still failing with the same error",
        "It is still broken",
    ),
    *(
        "No, that's wrong",
        "this isn't what I asked for",
        "revert that",
        "not what I wanted",
        "that is not right",
    ),
)
NEITHER = (
    *(
        "does it work?",
        "make sure it works",
        "if it works, commit",
        "it should work",
        "is that wrong?",
    ),
    *(
        "nothing wrong there",
        "not perfect",
        "fix the wrong date",
        "I doubt that it works",
        "it works on mac only",
    ),
    *(
        'the log says "it works"',
        "> it works",
        "`it works`",
        "```\nit works\n```",
        "    it works",
        "'it works'",
    ),
    *(
        "“it does not work” is what she said",
        "thanks",
        "ok",
        "great",
        "",
        "the test fails",
        "\u202e\ud800",
    ),
    *(
        "explain why it doesn't work",
        "when this is wrong, say so",
        "<log>it works</log>",
        "x" * 100_000,
    ),
)


def test_a_word_counts_only_when_it_says_so_itself():
    assert {said: classify_verdict(said) for said in PRAISE} == dict.fromkeys(
        PRAISE, Outcome.SUCCEEDED
    )
    assert {said: classify_verdict(said) for said in BLAME} == dict.fromkeys(BLAME, Outcome.FAILED)
    assert {said: classify_verdict(said) for said in NEITHER} == dict.fromkeys(NEITHER)
    assert classify_verdict("It works, but that's wrong") is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("line", "read", "run"),
    [
        ("cat a b | grep x", ["a", "b", "x"], []),
        ("cd /x && FOO=1 uv run python -u s.py in", [], ["s.py"]),
        ("cat > f <<'EOF'\ncat /a/SKILL.md\nEOF\nhead -n 3 g", ["3", "g"], []),
        ("# cat x\n./run.sh; bash -c 'cat \"a b\"'", ["a b"], ["./run.sh"]),
        ("sed -i s/a/b/ f; cat x > y; cat z 2>/dev/null", ["z"], []),
        ("cat 'x", [], []),
        ("bash -c \"bash -c 'bash -c true'\"; cat", [], []),
    ],
)
def test_a_line_of_shell_is_read_as_the_shell_reads_it(line, read, run):
    commands = simple_commands(line)

    assert (read_files(commands), run_files(commands)) == (read, run)


def test_reading_a_session_into_a_library_that_cannot_be_written_keeps_nothing(
    library, folder, monkeypatch
):
    monkeypatch.setattr(type(library.store), "read_only", True)

    assert not taken(library, Talk().loaded("pdf")).is_stored


def test_a_home_is_known_only_where_it_is_said(library, folder: Path):
    talk = Talk().ran("cat ~/.claude/skills/pdf/reference.md", "x")
    assert taken(library, talk).observations == ()
    assert record_uses(library, talk.session, home=folder.parents[1]).observations != ()


def test_a_skill_that_is_linked_into_the_folder_of_a_client_was_loaded_there(
    library, skill, tmp_path
):
    skill("pdf", "Fill it.")
    library.working_copies.check_out(tmp_path / "ada/.agents/skills")
    client = tmp_path / "ada/.claude/skills"
    client.mkdir(parents=True)
    (client / "forms").symlink_to("../../.agents/skills/pdf")
    assert not library.working_copies.add(client).refused

    assert one(library, Talk().loaded("forms")).version == 1
    assert (
        taken(
            library, Talk("odd").loaded("../../.agents/skills/pdf").loaded("..").loaded("")
        ).observations
        == ()
    )


# As the clients write it


def written(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return read_session(path, redactor=Redactor())


def test_a_transcript_of_claude_code_says_what_was_used_and_how_it_ended(library, folder, tmp_path):
    now = datetime.now(UTC).isoformat()

    def line(role, content, **more):
        model = {"model": "claude-opus-5-5"} if role == "assistant" else {}
        about = {"type": role, "sessionId": "s1", "cwd": str(tmp_path), "timestamp": now, **more}
        return {**about, "message": {"role": role, "content": content, **model}}

    def call(name, given, gave, error=False, **more):
        used = line(
            "assistant",
            [{"type": "tool_use", "id": f"t-{gave}", "name": name, "input": given}],
            **more,
        )
        result = {
            "type": "tool_result",
            "tool_use_id": f"t-{gave}",
            "content": gave,
            "is_error": error,
        }
        return [used, line("user", [result])]

    lines = [
        line("user", "Fill the form"),
        *call("Skill", {"skill": "pdf"}, "Launching skill: pdf"),
        line(
            "user",
            [{"type": "text", "text": "Base directory for this skill: x\n\nit works"}],
            isMeta=True,
        ),
        *call("Bash", {"command": "pytest"}, "Exit code 1\n1 failed", True, attributionSkill="pdf"),
        *call("Bash", {"command": "pytest"}, "1 passed", attributionSkill="pdf"),
        line("user", "Great, it works now."),
    ]
    (seen,) = record_uses(library, written(tmp_path / "s1.jsonl", lines)).observations
    assert (set(seen.how), seen.outcome, seen.model) == (
        {"skill", "attributed"},
        Outcome.SUCCEEDED,
        "claude-opus-5-5",
    )
    assert [signal.kind for signal in seen.signals] == ["tests", "words"]


def test_a_rollout_of_codex_says_what_was_used_and_how_it_ended(library, folder, tmp_path):
    now = datetime.now(UTC).isoformat()

    def item(kind, **payload):
        return {"timestamp": now, "type": "response_item", "payload": {"type": kind, **payload}}

    def ran(number, command, code):
        given = json.dumps({"cmd": command})
        text = f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n..."
        return [
            item("function_call", name="exec_command", arguments=given, call_id=f"c{number}"),
            item("function_call_output", call_id=f"c{number}", output=text),
        ]

    lines = [
        {
            "timestamp": now,
            "type": "session_meta",
            "payload": {"id": "s2", "cwd": str(tmp_path), "timestamp": now},
        },
        {
            "timestamp": now,
            "type": "turn_context",
            "payload": {"cwd": str(tmp_path), "model": "gpt-5.5"},
        },
        item("message", role="user", content=[{"type": "input_text", "text": "Fill the form"}]),
        *ran(1, f"cat {folder}/pdf/SKILL.md", 0),
        *ran(2, f"python3 {folder}/pdf/scripts/fill.py", 0),
        *(*ran(3, "make test", 2), *ran(4, "make test", 0)),
    ]
    (seen,) = record_uses(library, written(tmp_path / "rollout-s2.jsonl", lines)).observations
    assert (seen.how, seen.outcome, seen.model) == (
        ("read", "script"),
        Outcome.SUCCEEDED,
        "gpt-5.5",
    )
