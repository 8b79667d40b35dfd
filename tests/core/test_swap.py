import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import swap_children
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import poll
from samples import attacks
from swap_children import version, version_of

from evolvable_store.errors import InvalidPath, Refused, TooLarge
from evolvable_store.objects import EXECUTABLE, MAX_FILE, PLAIN, File, Files, make_manifest
from evolvable_store.workingcopy import atomic_dir, file_moves
from evolvable_store.workingcopy import openat as module
from evolvable_store.workingcopy.atomic_dir import (
    RecoveredDirectory,
    discard,
    remove_folder,
    still_holds,
    sweep,
    unknown_entries,
    write_folder,
)
from evolvable_store.workingcopy.openat import exchange, rename_new
from evolvable_store.workingcopy.staging_dir import StagingDirectory
from evolvable_store.workingcopy.tree_reader import read_folder

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")


def may_write_everywhere() -> bool:
    with tempfile.TemporaryDirectory() as closed:
        os.chmod(closed, 0o500)
        return os.access(closed, os.W_OK)


not_root = pytest.mark.skipif(may_write_everywhere(), reason="needs a user whom permissions stop")

OLD, NEW = version(0), version(1)
BELIEVED = make_manifest(OLD).tree
NOW = 1_800_000_000.0


def staging_for(root: Path) -> StagingDirectory:
    """The staging folder of a root, with its recovery notes in a library's home beside it."""
    return atomic_dir.staging_for(root, root.parent / "home" / "recovery" / "folder-1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A watched root."""
    root = tmp_path / "skills"
    root.mkdir()
    return root


@pytest.fixture
def staging(root: Path) -> StagingDirectory:
    return staging_for(root)


@pytest.fixture
def pdf(root: Path, staging: StagingDirectory) -> Path:
    """A folder in the root that holds OLD."""
    assert write_folder(root / "pdf", OLD, staging, believed="", now=NOW) is None
    return root / "pdf"


Update = Callable[..., atomic_dir.ReplacedDirectory]


@pytest.fixture
def update(pdf: Path, staging: StagingDirectory) -> Update:
    """Writes NEW, or other files, over OLD."""

    def write(files: Files = NEW, believed: str = BELIEVED) -> atomic_dir.ReplacedDirectory:
        replaced = write_folder(pdf, files, staging, believed=believed, now=NOW)
        assert replaced is not None
        return replaced

    return write


def left_in(staging: StagingDirectory) -> list[str]:
    return sorted(set(os.listdir(staging)) - {".gitignore"})


def huge(path: Path) -> Path:
    with open(path, "wb") as stream:
        stream.truncate(2**30)
    return path


# Writing


def test_a_new_folder_holds_exactly_the_files(pdf: Path, staging: StagingDirectory) -> None:
    assert read_folder(pdf).files == OLD
    assert os.stat(pdf / "scripts/run.sh").st_mode & 0o111
    assert not os.stat(pdf / "SKILL.md").st_mode & 0o111
    assert left_in(staging) == []


def test_a_replaced_folder_holds_the_new_files_and_the_old_one_is_kept(
    pdf: Path, update: Update
) -> None:
    replaced = update()
    assert read_folder(pdf).files == NEW
    assert read_folder(replaced.old).files == OLD


def test_the_new_folder_is_there_at_once_and_whole(pdf: Path, update: Update) -> None:
    """A reader that has the old folder open reads the old version to its end."""
    with open(pdf / "SKILL.md", "rb") as reader:
        update()
        assert reader.read() == OLD["SKILL.md"].data


def test_no_file_at_all_makes_an_empty_folder(pdf: Path, update: Update) -> None:
    update({})
    assert os.listdir(pdf) == []


NAMES = st.sampled_from(
    ["SKILL.md", "a", "b.md", "Ü.md", "x/a", "x/y/z", "über/ß.md", "a b", ".hidden"]
)


@pytest.mark.process
@given(
    st.dictionaries(
        NAMES, st.builds(File, st.binary(max_size=40), st.sampled_from([PLAIN, EXECUTABLE]))
    )
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_written_is_what_is_read(
    pdf: Path, staging: StagingDirectory, files: dict[str, File]
) -> None:
    write_folder(pdf, files, staging, believed="", now=NOW)
    assert read_folder(pdf).files == files


@posix
def test_permissions_that_a_person_set_stay(pdf: Path, update: Update) -> None:
    for path, mode in (
        (".", 0o700),
        ("references", 0o750),
        ("SKILL.md", 0o600),
        ("scripts/run.sh", 0o700),
    ):
        (pdf / path).chmod(mode)
    update({**NEW, "SKILL.md": File(b"new"), "references/new.md": File(b"new")})
    modes = {
        path: os.stat(pdf / path).st_mode & 0o777
        for path in (".", "references", "SKILL.md", "scripts/run.sh")
    }
    assert modes == {".": 0o700, "references": 0o750, "SKILL.md": 0o600, "scripts/run.sh": 0o700}


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
def test_what_root_writes_keeps_its_owner(pdf: Path, update: Update) -> None:
    """A server in a container runs as root on a person's folder."""
    try:
        for path in (pdf, *pdf.rglob("*")):
            os.chown(path, 1234, 2345)
    except PermissionError:
        pytest.skip("this root may not")
    update({**NEW, "new/new.md": File(b"new")})
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (pdf, *pdf.rglob("*"))}
    assert owners == {(1234, 2345)}


@posix
def test_the_mode_of_the_file_decides_who_may_execute_it(pdf: Path, update: Update) -> None:
    (pdf / "SKILL.md").chmod(0o640)
    (pdf / "scripts/run.sh").chmod(0o750)
    update({"SKILL.md": File(b"", EXECUTABLE), "scripts/run.sh": File(b"", PLAIN)})
    assert os.stat(pdf / "SKILL.md").st_mode & 0o777 == 0o750
    assert os.stat(pdf / "scripts/run.sh").st_mode & 0o777 == 0o640


@posix
def test_a_file_and_a_folder_can_take_each_others_place(pdf: Path, update: Update) -> None:
    files = {"references": File(b"a file now"), "SKILL.md/part.md": File(b"in a folder now")}
    update(files)
    assert read_folder(pdf).files == files
    assert os.stat(pdf / "SKILL.md").st_mode & 0o700 == 0o700


@posix
def test_a_symlink_is_not_replaced(pdf: Path, staging: StagingDirectory) -> None:
    link = pdf.with_name("link")
    link.symlink_to(pdf)
    for action in (
        lambda: write_folder(link, NEW, staging, believed="", now=NOW),
        lambda: remove(link, staging),
    ):
        with pytest.raises(Refused, match="is a symlink"):
            action()
    assert link.is_symlink() and read_folder(pdf).files == OLD and left_in(staging) == []


def test_a_file_is_not_replaced(root: Path, staging: StagingDirectory) -> None:
    (root / "notes").write_text("mine")
    with pytest.raises(Refused, match="is not a folder"):
        write_folder(root / "notes", NEW, staging, believed="", now=NOW)
    assert (root / "notes").read_text() == "mine"


ENTRIES = [
    case
    for case in attacks("archive", "reject")
    if case["entry"] and set(case["spec"]) <= {"case_dup"}
]


@pytest.mark.parametrize("case", ENTRIES, ids=lambda case: str(case["id"]))
def test_a_path_out_of_the_folder_is_never_written(
    pdf: Path, staging: StagingDirectory, tmp_path: Path, case: dict[str, object]
) -> None:
    """attacks.json, archive: entries with hostile names."""
    before = sorted(tmp_path.rglob("*"))
    files = {str(case["entry"]): File(b"evil")}
    files |= {str(twin): File(b"evil") for twin in case["spec"].values()}  # type: ignore[attr-defined]
    with pytest.raises(InvalidPath):
        write_folder(pdf, files, staging, believed=BELIEVED, now=NOW)
    assert sorted(tmp_path.rglob("*")) == before
    assert read_folder(pdf).files == OLD


def test_a_file_over_the_limit_is_never_written(pdf: Path, staging: StagingDirectory) -> None:
    with pytest.raises(TooLarge):
        write_folder(
            pdf, {"SKILL.md": File(bytes(MAX_FILE + 1))}, staging, believed=BELIEVED, now=NOW
        )
    assert read_folder(pdf).files == OLD


@posix
def test_a_root_that_became_a_symlink_is_not_written_through(
    pdf: Path, staging: StagingDirectory, tmp_path: Path
) -> None:
    pdf.parent.rename(tmp_path / "elsewhere")
    pdf.parent.symlink_to(tmp_path / "elsewhere")
    for action in (
        lambda: write_folder(pdf, NEW, staging, believed=BELIEVED, now=NOW),
        lambda: remove(pdf, staging),
    ):
        with pytest.raises(Refused, match="symbolic link"):
            action()
    assert read_folder(tmp_path / "elsewhere" / "pdf").files == OLD and left_in(staging) == []


@posix
def test_nothing_is_written_below_a_symlink_in_the_root(
    root: Path, staging: StagingDirectory, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "team").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="symbolic link"):
        write_folder(root / "team" / "pdf", NEW, staging, believed="", now=NOW)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_below_a_folder_that_is_not_there_yet_is_written(
    root: Path, staging: StagingDirectory
) -> None:
    write_folder(root / "team" / "pdf", NEW, staging, believed="", now=NOW)
    assert read_folder(root / "team" / "pdf").files == NEW


# What belongs to no version


@posix
def test_what_belongs_to_no_version_moves_to_the_new_folder(pdf: Path, update: Update) -> None:
    (pdf / ".venv/bin").mkdir(parents=True)
    (pdf / ".venv/bin/python").symlink_to("/nowhere")
    (pdf / "references/.draft.swp").write_text("unsaved")
    (pdf / "link").symlink_to("elsewhere")
    (pdf / "output").mkdir()
    os.mkfifo(pdf / "pipe")
    inode = huge(pdf / "references" / "model.bin").stat().st_ino
    replaced = update({"SKILL.md": File(b"alone")})
    assert (
        (pdf / ".venv/bin/python").is_symlink()
        and (pdf / "link").is_symlink()
        and (pdf / "pipe").is_fifo()
    )
    assert (pdf / "references/.draft.swp").read_text() == "unsaved" and (pdf / "output").is_dir()
    assert (pdf / "references/model.bin").stat().st_ino == inode, "moved, not copied"
    assert read_folder(pdf).files == {"SKILL.md": File(b"alone")}
    assert still_holds(replaced.old, BELIEVED)


def test_what_has_no_place_in_the_new_folder_is_kept_and_reported(
    pdf: Path, staging: StagingDirectory, update: Update
) -> None:
    huge(pdf / "data.bin")
    (pdf / "same.tmp").write_text("same")
    old = update({**NEW, "data.bin": File(b"small"), "same.tmp": File(b"same")}).old
    for later in (61, 100_000):
        assert sweep(staging, NOW + later) == [
            RecoveredDirectory(pdf, dict(OLD), old, BELIEVED, ("data.bin",))
        ]
    assert (pdf / "data.bin").read_bytes() == b"small" and (
        old / "data.bin"
    ).stat().st_size == 2**30
    discard(old, staging)
    assert left_in(staging) == [] and sweep(staging, NOW + 200_000) == []


def test_folders_of_both_sides_become_one(
    pdf: Path, staging: StagingDirectory, update: Update
) -> None:
    (pdf / ".venv/lib").mkdir(parents=True)
    (pdf / ".venv/lib/mine").write_text("mine")
    (pdf / ".venv/both").write_text("mine")
    old = update({**NEW, ".venv/lib/new": File(b"new"), ".venv/both": File(b"new")}).old
    assert (pdf / ".venv/lib/mine").read_text() == "mine"
    assert (pdf / ".venv/both").read_text() == "new", "never overwritten"
    assert (old / ".venv/both").read_text() == "mine"


@posix
def test_nothing_is_moved_through_a_symlink(
    pdf: Path, staging: StagingDirectory, update: Update, tmp_path: Path
) -> None:
    old = update({"SKILL.md": File(b"new")}).old
    (tmp_path / "elsewhere").mkdir()
    (pdf / "references").symlink_to(tmp_path / "elsewhere")
    huge(old / "references" / "late.bin")
    (found,) = sweep(staging, NOW + 61)
    assert found.stuck == ("references/late.bin",)
    assert os.listdir(tmp_path / "elsewhere") == []


# Removing


def remove(target: Path, staging: StagingDirectory) -> atomic_dir.ReplacedDirectory | None:
    return remove_folder(target, staging, believed=BELIEVED, now=NOW)


def test_a_removed_folder_is_gone_and_kept_for_a_while(
    pdf: Path, staging: StagingDirectory
) -> None:
    (pdf / "__pycache__").mkdir()
    (pdf / "empty").mkdir()
    replaced = remove(pdf, staging)
    assert replaced is not None and read_folder(replaced.old).files == OLD
    assert not pdf.exists()
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []
    assert not pdf.exists()


def test_removing_leaves_what_no_version_holds(pdf: Path, staging: StagingDirectory) -> None:
    (pdf / ".git").mkdir()
    (pdf / ".git/HEAD").write_text("ref")
    (pdf / ".venv").mkdir()
    huge(pdf / "references" / "model.bin")
    remove(pdf, staging)
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []
    assert sorted(p.relative_to(pdf).as_posix() for p in pdf.rglob("*") if p.is_file()) == [
        ".git/HEAD",
        "references/model.bin",
    ]
    assert not (pdf / ".venv").exists()


def test_removing_nothing_is_nothing(root: Path, staging: StagingDirectory) -> None:
    assert remove(root / "nothing", staging) is None
    assert left_in(staging) == []


# Sweeping


def test_a_replaced_folder_stays_for_a_minute(update: Update, staging: StagingDirectory) -> None:
    old = update().old
    assert sweep(staging, NOW + 60) == [] and read_folder(old).files == OLD
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []


def test_a_clock_that_was_set_back_does_not_keep_it_for_ever(
    update: Update, staging: StagingDirectory
) -> None:
    update()
    assert sweep(staging, NOW - 10 * 365 * 86400) == [] and left_in(staging) == []


def test_an_edit_in_the_last_moment_is_recovered_until_its_taker_says_so(
    pdf: Path, update: Update, staging: StagingDirectory
) -> None:
    """An editor that has the file open writes into the old folder after the swap."""
    with open(pdf / "SKILL.md", "ab") as editor:
        old = update().old
        editor.write(b"my last words\n")
    files = {**OLD, "SKILL.md": File(OLD["SKILL.md"].data + b"my last words\n")}
    assert not still_holds(old, BELIEVED)
    for later in (61, 100_000):
        assert sweep(staging, NOW + later) == [RecoveredDirectory(pdf, files, old, BELIEVED, ())]
    discard(old, staging)
    assert left_in(staging) == [] and read_folder(pdf).files == NEW


def test_what_nobody_had_read_before_it_was_replaced_is_recovered(
    pdf: Path, update: Update, staging: StagingDirectory
) -> None:
    (pdf / "notes.md").write_bytes(b"made between the reading and the swap")
    update()
    (found,) = sweep(staging, NOW + 61)
    assert found.files == {**OLD, "notes.md": File(b"made between the reading and the swap")}


def test_without_a_belief_everything_is_recovered(
    update: Update, staging: StagingDirectory
) -> None:
    update(believed="")
    (found,) = sweep(staging, NOW + 61)
    assert found.files == OLD and found.believed == ""


@posix
def test_a_folder_that_held_only_what_no_version_keeps_is_tidied_up(
    root: Path, staging: StagingDirectory
) -> None:
    (root / "pdf").mkdir()
    (root / "pdf/link").symlink_to("elsewhere")
    (root / "pdf/.DS_Store").write_text("made by a program")
    write_folder(root / "pdf", NEW, staging, believed="", now=NOW)
    assert (root / "pdf/link").is_symlink()
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []


@posix
def test_a_folder_whose_link_has_its_place_taken_is_kept(
    root: Path, staging: StagingDirectory
) -> None:
    (root / "pdf").mkdir()
    (root / "pdf/scripts").symlink_to("elsewhere")
    write_folder(
        root / "pdf",
        {"SKILL.md": File(b"new"), "scripts": File(b"new")},
        staging,
        believed="",
        now=NOW,
    )
    for later in (61, 100_000):
        (found,) = sweep(staging, NOW + later)
        assert found.stuck == ("scripts",) and (found.old / "scripts").is_symlink()


def test_late_droppings_move_to_where_they_belong(
    pdf: Path, update: Update, staging: StagingDirectory
) -> None:
    (update().old / "references" / ".a.md.swp").write_text("unsaved")
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []
    assert (pdf / "references" / ".a.md.swp").read_text() == "unsaved"


def test_a_root_that_moved_is_swept_where_it_is_now(
    root: Path, staging: StagingDirectory, tmp_path: Path
) -> None:
    write_folder(root / "pdf", OLD, staging, believed="", now=NOW)
    write_folder(root / "pdf", NEW, staging, believed="", now=NOW)
    (tmp_path / "moved").mkdir()
    for name in ("skills", ".skills.evolvable"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    (found,) = sweep(atomic_dir.staging_for(tmp_path / "moved" / "skills", staging.notes), NOW + 61)
    assert found.target == tmp_path / "moved" / "skills" / "pdf"


def test_what_a_sweep_does_not_understand_it_leaves_alone(
    root: Path, pdf: Path, update: Update, staging: StagingDirectory
) -> None:
    old = update().old
    (staging.notes / f"{old.stem}.json").write_text("{")
    (staging.path / "other").mkdir()
    assert sweep(staging, NOW + 10**9) == []
    assert read_folder(old).files == OLD and (staging.path / "other").is_dir()
    assert unknown_entries(root, staging.notes) == [staging.path / "other"]


FORGED = {"at": 0, "host": "evil", "process": 1, "inode": 0, "believed": "", "written": ""}


@pytest.mark.parametrize(
    "target", ["../../../home/.bash_aliases", "../../../home", "../victim", "victim"]
)
@pytest.mark.parametrize("drop", [None, [], ["thesis.txt"]])
def test_recovery_notes_that_a_repository_brings_decide_nothing(
    root: Path, staging: StagingDirectory, tmp_path: Path, target: str, drop: list[str] | None
) -> None:
    """Before, a note beside the watched folder could name any path to be overwritten or
    taken away.
    """
    for victim in (tmp_path / "home", tmp_path / "victim", root / "victim"):
        victim.mkdir(exist_ok=True)
        (victim / "thesis.txt").write_text("mine")
    (staging.path / "a.1-a.ready").mkdir()
    (staging.path / "a.1-a.ready" / ".bashrc").write_text("evil")
    (staging.path / "a.1-a.old").mkdir()
    (staging.path / "a.1-a.json").write_text(json.dumps({"target": target, "drop": drop, **FORGED}))
    before = sorted(tmp_path.rglob("*"))
    assert sweep(staging, NOW) == sweep(staging, NOW + 10**6) == []
    assert sorted(tmp_path.rglob("*")) == before
    assert unknown_entries(root, staging.notes) == [
        staging.path / f"a.1-a.{end}" for end in ("json", "old", "ready")
    ]


WRONG = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
NOTE = {
    "target": st.sampled_from(
        ["pdf", "a/pdf", "..", "../x", "/etc", "a/../../x", "a\\..\\x", "", "./x", "x\0"]
    )
}


@pytest.mark.process
@given(
    st.fixed_dictionaries({}, optional={**dict.fromkeys((*FORGED, "drop", "more"), WRONG), **NOTE})
    | WRONG
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_note_says_nothing_outside_of_the_root_changes(
    tmp_path: Path, note: object
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as place:
        root = Path(place) / "outer" / "skills"
        root.mkdir(parents=True)
        (root.parent / "x").write_text("mine")
        staging = staging_for(root)
        for state in ("ready", "old"):
            (staging.path / f"pdf.1-a.{state}").mkdir()
            (staging.path / f"pdf.1-a.{state}" / "SKILL.md").write_text(state)
        (staging.notes / "pdf.1-a.json").write_text(json.dumps(note))
        own = (root, staging.path, staging.notes)
        before = [
            path
            for path in Path(place).rglob("*")
            if not any(path.is_relative_to(top) for top in own)
        ]
        sweep(staging, NOW)
        sweep(staging, NOW + 10**6)
        after = [
            path
            for path in Path(place).rglob("*")
            if not any(path.is_relative_to(top) for top in own)
        ]
        assert after == before
        assert (root.parent / "x").read_text() == "mine"


def test_a_sweep_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert sweep(StagingDirectory(tmp_path, tmp_path / "nothing", tmp_path / "none"), NOW) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sweep_beside_a_living_writer_does_not_disturb_it(
    pdf: Path, update: Update, staging: StagingDirectory, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def sweeping(one: Path, other: Path) -> None:
        if when == "after":
            exchange(one, other)
        before = left_in(staging)
        assert sweep(staging, NOW + 61) == [] and left_in(staging) == before
        if when == "before":
            exchange(one, other)

    (pdf / ".venv").mkdir()
    monkeypatch.setattr(atomic_dir, "exchange", sweeping)
    update()
    assert read_folder(pdf).files == NEW and (pdf / ".venv").is_dir()


# Staging


def test_staging_lies_hidden_beside_the_root_and_is_private(root: Path) -> None:
    staging = staging_for(root)
    assert staging.path == root.parent / ".skills.evolvable" and staging == staging_for(root)
    assert (staging.path / ".gitignore").read_text() == "*\n"
    if os.name == "posix":
        assert staging.path.stat().st_mode & 0o777 == 0o700


def test_where_it_cannot_lie_beside_the_root_it_lies_inside(root: Path) -> None:
    (root.parent / ".skills.evolvable").write_text("somebody else's")
    assert staging_for(root).path == root / ".evolvable"


@posix
def test_a_symlink_in_its_place_is_not_used(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root.parent / ".skills.evolvable").symlink_to(tmp_path / "elsewhere")
    assert staging_for(root).path == root / ".evolvable"


def test_where_it_can_lie_nowhere_it_is_refused_with_a_hint(root: Path) -> None:
    (root.parent / ".skills.evolvable").touch()
    (root / ".evolvable").touch()
    with pytest.raises(Refused) as refused:
        staging_for(root)
    assert refused.value.hint
    with pytest.raises(Refused):
        staging_for(root / "nothing" / "there")


@not_root
def test_a_root_whose_parent_is_closed_keeps_it_inside(root: Path) -> None:
    root.parent.chmod(0o500)
    try:
        assert staging_for(root).path == root / ".evolvable"
    finally:
        root.parent.chmod(0o700)


@not_root
def test_a_root_that_may_not_be_written_is_an_error_and_nothing_changes(
    pdf: Path, staging: StagingDirectory
) -> None:
    """attacks.json, fs-15."""
    pdf.parent.chmod(0o500)
    try:
        for action in (
            lambda: write_folder(pdf, NEW, staging, believed="", now=NOW),
            lambda: remove(pdf, staging),
        ):
            with pytest.raises(PermissionError):
                action()
    finally:
        pdf.parent.chmod(0o700)
    assert read_folder(pdf).files == OLD and left_in(staging) == []


@posix
def test_a_disk_that_is_full_is_an_error_and_nothing_changes(
    pdf: Path, staging: StagingDirectory
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError):
            write_folder(
                pdf, {**NEW, "big.bin": File(bytes(20_000))}, staging, believed=BELIEVED, now=NOW
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_folder(pdf).files == OLD and left_in(staging) == []


# Systems that cannot exchange


@pytest.fixture(params=["two renames", "file by file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Takes the exchange away, as some file systems and Windows do."""
    for name in ("exchange", "_two_renames", "_move_away"):
        monkeypatch.setattr(atomic_dir, name, getattr(atomic_dir, name))
    swap_children.limit_to(request.param)
    return str(request.param)


def test_without_an_exchange_the_outcome_is_the_same(
    pdf: Path, staging: StagingDirectory, way: str
) -> None:
    (pdf / ".venv").mkdir()
    huge(pdf / "references" / "model.bin")
    replaced = write_folder(pdf, NEW, staging, believed=BELIEVED, now=NOW)
    assert read_folder(pdf).files == NEW
    assert (pdf / ".venv").is_dir() and (pdf / "references/model.bin").exists()
    assert replaced is not None and read_folder(replaced.old).files == OLD
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []


def test_without_an_exchange_removing_is_the_same(
    pdf: Path, staging: StagingDirectory, way: str
) -> None:
    (pdf / "__pycache__").mkdir()
    replaced = remove(pdf, staging)
    assert replaced is not None and read_folder(replaced.old).files == OLD
    assert not pdf.exists()
    assert sweep(staging, NOW + 61) == [] and left_in(staging) == []


def test_without_an_exchange_a_last_edit_is_recovered(
    pdf: Path, staging: StagingDirectory, way: str
) -> None:
    with open(pdf / "SKILL.md", "ab") as editor:
        write_folder(pdf, NEW, staging, believed=BELIEVED, now=NOW)
        editor.write(b"my last words\n")
    (found,) = sweep(staging, NOW + 61)
    assert found.files == {**OLD, "SKILL.md": File(OLD["SKILL.md"].data + b"my last words\n")}


@pytest.mark.parametrize("way", ["file by file"], indirect=True)
def test_file_by_file_what_is_in_the_way_is_kept(
    pdf: Path, staging: StagingDirectory, way: str, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (pdf / "assets").symlink_to(tmp_path / "elsewhere")
    (pdf / "notes.md").mkdir()
    huge(pdf / "notes.md" / "model.bin")
    files = {
        "SKILL.md": File(b"new"),
        "assets/a": File(b"new"),
        "notes.md": File(b"new"),
        "scripts": File(b"new"),
    }
    replaced = write_folder(pdf, files, staging, believed=BELIEVED, now=NOW)
    assert read_folder(pdf).files == files
    assert os.listdir(tmp_path / "elsewhere") == [], "nothing was written through the symlink"
    assert replaced is not None and (replaced.old / "assets").is_symlink()
    (found,) = sweep(staging, NOW + 61)
    assert set(found.stuck) == {"assets", "notes.md/model.bin"}


@posix
@pytest.mark.parametrize("removing", [False, True])
@pytest.mark.parametrize("way", ["exchange", "two renames", "file by file"], indirect=True)
def test_a_rename_that_fails_puts_all_back(
    pdf: Path, staging: StagingDirectory, way: str, removing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows a file that is open cannot be replaced; disks break. Each call fails in turn."""
    (pdf / "assets").symlink_to("nowhere")
    files = {"SKILL.md": File(b"new"), "assets/a": File(b"new"), "references": File(b"a file now")}
    for failing in range(1, 100):
        with monkeypatch.context() as patch:
            failing_at(failing, patch)
            try:
                if removing:
                    remove(pdf, staging)
                else:
                    write_folder(pdf, files, staging, believed=BELIEVED, now=NOW)
                break
            except PermissionError:
                pass
        assert read_folder(pdf).files == OLD, failing
        assert (pdf / "assets").is_symlink()
        assert left_in(staging) == [], failing
    assert not pdf.exists() or read_folder(pdf).files == ({} if removing else files)
    assert failing >= (5 if way == "file by file" else 2), "each kind of rename failed once"


def failing_at(call: int, patch: pytest.MonkeyPatch) -> None:
    """Lets this call of a rename to or from `.ready` or `.old` fail."""
    left = call

    def wrap(real: Callable[..., None]) -> Callable[..., None]:
        def wrapped(source: Path, target: Path) -> None:
            nonlocal left
            places = {
                place.suffix
                for path in map(Path, (source, target))
                for place in (path, *path.parents)
            }
            left -= bool(places & {".old", ".ready"})
            if left == 0:
                left = 10**6
                raise PermissionError(errno.EACCES, "open in another program")
            real(source, target)

        return wrapped

    for name in ("exchange", "rename_new", "rename"):
        patch.setattr(atomic_dir, name, wrap(getattr(atomic_dir, name)))
    patch.setattr(file_moves, "rename", wrap(file_moves.rename))


# Crashes


@pytest.mark.process
@pytest.mark.parametrize("operation", ["create", "update", "remove"])
@pytest.mark.parametrize("way", ["exchange", "two renames", "file by file"])
@posix
def test_death_before_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, way: str, operation: str
) -> None:
    """docs/promises.md.

    Sweeps die too. With an exchange the folder is right even before a sweep.
    """
    child = start("crash", tmp_path, way, operation)
    out, _ = child.communicate(timeout=120)
    said = json.loads(out)
    assert said["problems"] == []
    assert said["steps"] > 10


@pytest.mark.process
@posix
def test_killed_writers_leave_whole_folders_and_readers_see_no_mix(
    pdf: Path, staging: StagingDirectory, tmp_path: Path
) -> None:
    kill_writers(pdf, staging, tmp_path, kills=60)


@pytest.mark.process
@posix
@pytest.mark.nightly
def test_a_thousand_killed_writers(pdf: Path, staging: StagingDirectory, tmp_path: Path) -> None:
    kill_writers(pdf, staging, tmp_path, kills=1000)


def kill_writers(pdf: Path, staging: StagingDirectory, tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    (pdf / ".venv").mkdir()
    (pdf / ".venv/keep").touch()
    stop = tmp_path / "stop"
    readers = [start("read", pdf, stop), start("read", pdf, stop), start("tidy", pdf.parent, stop)]
    newest = 0
    try:
        for kill in range(5 * kills):
            if kill >= kills and newest > kills / 2:
                # On a busy machine a writer is killed more often before it has written anything.
                break
            kill_one(pdf, staging, rng.uniform(0, 0.08))
            number = version_of(read_folder(pdf).files)
            assert number is not None and number >= newest
            newest = number
            assert sweep(staging, time.time()) == []
            assert (pdf / ".venv/keep").exists()
    finally:
        stop.touch()
        said = [json.loads(reader.communicate(timeout=60)[0]) for reader in readers]
    *seen, recovered = said
    assert recovered == []
    assert newest > kills / 2
    for counts in seen:
        assert (counts["mixed"], counts["missing"]) == (0, 0)
        assert counts["whole"] > kills
    assert sweep(staging, time.time() + 120) == [] and left_in(staging) == []


def kill_one(pdf: Path, staging: StagingDirectory, seconds: float) -> None:
    child = start("write", pdf, pdf.parent)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def start(role: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, swap_children.__file__, role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


# The two renames


@pytest.fixture(params=["by name", "by number"])
def renames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system's call, by its name in the C library and by its number where the library is too
    old to have it.
    """
    if sys.platform != "linux" and request.param == "by number":
        pytest.skip("only Linux has numbers that stay")
    if request.param == "by number":
        monkeypatch.setattr(module, "_NAME", "no_such_call")
    module._system_call.cache_clear()
    yield
    module._system_call.cache_clear()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system has no such call")
def test_two_names_change_places(tmp_path: Path, renames: None) -> None:
    one, other = tmp_path / "öne", tmp_path / "other"
    one.mkdir()
    other.write_text("a file")
    exchange(one, other)
    assert one.read_text() == "a file" and other.is_dir()
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "nothing")


def test_a_rename_replaces_nothing(tmp_path: Path, renames: None) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    with pytest.raises(FileExistsError):
        rename_new(one, other)
    assert (one.read_text(), other.read_text()) == ("1", "2")
    rename_new(one, tmp_path / "third")
    assert (tmp_path / "third").read_text() == "1"


def test_a_rename_replaces_nothing_where_the_system_has_no_such_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_system_call", lambda: None)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with pytest.raises(FileExistsError):
        rename_new(one, other)
    rename_new(one, tmp_path / "third")
    assert (tmp_path / "third").is_dir()


@pytest.mark.process
def test_a_folder_that_comes_and_goes_is_still_replaced(
    pdf: Path, staging: StagingDirectory
) -> None:
    """Somebody makes and removes the folder while it is written."""
    script = "import os, sys\na, b = sys.argv[1:]\nwhile True:\n os.rename(a, b); os.rename(b, a)"
    spare = pdf.with_name("spare")
    spare.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(spare), str(pdf.with_name("other"))]
    )
    try:
        for number in range(30):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                write_folder(spare, version(number), staging, believed="", now=NOW)
            poll(
                lambda: version_of(read_folder(pdf).files) == 0, "the other folder to be untouched"
            )
    finally:
        child.kill()
        child.wait()
