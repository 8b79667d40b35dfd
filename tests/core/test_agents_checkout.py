"""Agents as the single files NAME.md that Claude Code reads: in step both ways, and no edit of a
person is lost.
"""

import os
import time

import pytest

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy import atomic_dir, sync
from evolvable_store.workingcopy.registry import WorkingCopies

REVIEWER = Ref(Kind.AGENT, "reviewer", "user")


def text(name, *lines):
    body = "\n\n".join(lines or ("one", "two", "three"))
    return f"---\nname: {name}\ndescription: Does the work of a {name}.\n---\n\n{body}\n"


class Desk:
    """A library and a folder of agents, with the hands of a person and of an agent."""

    def __init__(self, place):
        self.folder = place / ".claude" / "agents"
        self.folder.mkdir(parents=True)
        self.staging = self.folder.parent / ".agents.evolvable"
        self.store = Store.open(place / "home", create=True)
        self.copies = WorkingCopies(self.store)

    def save(self, content, name="reviewer"):
        target = self.folder / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")

    def read(self, name="reviewer"):
        return (self.folder / f"{name}.md").read_text(encoding="utf-8")

    def agent(self, content, ref=REVIEWER, **more):
        """A change whose process died before it could write the folder."""
        files = {
            "AGENT.md": File(content.encode()),
            **{f"{n}.txt": File(t.encode()) for n, t in more.items()},
        }
        with self.store.transaction(Actor.AGENT, "an agent's change") as tx:
            tx.put(ref, files)

    def files(self, ref=REVIEWER):
        return {
            path: file.data.decode()
            for path, file in self.store.files(self.store.head(ref)).items()
        }

    def contents(self):
        return sorted(
            p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file()
        )


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def add(desk):
    return desk.copies.add(desk.folder, kind=Kind.AGENT)


def test_single_files_with_frontmatter_are_agents_and_nothing_else_is(desk):
    desk.save(text("reviewer"))
    desk.save(text("planner"), "team/planner")
    desk.save("Notes about these agents.\n", "README")
    (desk.folder / "tester").mkdir()
    (desk.folder / "tester/AGENT.md").write_text(text("tester"), encoding="utf-8")
    (desk.folder / "link.md").symlink_to(desk.folder / "reviewer.md")
    os.mkfifo(desk.folder / "pipe.md")

    sync = add(desk)

    assert sorted(str(taken.ref) for taken in sync.taken) == [
        "agent:planner",
        "agent:reviewer",
        "agent:tester",
    ]
    assert sync.refused == []  # the link is the agent that it leads to
    assert desk.files() == {"AGENT.md": text("reviewer")}


def test_a_save_becomes_a_version_and_a_version_is_written_out(desk):
    desk.save(text("reviewer"))
    add(desk)
    desk.save(text("reviewer", "by hand"))
    (edited,) = desk.copies.sync()
    desk.agent(text("reviewer", "by an agent"))
    assert desk.copies.checkout([REVIEWER]) == []

    assert [(taken.version, taken.how) for taken in edited.taken] == [(2, "edited")]
    assert desk.read() == text("reviewer", "by an agent")
    (again,) = desk.copies.sync()
    assert (again.taken, again.written) == ([], [])
    assert desk.contents() == ["reviewer.md"]


def test_edits_of_both_sides_are_merged(desk):
    desk.save(text("reviewer"))
    add(desk)
    desk.agent(text("reviewer", "one", "two", "three by the agent"))
    desk.save(text("reviewer", "one by the person", "two", "three"))

    (sync,) = desk.copies.sync()

    assert [(taken.version, taken.how) for taken in sync.taken] == [(3, "merged")]
    assert desk.read() == text("reviewer", "one by the person", "two", "three by the agent")


def test_of_two_edits_in_one_place_the_persons_is_live_and_the_other_is_kept(desk):
    desk.save(text("reviewer"))
    add(desk)
    desk.agent(text("reviewer", "the agent's"))
    desk.save(text("reviewer", "the person's"))

    (sync,) = desk.copies.sync()

    assert len(sync.conflicts) == 1
    assert desk.read() == text("reviewer", "the person's")
    assert desk.store.file(desk.store.head(REVIEWER), "AGENT.md", 2).data.decode() == text(
        "reviewer", "the agent's"
    )


def headed(tools, *lines, more=""):
    return text("reviewer", *lines).replace(
        "\n---\n\n", f"\n{tools}\nx: 1\ny: 2\nz: 3\n{more}---\n\n", 1
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (headed("tools: Read, Bash"), headed("tools: Read", "one by the person", "two", "three")),
        (headed("tools: Read", "one", "two", "by the agent"), headed("tools: Read, Write")),
        (headed("tools: Read, Bash"), headed("tools: Read", more="model: opus\n")),
        (headed("x: 0\ny: 0"), headed("tools: Read", "one by the person", "two", "three")),
        (
            headed("tools: Read\nTools: Bash"),
            headed("tools: Read", "one by the person", "two", "three"),
        ),
    ],
)
def test_a_merge_never_grants_what_one_side_does_not(desk, ours, theirs):
    """The person's file stays, the other version is kept, and the conflict is reported."""
    desk.save(headed("tools: Read"))
    add(desk)
    desk.agent(ours)
    desk.save(theirs)

    (sync,) = desk.copies.sync()

    assert len(sync.conflicts) == 1
    assert desk.read() == theirs
    assert desk.store.file(desk.store.head(REVIEWER), "AGENT.md", 2).data.decode() == ours


def test_a_merge_takes_what_one_side_gave_up(desk):
    desk.save(headed("tools: Read, Bash"))
    add(desk)
    desk.agent(headed("tools: Read"))
    desk.save(headed("tools: Read, Bash", "one", "two", "three by the person"))

    (sync,) = desk.copies.sync()

    assert [taken.how for taken in sync.taken] == ["merged"]
    assert desk.read() == headed("tools: Read", "one", "two", "three by the person")


def test_what_lies_beside_the_main_file_survives_every_edit_of_the_single_file(desk):
    desk.agent(text("reviewer"), checklist="be kind")
    desk.copies.check_out(desk.folder, kind=Kind.AGENT)
    assert desk.contents() == ["reviewer.md"]

    desk.save(text("reviewer", "by hand"))
    desk.copies.sync()
    assert desk.files() == {"AGENT.md": text("reviewer", "by hand"), "checklist.txt": "be kind"}

    desk.agent(text("reviewer", "by hand"), checklist="be strict")
    desk.save(text("reviewer", "by hand again"))
    desk.copies.sync()
    assert desk.files() == {
        "AGENT.md": text("reviewer", "by hand again"),
        "checklist.txt": "be strict",
    }


def test_a_deleted_file_removes_the_agent_and_a_removed_agent_its_file(desk):
    desk.save(text("reviewer"))
    desk.save(text("planner"), "planner")
    add(desk)
    (desk.folder / "planner.md").unlink()
    desk.copies.sync()
    with desk.store.transaction(Actor.AGENT, "not needed") as tx:
        tx.remove(REVIEWER)
    desk.copies.checkout([REVIEWER])

    assert desk.store.heads(Kind.AGENT) == []
    assert desk.contents() == []
    with desk.store.transaction(Actor.AGENT, "needed after all") as tx:
        tx.restore(REVIEWER, 1)
    desk.copies.checkout([REVIEWER])
    assert desk.read() == text("reviewer")


def test_a_check_out_takes_in_what_is_there_and_writes_over_nothing(desk):
    desk.agent(text("reviewer"))
    desk.agent(text("planner"), Ref(Kind.AGENT, "planner", "user"))
    desk.save(text("mine"), "mine")
    (desk.folder / "planner.md").mkdir()

    sync = desk.copies.check_out(desk.folder, kind=Kind.AGENT)

    assert [str(taken.ref) for taken in sync.taken] == ["agent:mine"]
    assert sync.written == ["reviewer.md"]
    assert [refusal.directory for refusal in sync.refused] == ["planner.md"]
    assert desk.read() == text("reviewer")


def test_what_an_editor_saves_at_the_moment_of_the_exchange_is_merged(desk, monkeypatch):
    """attacks.json fs: between the look and the swap."""
    desk.save(text("reviewer"))
    add(desk)
    desk.agent(text("reviewer", "one", "two", "three by the agent"))
    real = atomic_dir.exchange

    def late(one, other):
        monkeypatch.setattr(atomic_dir, "exchange", real)
        desk.save(text("reviewer", "one by the person", "two", "three"))
        real(one, other)

    monkeypatch.setattr(atomic_dir, "exchange", late)
    desk.copies.sync()

    assert desk.read() == text("reviewer", "one by the person", "two", "three by the agent")


def test_what_is_written_into_a_replaced_file_comes_back_with_a_later_sync(desk, monkeypatch):
    """An editor that keeps the file open writes into the old one."""
    desk.save(text("reviewer"))
    add(desk)
    desk.agent(text("reviewer", "one", "two", "three by the agent"), checklist="be kind")
    with open(desk.folder / "reviewer.md", "r+", encoding="utf-8") as editor:
        desk.copies.checkout([REVIEWER])
        editor.write(text("reviewer", "one by the person", "two", "three"))
    monkeypatch.setattr(sync, "KEEP_SECONDS", -1.0)

    desk.copies.sync()

    both = text("reviewer", "one by the person", "two", "three by the agent")
    assert (desk.read(), desk.files()) == (both, {"AGENT.md": both, "checklist.txt": "be kind"})
    desk.copies.sync()
    assert [path.name for path in desk.staging.iterdir()] == [".gitignore"]


@pytest.mark.parametrize("crash", ["rename", "after"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_crash_in_the_middle_loses_nothing(desk, monkeypatch, crash, can_exchange):
    desk.save(text("reviewer"))
    add(desk)
    desk.agent(text("reviewer", "by an agent"))

    class Crash(BaseException):
        pass

    def die(*_):
        raise Crash

    with monkeypatch.context() as broken:
        if not can_exchange:
            broken.setattr(
                atomic_dir,
                "_exchange",
                lambda *_: (_ for _ in ()).throw(OSError(atomic_dir.errno.ENOSYS, "no")),
            )
        if crash == "after":
            broken.setattr(atomic_dir, "finish_swap", die)
        elif can_exchange:
            broken.setattr(atomic_dir, "exchange", die)
        else:
            broken.setattr(atomic_dir, "rename_new", die)
        with pytest.raises(Crash):
            desk.copies.checkout([REVIEWER])
    monkeypatch.setattr(atomic_dir, "is_abandoned", lambda *_: True)  # its process is dead
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 3600)

    desk.copies.sync()

    assert desk.read() == text("reviewer", "by an agent")
    assert desk.store.head(REVIEWER).version == 2
    assert [path.name for path in desk.staging.iterdir() if path.suffix in (".new", ".ready")] == []
