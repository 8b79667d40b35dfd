"""Which folders are projects of a directory: git's files say it and are not believed where they
contradict.
"""

import os
import subprocess
from pathlib import Path

import pytest

from evolvable_store.workingcopy.project_places import main_work_tree, project_of, surroundings_of

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test"]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """A repository with one commit, and a linked work tree `tree` beside it."""
    main = tmp_path / "main"
    (main / "packages/web").mkdir(parents=True)
    (main / "packages/web/file").write_text("x", encoding="utf-8")
    git(main, "init", "-q")
    git(main, "add", "-A")
    git(main, "commit", "-qm", "first")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    return main


@pytest.mark.parametrize(
    "folder",
    [
        ".claude/skills",
        ".agents/skills",
        ".codex/skills",
        ".cursor/skills",
        ".claude/agents",
        ".claude/commands",
    ],
)
def test_a_project_is_the_folder_that_holds_a_clients_folder(tmp_path: Path, folder: str) -> None:
    assert project_of(tmp_path / "app" / folder) == tmp_path / "app"


@pytest.mark.parametrize("folder", ["skills", "docs/skills", ".claude/hooks", ".claude"])
def test_no_other_folder_makes_a_project(tmp_path: Path, folder: str) -> None:
    assert project_of(tmp_path / "app" / folder) is None


def test_places_end_at_the_root_of_the_work_tree(tmp_path: Path) -> None:
    (tmp_path / "outer/app/.git").mkdir(parents=True)
    (tmp_path / "outer/app/packages/web").mkdir(parents=True)
    around = surroundings_of(tmp_path / "outer/app/packages/web")
    app = tmp_path / "outer/app"
    assert (around.places, around.nested) == ((app / "packages/web", app / "packages", app), True)


def test_without_git_places_end_below_the_home(tmp_path: Path) -> None:
    (tmp_path / "user/work/app").mkdir(parents=True)
    around = surroundings_of(tmp_path / "user/work/app", tmp_path / "user")
    assert (around.places, around.nested) == (
        (tmp_path / "user/work/app", tmp_path / "user/work"),
        False,
    )
    assert surroundings_of(tmp_path / "user", tmp_path / "user").places == ()


@pytest.mark.process
def test_the_places_of_a_linked_work_tree_are_those_of_the_main_one(
    main: Path, tmp_path: Path
) -> None:
    around = surroundings_of(tmp_path / "tree/packages/web")
    assert around.places == (main / "packages/web", main / "packages", main)
    assert around.linked == tmp_path / "tree"


@pytest.mark.process
def test_a_linked_work_tree_with_relative_paths_has_its_main_one(
    main: Path, tmp_path: Path
) -> None:
    own = main / ".git/worktrees/tree"
    (tmp_path / "tree/.git").write_text("gitdir: ../main/.git/worktrees/tree\n", encoding="utf-8")
    (own / "gitdir").write_text("../../../../tree/.git\n", encoding="utf-8")
    assert main_work_tree(tmp_path / "tree") == main


@pytest.mark.process
def test_a_git_file_that_the_repository_does_not_know_claims_nothing(
    main: Path, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / ".git").write_bytes((tmp_path / "tree/.git").read_bytes())
    assert main_work_tree(hostile) is None
    assert surroundings_of(hostile).places == (hostile,)


@pytest.mark.process
def test_a_git_folder_that_a_download_brings_claims_no_repository(
    main: Path, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    own = hostile / "git/worktrees/x"
    own.mkdir(parents=True)
    (hostile / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
    (own / "gitdir").write_text(f"{hostile / '.git'}\n", encoding="utf-8")
    (own / "commondir").write_text(f"{main / '.git'}\n", encoding="utf-8")
    assert main_work_tree(hostile) is None


@pytest.mark.process
def test_a_linked_git_folder_claims_no_repository(main: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "git").symlink_to(main / ".git")
    (hostile / ".git").write_text("gitdir: git/worktrees/tree\n", encoding="utf-8")
    assert main_work_tree(hostile) is None
    (hostile / ".git").unlink()
    (hostile / ".git").symlink_to(tmp_path / "tree/.git")
    assert main_work_tree(hostile) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"gitdir:", b"gitdir: \n", b"gitdir: a\0b", b"\xff" * 99, b"gitdir: " + b"a/" * 9000],
)
def test_a_damaged_git_file_is_a_root_of_its_own(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "app/src").mkdir(parents=True)
    (tmp_path / "app/.git").write_bytes(text)
    assert surroundings_of(tmp_path / "app/src").places == (tmp_path / "app/src", tmp_path / "app")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are POSIX")
def test_a_pipe_in_the_place_of_a_git_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert main_work_tree(tmp_path) is None
    (tmp_path / "app").mkdir()
    (tmp_path / "own").mkdir()
    os.mkfifo(tmp_path / "own/commondir")
    (tmp_path / "app/.git").write_text(f"gitdir: {tmp_path / 'own'}\n", encoding="utf-8")
    assert main_work_tree(tmp_path / "app") is None


@pytest.mark.process
def test_a_submodule_is_a_work_tree_of_its_own(main: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(main), "sub")
    assert surroundings_of(outer / "sub/packages").places == (outer / "sub/packages", outer / "sub")
