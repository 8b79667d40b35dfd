"""Somebody puts a symbolic link where a directory was, while it is written: nothing outside of the
root changes.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import swap_children
from swap_children import version

from evolvable_store.errors import EvolvableError
from evolvable_store.workingcopy import atomic_dir
from evolvable_store.workingcopy.openat import move, open_real
from evolvable_store.workingcopy.staging_dir import open_staging
from evolvable_store.workingcopy.tree_reader import read_folder

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform not in ("linux", "darwin"), reason="looks names up in open directories"
    ),
]

SWAPPER = """
import os, sys
from pathlib import Path
from evolvable_store.workingcopy.openat import exchange
place, link = map(Path, sys.argv[1:])
print("ready", flush=True)
while True:
    exchange(place, link)
"""


def snapshot(place: Path) -> dict[str, tuple[int, bytes]]:
    """Returns mode and content of everything below a directory."""
    found = {}
    for path in sorted(place.rglob("*")):
        status = path.lstat()
        content = (
            os.readlink(path).encode()
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b""
        )
        found[path.relative_to(place).as_posix()] = (
            stat.S_IFMT(status.st_mode) | status.st_mode & 0o777,
            content,
        )
    return found


@contextlib.contextmanager
def swapped(place: Path, outside: Path) -> Iterator[None]:
    """Lets a process exchange the directory for a link to `outside` and back, all the time."""
    link = place.with_name(f"{place.name}.link")
    link.symlink_to(outside)
    command = [sys.executable, "-c", SWAPPER, str(place), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            child.kill()


@pytest.fixture(params=["exchange", "two renames", "file by file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One way after the other to replace a folder."""
    for name in ("exchange", "_two_renames", "_move_away"):
        monkeypatch.setattr(atomic_dir, name, getattr(atomic_dir, name))
    swap_children.limit_to(request.param)
    return str(request.param)


@pytest.mark.process
@pytest.mark.parametrize(
    "swapping", ["home/skills/team", "home/skills", "home", "home/.skills.evolvable"]
)
def test_a_link_planted_while_a_folder_is_written_leads_nothing_outside(
    tmp_path: Path, way: str, swapping: str
) -> None:
    """The path was right when it was looked at, and is a link when it is used."""
    root, notes = tmp_path / "home" / "skills", tmp_path / "library" / "notes"
    root.mkdir(parents=True)
    staging = atomic_dir.staging_for(root, notes)
    target = root / "team" / "pdf"
    atomic_dir.write_folder(target, version(0), staging, believed="", now=time.time())
    outside = tmp_path / "outside"
    for copy in (outside / "pdf", outside / "team" / "pdf", outside / "skills" / "team" / "pdf"):
        shutil.copytree(target, copy)
        (copy / ".venv").mkdir()
    before = snapshot(outside)
    with swapped(tmp_path / swapping, outside):
        for number in range(24):
            with contextlib.suppress(EvolvableError, OSError):
                staging = atomic_dir.staging_for(root, notes)
                if number % 3 == 2:
                    atomic_dir.remove_folder(target, staging, believed="", now=time.time())
                else:
                    atomic_dir.write_folder(
                        target, version(number), staging, believed="", now=time.time()
                    )
            with contextlib.suppress(EvolvableError, OSError):
                atomic_dir.sweep(staging, time.time() + 61)
    assert snapshot(outside) == before


@pytest.mark.process
@pytest.mark.parametrize("swapping", ["home/skills/team", "home/skills", "home"])
def test_a_link_planted_while_a_folder_is_read_brings_nothing_in(
    tmp_path: Path, swapping: str
) -> None:
    root = tmp_path / "home" / "skills"
    target, outside = root / "team" / "pdf", tmp_path / "outside"
    target.mkdir(parents=True)
    (target / "SKILL.md").write_text("ours")
    for copy in (outside / "pdf", outside / "team" / "pdf", outside / "skills" / "team" / "pdf"):
        copy.mkdir(parents=True)
        (copy / "SKILL.md").write_text("private")
    seen = set()
    with swapped(tmp_path / swapping, outside):
        for _ in range(200):
            with contextlib.suppress(FileNotFoundError):
                seen |= {file.data for file in read_folder(target, real=True).files.values()}
    assert seen <= {b"ours"}


def test_a_root_that_was_replaced_by_another_directory_is_not_written(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    root.mkdir()
    staging = atomic_dir.staging_for(root, tmp_path / "notes")
    root.rename(tmp_path / "away")
    root.mkdir()
    with pytest.raises(EvolvableError, match="replaced by another directory"):
        atomic_dir.write_folder(root / "pdf", version(0), staging, believed="", now=time.time())
    assert list(root.iterdir()) == []


def test_an_open_root_is_written_where_it_is_now_and_not_where_its_path_leads(
    tmp_path: Path,
) -> None:
    root, outside = tmp_path / "skills", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    with open_staging(atomic_dir.staging_for(root, tmp_path / "notes")) as place:
        root.rename(tmp_path / "away")
        root.symlink_to(outside)
        (place.root / "pdf").mkdir()
    assert (tmp_path / "away" / "pdf").is_dir() and list(outside.iterdir()) == []


def test_permissions_of_a_staging_folder_that_others_may_write_are_taken_back(
    tmp_path: Path,
) -> None:
    root, staging = tmp_path / "skills", tmp_path / ".skills.evolvable"
    root.mkdir()
    staging.mkdir()
    staging.chmod(0o777)
    assert atomic_dir.staging_for(root, tmp_path / "notes").path == staging
    assert staging.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
def test_a_directory_is_moved_to_another_file_system_with_its_links_and_permissions(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "run").write_text("x")
    (source / "bin" / "run").chmod(0o755)
    (source / "link").symlink_to("nowhere")
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as other,
        open_real(tmp_path) as here,
        open_real(Path(other)) as far,
    ):
        before = snapshot(source)
        move(here / "source", far / "moved")
        assert snapshot(Path(other) / "moved") == before and not source.exists()
