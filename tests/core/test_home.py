"""Attack T13: a home that exists already, that others may write, that belongs to somebody else, or
to a repository.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolvable_store.errors import NoLibrary, UntrustedHome
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.paths import CONFIGURATION, LIBRARY_FILE
from evolvable_store.resource import Ref
from evolvable_store.store import Store

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="Windows guards a home by access lists, not by modes"
)

as_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other accounts"
)

NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def modes(home: Path) -> dict[str, str]:
    """What others may do with each entry of a home, for entries where they may do anything."""
    found = {
        "": home.stat().st_mode,
        **{str(path.relative_to(home)): path.lstat().st_mode for path in home.rglob("*")},
    }
    return {name: oct(stat.S_IMODE(mode)) for name, mode in found.items() if mode & 0o077}


def fill(home: Path) -> None:
    with Store.open(home, create=True) as store, store.transaction(Actor.HUMAN, "begin") as tx:
        tx.put(
            Ref.parse("pdf"),
            {"SKILL.md": File(b"---\nname: pdf\ndescription: Fill forms.\n---\n\nHow.\n")},
        )


def test_a_new_home_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "deep" / "home"
    with Store.open(home, create=True) as store:
        with store.transaction(Actor.HUMAN, "begin") as tx:
            tx.put(Ref.parse("pdf"), {"SKILL.md": File(b"x")})
        assert modes(home) == {}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert not (tmp_path / "deep").stat().st_mode & 0o022


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o750])
def test_an_own_home_that_others_can_reach_is_repaired_with_all_that_is_in_it(
    tmp_path: Path, mode: int
) -> None:
    home = tmp_path / "home"
    fill(home)
    (home / "reviews" / "queue").mkdir(parents=True)
    (home / "reviews" / "queue" / "s.json").write_text("{}")
    (home / "tokens.json").write_text("{}")
    (home / "run.sh").write_text("x")
    for path in (home, *home.rglob("*")):
        path.chmod(mode if path.is_dir() else 0o644)
    (home / "run.sh").chmod(0o755)
    with Store.open(home) as store:
        assert store.head(Ref.parse("pdf")).version == 1
    assert modes(home) == {}
    assert stat.S_IMODE((home / "run.sh").stat().st_mode) == 0o700


def test_a_folder_of_other_files_becomes_no_home_and_keeps_its_modes_unless_it_is_registered(
    tmp_path: Path,
) -> None:
    (tmp_path / "public").mkdir(mode=0o755)
    (tmp_path / "public/index.html").write_text("x")
    for path in (tmp_path / "public", tmp_path / "public/index.html"):
        path.chmod(0o755)
    before = modes(tmp_path / "public")
    with pytest.raises(UntrustedHome, match=r"holds no library .*'index.html'"):
        Store.open(tmp_path / "public", create=True)
    with pytest.raises(NoLibrary):
        Store.open(tmp_path / "public")
    assert modes(tmp_path / "public") == before and os.listdir(tmp_path / "public") == [
        "index.html"
    ]
    Store.open(tmp_path / "public", create=True, registered=lambda: [tmp_path / "public"]).close()
    assert modes(tmp_path / "public") == {}


def test_files_of_a_private_home_are_repaired_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    fill(home)
    (home / LIBRARY_FILE).chmod(0o644)
    (home / "callers").mkdir(mode=0o755)
    Store.open(home).close()
    assert modes(home) == {}


def test_the_target_of_a_link_in_a_home_keeps_its_mode(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "shared"
    fill(home)
    other.mkdir(mode=0o755)
    (other / "file").write_text("x")
    (other / "file").chmod(0o644)
    (home / "link").symlink_to(other)
    home.chmod(0o755)
    Store.open(home).close()
    assert (stat.S_IMODE(other.stat().st_mode), stat.S_IMODE((other / "file").stat().st_mode)) == (
        0o755,
        0o644,
    )


@as_root
def test_a_home_of_another_account_is_refused_unless_it_is_registered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    fill(home)
    os.chown(home, NOBODY, NOBODY)
    with pytest.raises(UntrustedHome) as refused:
        Store.open(home)
    with pytest.raises(UntrustedHome):
        Store.open(home, create=True)

    assert str(home) in str(refused.value) and "owner 65534, mode 0700" in str(refused.value)
    assert CONFIGURATION in refused.value.hint
    link = tmp_path / "link"
    link.symlink_to(home)
    for registered in (home, link):
        Store.open(home, registered=lambda one=registered: [one]).close()


@as_root
def test_an_empty_folder_of_another_account_becomes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    os.chown(home, NOBODY, NOBODY)
    with pytest.raises(UntrustedHome):
        Store.open(home, create=True)
    assert list(home.iterdir()) == []


@as_root
@pytest.mark.parametrize("name", [LIBRARY_FILE, f"{LIBRARY_FILE}-wal"])
def test_a_library_that_another_account_planted_in_an_own_home_is_refused(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path / "home"
    fill(home)
    (home / name).touch()
    os.chown(home / name, NOBODY, NOBODY)
    with pytest.raises(UntrustedHome, match=name):
        Store.open(home)


@as_root
def test_a_home_that_another_account_could_replace_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):  # others have to get there
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    place = tmp_path / "everybody"
    place.mkdir()
    place.chmod(0o777)
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(UntrustedHome, match="every account can replace it"):
        Store.open(place / "home", create=True)
    place.chmod(0o1777)  # as of /tmp: nobody can replace what is another's there
    Store.open(place / "home", create=True).close()


def test_an_own_folder_above_that_everybody_may_write_is_repaired(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    place = tmp_path / "mine"
    place.mkdir()
    place.chmod(0o777)
    Store.open(place / "home", create=True).close()
    assert stat.S_IMODE(place.stat().st_mode) == 0o775


@pytest.mark.parametrize("mark", ["folder", "file", "dangling link"])
def test_a_home_inside_a_work_tree_is_refused_unless_it_is_registered(
    tmp_path: Path, mark: str
) -> None:
    tree = tmp_path / "project"
    home = tree / "deep" / "home"
    home.mkdir(parents=True)
    git = tree / ".git"
    if mark == "folder":
        git.mkdir()
    elif mark == "file":  # as of a worktree or a submodule
        git.write_text("gitdir: ../other")
    else:
        git.symlink_to("nowhere")
    with pytest.raises(UntrustedHome, match="a repository may have named it") as refused:
        Store.open(home, create=True)
    assert list(home.iterdir()) == []
    assert CONFIGURATION in refused.value.hint and str(home) in refused.value.hint
    outside = tmp_path / "link"
    outside.symlink_to(home)
    with pytest.raises(UntrustedHome):
        Store.open(outside, create=True)

    Store.open(home, create=True, registered=lambda: [home]).close()
    assert modes(home) == {}


def test_what_is_registered_is_not_asked_for_a_private_home(tmp_path: Path) -> None:
    def asked() -> list[Path]:
        raise AssertionError("the person's configuration was read")

    Store.open(tmp_path / "home", create=True, registered=asked).close()
