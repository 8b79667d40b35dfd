"""What a repository holds, read without git; whatever is damaged is undecided, no error."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolvable_store.workingcopy.git_repository import Repository, repositories_around

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


def holds(repository: Repository, path: str, data: bytes) -> bool | None:
    """Whether the repository has these bytes; None where it cannot be read."""
    found = repository.blobs(f"skills/{path}", data)
    return None if found is None else bool(found)


def touch(root: Path) -> None:
    """Make git's record of times and sizes worthless, so that contents decide."""
    for path in (root / "skills/pdf").iterdir():
        os.utime(path, (1, 1))


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "4"])
def test_every_object_of_a_pack_is_found_and_no_other(
    tmp_path: Path, form: str, version: str
) -> None:
    repository = made(tmp_path, form, version)
    touch(tmp_path)
    for number in range(20):
        assert holds(repository, "pdf/SKILL.md", TEXT + b"%d" % number) is True
        assert holds(repository, f"pdf/{number}.md", b"%d" % number) is True
    assert holds(repository, "pdf/SKILL.md", TEXT + b"20") is False
    assert holds(repository, "pdf/3.md", b"never committed") is False


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_the_store_has_what_index_and_head_no_longer_have(tmp_path: Path, form: str) -> None:
    repository = made(tmp_path, form)
    git(tmp_path, "rm", "-q", "-r", "--cached", ".")
    git(tmp_path, "commit", "-qm", "gone")
    assert holds(repository, "pdf/SKILL.md", TEXT + b"19") is True
    assert holds(repository, "pdf/SKILL.md", b"another") is False


def test_an_index_of_several_packs_is_enough(tmp_path: Path) -> None:
    repository = made(tmp_path)
    (tmp_path / "skills/pdf/SKILL.md").write_bytes(b"second pack")
    git(tmp_path, "commit", "-qam", "x")
    git(tmp_path, "repack", "-q")
    git(tmp_path, "multi-pack-index", "write")
    git(tmp_path, "rm", "-q", "-r", "--cached", ".")
    for path in (tmp_path / ".git/objects/pack").glob("*.idx"):
        path.unlink()
    assert holds(repository, "pdf/SKILL.md", b"second pack") is True
    assert holds(repository, "pdf/SKILL.md", TEXT + b"3") is True
    assert holds(repository, "pdf/SKILL.md", b"another") is False


def test_objects_of_alternates_count(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    made(tmp_path / "one")
    git(tmp_path, "clone", "-q", "--shared", str(tmp_path / "one"), str(tmp_path / "two"))
    (repository,) = repositories_around(tmp_path / "two/skills")
    touch(tmp_path / "two")
    assert holds(repository, "pdf/SKILL.md", TEXT + b"3") is True


def test_a_file_in_the_index_is_held_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.md").write_text("a")
    (repository,) = repositories_around(tmp_path)
    assert repository.blobs("a.md", b"a") == set()
    git(tmp_path, "add", "a.md")
    assert repository.blobs("a.md", b"a")


def test_a_split_index_is_read_with_its_shared_part(tmp_path: Path) -> None:
    repository = made(tmp_path)
    git(tmp_path, "update-index", "--split-index")
    touch(tmp_path)
    assert holds(repository, "pdf/3.md", b"3") is True


def test_outside_of_repositories_there_is_none(tmp_path: Path) -> None:
    assert repositories_around(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(
    "name", ["index", "objects/pack/pack-1.idx", "objects/pack/multi-pack-index", "commondir"]
)
def test_a_pipe_in_gits_folder_is_not_waited_for(tmp_path: Path, name: str) -> None:
    repository = made(tmp_path)
    (tmp_path / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / ".git" / name)
    assert holds(repository, "pdf/SKILL.md", b"another") is None


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packed")
    made(root)
    return root


PARTS = ("index", "HEAD", "packed-refs", "config", "idx", "pack")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    part=st.sampled_from(PARTS),
    place=st.integers(0, 10**6),
    put=st.binary(max_size=24),
    cut=st.booleans(),
)
def test_damage_anywhere_is_no_error_and_takes_no_file_for_the_persons(
    packed: Path, part: str, place: int, put: bytes, cut: bool
) -> None:
    files = {
        path.suffix[1:] or path.name: path for path in (packed / ".git/objects/pack").iterdir()
    }
    target = files.get(part, packed / ".git" / part)
    whole = target.read_bytes()
    target.chmod(0o600)
    at = place % (len(whole) + 1)
    target.write_bytes(whole[:at] + put + (b"" if cut else whole[at + len(put) :]))
    try:
        (repository,) = repositories_around(packed / "skills")
        assert holds(repository, "pdf/SKILL.md", TEXT + b"18") in (True, False, None)
        touch(packed)
        if part not in ("index", "config"):
            # The index alone says so.
            assert holds(repository, "pdf/SKILL.md", TEXT + b"19") is True
    finally:
        target.write_bytes(whole)
