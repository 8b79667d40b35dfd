"""What the index and HEAD of a repository hold, read without git; whatever is damaged is undecided, no error."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolvable_store.workingcopy.incoming import Repository, repositories_around

pytestmark = pytest.mark.process

TEXT = b"one\n" * 200


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def made(root: Path, form: str = "sha1", version: str = "2") -> Repository:
    """A repository with twenty commits of one file, packed with deltas."""
    git(root, "init", "-q", f"--object-format={form}")
    git(root, "config", "index.version", version)
    (root / "skills/pdf").mkdir(parents=True)
    for number in range(20):
        (root / "skills/pdf/SKILL.md").write_bytes(TEXT + b"%d" % number)
        (root / f"skills/pdf/{number}.md").write_bytes(b"%d" % number)
        git(root, "add", "-A")
        git(root, "commit", "-qm", "x")
    git(root, "gc", "-q")
    (repository,) = repositories_around(root / "skills")
    return repository


def touch(root: Path) -> None:
    """Make git's record of times and sizes worthless, so that contents decide."""
    for path in (root / "skills/pdf").iterdir():
        os.utime(path, (1, 1))


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "4"])
def test_the_index_holds_what_was_added(tmp_path: Path, form: str, version: str) -> None:
    repository = made(tmp_path, form, version)
    touch(tmp_path)
    assert repository.holds("pdf/SKILL.md", TEXT + b"19") is True
    assert repository.holds("pdf/3.md", b"3") is True
    assert repository.holds("pdf/SKILL.md", TEXT + b"18") is False
    assert repository.holds("pdf/other.md", b"3") is False


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_head_holds_what_the_index_no_longer_has(tmp_path: Path, form: str) -> None:
    repository = made(tmp_path, form)
    git(tmp_path, "rm", "-q", "-r", "--cached", ".")
    assert repository.holds("pdf/SKILL.md", TEXT + b"19") is True
    assert repository.holds("pdf/SKILL.md", b"another") is False


def test_before_the_first_commit_the_index_decides(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.md").write_text("a")
    (repository,) = repositories_around(tmp_path)
    assert repository.holds("a.md", b"a") is False
    git(tmp_path, "add", "a.md")
    assert repository.holds("a.md", b"a") is True


def test_a_split_index_is_read_with_its_shared_part(tmp_path: Path) -> None:
    repository = made(tmp_path)
    git(tmp_path, "update-index", "--split-index")
    touch(tmp_path)
    assert repository.holds("pdf/3.md", b"3") is True


def test_outside_of_repositories_there_is_none(tmp_path: Path) -> None:
    assert repositories_around(tmp_path) == []


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs pipes")
    repository = made(tmp_path)
    (tmp_path / ".git/index").unlink()
    os.mkfifo(tmp_path / ".git/index")
    assert repository.holds("pdf/3.md", b"3") is None


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packed")
    made(root)
    return root


PARTS = ("index", "HEAD", "packed-refs", "config", "idx", "pack")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(part=st.sampled_from(PARTS), place=st.integers(0, 10**6), put=st.binary(max_size=24), cut=st.booleans())
def test_damage_anywhere_is_no_error_and_takes_no_file_for_the_persons(
    packed: Path, part: str, place: int, put: bytes, cut: bool
) -> None:
    files = {path.suffix[1:] or path.name: path for path in (packed / ".git/objects/pack").iterdir()}
    target = files.get(part, packed / ".git" / part)
    whole = target.read_bytes()
    target.chmod(0o600)
    at = place % (len(whole) + 1)
    target.write_bytes(whole[:at] + put + (b"" if cut else whole[at + len(put) :]))
    try:
        (repository,) = repositories_around(packed / "skills")
        assert repository.holds("pdf/SKILL.md", TEXT + b"18") in (True, False, None)
        touch(packed)
        if part not in ("index", "HEAD", "packed-refs", "config"):
            assert repository.holds("pdf/SKILL.md", TEXT + b"19") is True  # the index alone says so
    finally:
        target.write_bytes(whole)
