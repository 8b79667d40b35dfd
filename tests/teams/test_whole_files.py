"""Whole files of agents and scripts: merged with what a person saved meanwhile, or refused; never
in its place.
"""

import http.client
import json
from pathlib import Path

import pytest
from http_place import modern
from machine import Http, Machine, skill_text

pytestmark = pytest.mark.process


def text(*changes: tuple[str, str]) -> str:
    """The skill's text, with lines of it replaced."""
    lines = skill_text("pdf", body="one\n\ntwo\n\nthree")
    for old, new in changes:
        lines = lines.replace(f"\n{old}\n", f"\n{new}\n")
    return lines


OURS, THEIRS = ("one", "one, by the agent"), ("three", "three, by the person")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.own("pdf", text=text())
    return machine


@pytest.fixture
def document(machine: Machine) -> Path:
    """The file that the person edits."""
    return machine.user / ".claude/skills/pdf/SKILL.md"


def send(client, content: str | None, path: str = "SKILL.md", **more) -> str:
    """Send a whole file; return what the tool answers."""
    return str(
        client.text("update_resource", ref="pdf", reason="why", files={path: content}, **more)
    )


def version(machine: Machine) -> int:
    return int(machine.json("history", "pdf", "--json")["head"])


READS = {
    "load_skill": lambda client: client.text("load_skill", ref="pdf"),
    "get_resource": lambda client: client.text("get_resource", ref="pdf"),
    "resources/read": lambda client: client.ask("resources/read", {"uri": "skill://pdf/SKILL.md"}),
}


@pytest.mark.parametrize("read", READS)
def test_what_a_person_saved_after_the_agent_read_is_kept_beside_the_agents_change(
    machine, document, read
):
    with machine.client() as client:
        READS[read](client)
        document.write_text(text(THEIRS))

        answer = json.loads(send(client, text(OURS)))

    assert document.read_text() == text(OURS, THEIRS)
    [warning] = answer["warnings"]
    assert warning.startswith("SKILL.md was merged") and "version 1" in warning


def test_lines_that_both_changed_are_an_error_with_both_sides_and_nothing_changes(
    machine, document
):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        document.write_text(text(("two", "two, by the person")))

        answer = send(client, text(("two", "two, by the agent")))

        assert "skill:pdf is not at version 1" in answer and "head is version 2" in answer
        assert "Read the head" in answer
        assert "-two, by the agent\n" in answer and "+two, by the person\n" in answer
        assert document.read_text() == text(("two", "two, by the person"))
        assert version(machine) == 2
        # The agent reads the head, and changes that.
        client.text("load_skill", ref="pdf")
        assert json.loads(send(client, text(("two", "two, by both"))))["version"] == 3


def test_a_version_of_another_agents_is_merged_as_a_persons_save_is(machine, document):
    with machine.client() as first, machine.client() as second:
        first.text("load_skill", ref="pdf")
        second.text("load_skill", ref="pdf")
        send(second, text(("three", "three, by the second")))

        assert json.loads(send(first, text(OURS)))["version"] == 3

        # The second agent's last own text is what it has: its next one brings back nothing and
        # removes nothing.
        send(second, text(("three", "three, by the second"), ("two", "two, by the second")))
    assert document.read_text() == text(
        OURS, ("two", "two, by the second"), ("three", "three, by the second")
    )


def test_the_next_text_of_an_agent_keeps_what_was_merged_into_its_last(machine, document):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        document.write_text(text(THEIRS))
        send(client, text(OURS))

        # It never saw the person's line, so that its text lacks it again.
        send(client, text(("one", "one, by the agent again")))

        assert document.read_text() == text(("one", "one, by the agent again"), THEIRS)
        send(client, text(("one", "one, by the agent again"), ("two", "two, by the agent")))
    assert document.read_text() == text(
        ("one", "one, by the agent again"), ("two", "two, by the agent"), THEIRS
    )


def test_an_agents_own_edits_between_its_whole_files_are_no_conflict(machine, document):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        edits = [{"path": "SKILL.md", "old": "two", "new": "2"}]
        client.text("update_resource", ref="pdf", reason="why", edits=edits)
        client.text("update_resource", ref="pdf", reason="why", files={"notes.md": "More.\n"})

        assert json.loads(send(client, text(("two", "second"))))["version"] == 4
    assert document.read_text() == text(("two", "second"))


def test_a_file_is_judged_by_the_version_in_which_the_agent_read_it(machine, document):
    notes = document.parent / "notes.md"
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        document.write_text(text(THEIRS))
        notes.write_text("The person's.\n")
        machine.run("sync")
        client.text("get_resource", ref="pdf", path="notes.md")

        send(client, text(OURS))

    assert document.read_text() == text(OURS, THEIRS)


def test_a_server_that_began_anew_asks_for_the_version_and_takes_it(machine, document):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
    document.write_text(text(THEIRS))

    with machine.client() as client:
        answer = send(client, text(OURS))
        assert "SKILL.md was not read" in answer and "expected_version" in answer
        assert document.read_text() == text(THEIRS) and version(machine) == 2
        assert "not at version 1" in send(client, text(OURS), expected_version=1)

        assert json.loads(send(client, text(OURS, THEIRS), expected_version=2))["version"] == 3


def test_a_proposal_is_made_of_the_merge_too(machine, document):
    with machine.client() as client:
        unread = send(client, text(OURS), propose=True)
        client.text("load_skill", ref="pdf")
        document.write_text(text(THEIRS))
        answer = json.loads(send(client, text(OURS), propose=True))

    assert "was not read here" in unread
    machine.run("inbox", "approve", answer["proposal_id"], stdin="y\n")
    assert document.read_text() == text(OURS, THEIRS)


def test_a_file_that_a_person_changed_is_not_deleted_and_one_that_they_deleted_does_not_come_back(
    machine, document
):
    changed, deleted = document.parent / "changed.md", document.parent / "deleted.md"
    changed.write_text("one\n")
    deleted.write_text("one\n")
    machine.run("sync")
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        changed.write_text("two\n")
        deleted.unlink()

        assert "Both sides changed changed.md." in send(client, None, "changed.md")
        assert "Both sides changed deleted.md." in send(client, "three\n", "deleted.md")
        changed.with_name("added.md").write_text("one\n")
        assert "added.md was not read" in send(client, None, "added.md")

    assert changed.read_text() == "two\n" and not deleted.exists()


def test_a_file_that_the_agents_own_restore_took_away_can_be_written_again(machine, document):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        send(client, "First.\n", "notes.md")
        client.text("restore_resource", ref="pdf", version=1, reason="why")

        assert json.loads(send(client, "Second.\n", "notes.md"))["version"] == 4


def test_a_file_that_both_added_is_a_conflict(machine, document):
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        (document.parent / "notes.md").write_text("The person's.\n")

        answer = send(client, "The agent's.\n", "notes.md")

    assert "-The agent's.\n+The person's." in answer
    assert (document.parent / "notes.md").read_text() == "The person's.\n"


def test_a_binary_file_that_changed_meanwhile_is_a_conflict_without_its_bytes(machine, document):
    picture = document.parent / "logo.png"
    picture.write_bytes(b"\x89PNG\0one")
    machine.run("sync")
    with machine.client() as client:
        client.text("load_skill", ref="pdf")
        picture.write_bytes(b"\x89PNG\0two")

        answer = send(client, "no picture\n", "logo.png")

    assert "Both sides changed logo.png." in answer and "(not text" in answer
    assert picture.read_bytes() == b"\x89PNG\0two"


def test_a_text_that_was_served_cut_is_not_replaced_by_what_the_agent_saw_of_it(machine, document):
    notes = document.parent / "long.md"
    notes.write_text("A line.\n" * 20_000)
    machine.run("sync")
    with machine.client() as client:
        assert "[cut:" in client.text("get_resource", ref="pdf", path="long.md")

        answer = send(client, "A line.\n" * 18_000, "long.md")

    assert "long.md was not read" in answer
    assert notes.read_text() == "A line.\n" * 20_000


def test_the_command_line_of_an_agent_or_a_script_needs_the_version_and_that_of_a_person_none(
    machine, document
):
    new = machine.save(machine.root / "new.md", text(OURS))
    whole = ("update", "pdf", "--file", f"SKILL.md={new}", "-m", "why")
    for caller in ({"CLAUDECODE": "1"}, {}):
        refused = machine.run(*whole, person=False, **caller)
        assert refused.returncode == 1
        assert "--expect" in refused.stderr and "evolvable get" in refused.stderr
    assert (
        machine.run(
            "update", "pdf", "--delete", "SKILL.md", person=False, CLAUDECODE="1"
        ).returncode
        == 1
    )
    assert document.read_text() == text()

    edit = ("update", "pdf", "--edit", "SKILL.md", "two", "2")
    assert machine.run(*edit, person=False, CLAUDECODE="1").returncode == 0
    assert (
        machine.run(
            "update", "pdf", "--file", f"notes.md={new}", person=False, CLAUDECODE="1"
        ).returncode
        == 0
    )
    assert machine.run(*whole, "--expect", "3", person=False, CLAUDECODE="1").returncode == 0
    assert machine.run("update", "pdf", "--file", f"notes.md={document}").returncode == 0


def alone(server: Http, secret: str, tool: str, **arguments) -> str:
    """Call a tool in the modern era, which has no sessions; return the body of the answer."""
    frame, headers = modern("tools/call", {"name": tool, "arguments": arguments})
    headers |= {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    headers["Accept"] = "application/json, text/event-stream"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", "/mcp", json.dumps(frame), headers)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_over_http_a_session_has_its_base_and_a_call_without_one_needs_the_version(
    machine, document
):
    secret = machine.token("worker", "--write")
    change = {"ref": "pdf", "reason": "why", "files": {"SKILL.md": text(OURS)}}
    with machine.http() as server:
        assert server is not None
        first, second = server.session(secret), server.session(secret)
        server.call(secret, first, "load_skill", ref="pdf")
        alone(server, secret, "load_skill", ref="pdf")
        document.write_text(text(THEIRS))

        # Two sessions of one token are two clients: what one of them read is no base of the
        # other's.
        assert "was not read here" in server.call(secret, second, "update_resource", **change)[1]
        assert "was not read here" in alone(server, secret, "update_resource", **change)
        assert document.read_text() == text(THEIRS)

        _, body = server.call(secret, first, "update_resource", **change)
    assert document.read_text() == text(OURS, THEIRS), body
