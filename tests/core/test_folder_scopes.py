"""Folders that get another scope take along what they alone hold; other processes see the new names
at once.
"""

from pathlib import Path

import pytest
from samples import skill
from soundness import assert_sound

from evolvable_store.errors import AlreadyExists
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import Index
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_scopes import change_scope
from evolvable_store.workingcopy.registry import WorkingCopies


def watched(store: Store, path: Path, *names: str) -> None:
    """Watch a folder with these skills, in the scope app."""
    for name in names:
        (path / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Works.\n---\n\nOne.\n"
        (path / name / "SKILL.md").write_text(text, encoding="utf-8")
    WorkingCopies(store).add(path, scope="app")


def test_a_process_that_knew_the_old_name_finds_nothing_there_and_the_new_one_at_once(
    tmp_path: Path,
) -> None:
    with Store.open(tmp_path / "home", create=True) as one, Store.open(tmp_path / "home") as other:
        watched(one, tmp_path / "b", "deploy")
        known = other.head(Ref.parse("skill:app/deploy"))
        done = change_scope(one, one.backend.bindings.folders(), "shop")
        assert done.renamed == [(Ref.parse("skill:app/deploy"), Ref.parse("skill:shop/deploy"))]
        assert other.head_or_none(Ref.parse("skill:app/deploy")) is None
        assert other.head(Ref.parse("skill:shop/deploy")).id == known.id
        with Index.open(other) as index:
            assert index.names(Kind.SKILL, "", 10, ("shop",)) == ["deploy"]
            assert index.names(Kind.SKILL, "", 10, ("app",)) == []
        assert_sound(one)


def test_what_another_folder_holds_too_stays_and_is_copied_with_its_history(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home", create=True) as store:
        watched(store, tmp_path / "a", "lint")
        watched(store, tmp_path / "b", "lint", "only")
        (_, second) = store.backend.bindings.folders()
        done = change_scope(store, [second], "shop")
        assert [str(new) for _, new in done.copied] == ["skill:shop/lint"]
        assert [str(new) for _, new in done.renamed] == ["skill:shop/only"]
        heads = [store.head(Ref.parse(f"skill:{scope}/lint")) for scope in ("app", "shop")]
        assert heads[0].hash == heads[1].hash and heads[0].id != heads[1].id
        with store.transaction(Actor.HUMAN, "in one alone") as tx:
            tx.put(Ref.parse("skill:app/lint"), skill("changed"))
        WorkingCopies(store).sync()
        assert "One." in (tmp_path / "b/lint/SKILL.md").read_text(encoding="utf-8")
        assert_sound(store)


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home", create=True) as store:
        with store.transaction(Actor.HUMAN, "there before") as tx:
            tx.put(Ref.parse("skill:shop/deploy"), skill("other"))
        watched(store, tmp_path / "b", "deploy")
        change_scope(store, store.backend.bindings.folders(), "shop")
        assert [str(head.ref) for head in store.heads()] == [
            "skill:shop/deploy",
            "skill:shop/deploy-2",
        ]
        assert_sound(store)


def test_a_folder_that_moved_is_not_put_into_another_one(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home", create=True) as store:
        watched(store, tmp_path / "a", "one")
        watched(store, tmp_path / "b", "two")
        with pytest.raises(AlreadyExists):
            store.backend.bindings.move_folders(tmp_path / "b", tmp_path / "a/inside")
        assert [folder.path for folder in store.backend.bindings.folders()] == [
            tmp_path / "a",
            tmp_path / "b",
        ]
