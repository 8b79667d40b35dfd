"""What the benchmark of lookup says of rankings and confidences, on some made by hand."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from lookup.copies import Copies
from lookup.data import Library, answerable, drawn, take_in, tiled
from lookup.none_fits import right_ids, without_the_right
from lookup.scoring import (
    Score,
    Verdict,
    abstention,
    calibration_error,
    family,
    quality,
    reliability,
    score,
)

from evolvable_store.store import Store

SECOND = 1 / math.log2(3)


def task(source: str, gold: str) -> dict[str, object]:
    return {"source": source, "gold": [gold], "kind": "positive"}


def record(number: int, name: str = "pdf") -> dict[str, str]:
    return {
        "id": f"id-{number}",
        "name": name,
        "description": "d",
        "body": "b",
        "repo": "a/b",
        "path": "x/SKILL.md",
    }


@pytest.mark.process
def test_the_benchmark_can_be_imported_without_the_packages_of_the_embedders() -> None:
    missing = "import sys; sys.modules |= dict.fromkeys(('numpy', 'onnxruntime', 'tokenizers')); "
    program = (
        f"{missing}sys.path += {sys.path!r}; import lookup.none_fits, lookup.datasets, "
        "lookup.scoring"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_right_skill_in_the_first_place_is_worth_all() -> None:
    assert score(["a", "b"], ["a"]) == Score(1.0, 1.0, 1.0)


def test_a_right_skill_in_the_second_place_counts_among_five_but_not_as_a_hit() -> None:
    assert score(["b", "a"], ["a"]) == Score(0.0, 1.0, pytest.approx(SECOND))


def test_a_right_skill_after_the_fifth_place_is_no_recall_and_after_the_tenth_nothing() -> None:
    others = [f"other-{number}" for number in range(10)]

    assert score([*others[:5], "a"], ["a"]) == Score(0.0, 0.0, pytest.approx(1 / math.log2(7)))
    assert score([*others, "a"], ["a"]) == Score(0.0, 0.0, 0.0)
    assert score([], ["a"]) == Score(0.0, 0.0, 0.0)


def test_of_two_right_skills_one_found_is_half_the_recall() -> None:
    found = score(["a", "x"], ["a", "b"])

    assert (found.hit1, found.recall5) == (1.0, 0.5)
    assert found.ndcg == pytest.approx(1 / (1 + SECOND))


def test_a_near_copy_counts_as_the_only_right_skill_and_once() -> None:
    assert score(["copy", "a"], ["a"], ["copy"]) == Score(1.0, 1.0, 1.0)


def test_what_repeats_a_right_skill_takes_no_place() -> None:
    assert score(["a", "copy", "x", "y", "z", "b"], ["a"], ["copy"]).recall5 == 1.0
    assert score(["a", "copy-of-a", "b"], ["a", "b"], ["copy-of-a"]).recall5 == 1.0


def test_every_family_weighs_the_same_whatever_its_size() -> None:
    right = [(task("large", "a"), ["a"])] * 60
    wrong = [(task("small", "a"), ["b"])] * 20

    found = quality([*right, *wrong])

    assert found.macro.hit1 == 0.5
    assert found.families["large"].hit1 == 1.0
    assert found.count == 80


def test_a_family_of_under_twenty_tasks_is_left_out_unless_it_gathers_such() -> None:
    large = [(task("large", "a"), ["a"])] * 20
    few = [(task("few", "a"), ["b"])] * 19
    gathered = [(task("auth0-skills", "a"), ["b"])]

    assert quality([*large, *few]).macro.hit1 == 1.0
    assert quality([*large, *gathered]).macro.hit1 == 0.5
    with pytest.raises(ValueError, match="20 tasks"):
        quality(few)


def test_two_sources_of_one_author_are_one_family() -> None:
    assert family(task("uipath-tasks", "a")) == family(task("uipath-activation", "a")) == "uipath"
    assert family(task("golang-skills", "a")) == "golang-skills"


def test_kept_and_false_tell_answers_to_tasks_with_and_without_their_skill() -> None:
    def verdict(out: bool, answered: bool, right: bool, of: str = "large") -> Verdict:
        return Verdict(of, out, 0.5, answered, right)

    kept = [verdict(False, True, True)] * 30 + [verdict(False, False, True)] * 10
    wrong = [verdict(False, True, False)] * 50
    out = [verdict(True, True, False)] * 10 + [verdict(True, False, False, "other")] * 30

    found = abstention([*kept, *wrong, *out])

    assert (found.kept, found.false) == (0.75, 0.25)
    assert found.kept_macro == 0.75
    assert found.false_macro == 0.0  # the ten of "large" are too few to be a family


def test_nothing_to_tell_from_is_no_number() -> None:
    assert math.isnan(abstention([]).kept)


def test_a_confidence_that_is_right_as_often_as_it_says_has_no_calibration_error() -> None:
    said = [(0.25, True)] + [(0.25, False)] * 3 + [(1.0, True)] * 4

    curve = reliability(said)

    assert [(one.said, one.right, one.count) for one in curve] == [(0.25, 0.25, 4), (1.0, 1.0, 4)]
    assert calibration_error(curve) == 0.0


def test_an_overconfident_bin_weighs_by_its_answers() -> None:
    said = [(0.95, False)] * 1 + [(0.05, False)] * 3

    assert calibration_error(reliability(said)) == pytest.approx((0.95 + 3 * 0.05) / 4)


def test_only_tasks_whose_right_skill_is_there_are_asked_with_those_of_them_that_are() -> None:
    queries = [
        {"kind": "positive", "gold": ["a", "b"]},
        {"kind": "positive", "gold": ["b"]},
        {"kind": "neg_library"},
    ]

    assert answerable(queries, {"a"}) == [{"kind": "positive", "gold": ["a"]}]


def test_skills_of_one_name_get_names_of_their_own() -> None:
    library = Library.of([record(1), record(2), record(3, "csv")])

    assert list(library.skills) == ["pdf", "pdf-2", "csv"]
    assert library.in_repositories({"a/b"}) == ["pdf", "pdf-2", "csv"]


def test_a_drawn_library_is_the_same_for_the_same_seed_and_holds_what_tasks_call_for() -> None:
    corpus = [record(number, f"n{number}") for number in range(100)]
    queries = [{"kind": "positive", "gold": [f"id-{number}"]} for number in range(10)]

    library = drawn(30, 1, corpus, queries)

    assert len(library.skills) == 30
    assert library == drawn(30, 1, corpus, queries) != drawn(30, 2, corpus, queries)
    assert {f"id-{number}" for number in range(10)} <= library.ids


def test_a_tiled_library_has_as_many_names_as_it_has_skills() -> None:
    assert len(tiled([record(1), record(2, "csv")], 9).skills) == 9


def skill(repo: str, name: str, description: str) -> dict[str, str]:
    id_ = f"{repo}:{name}"
    return {
        "id": id_,
        "name": name,
        "description": description,
        "body": "b",
        "repo": repo,
        "path": f"{name}/SKILL.md",
    }


COLLECTION = [
    skill("a/b", "popups", "Create or optimize popups, modals and banners"),
    skill("a/b", "emails", "Write a welcome sequence"),
    skill("c/d", "popup-cro", "Create or optimize popups, modals, overlays and banners"),
    skill("c/d", "pricing", "Choose tiers of a price"),
    skill("e/f", "Emails", "Send messages through a mail server"),
    skill("e/f", "pdf", "Fill in forms"),
]


def test_a_skill_elsewhere_with_the_same_name_or_half_of_the_description_is_a_copy() -> None:
    copies = Copies(Library.of(COLLECTION))

    assert copies.of("a/b:popups") == {"c/d:popup-cro"}
    assert copies.of("a/b:emails") == {"e/f:Emails"}
    assert copies.of("e/f:pdf") == copies.of("nowhere:pdf") == set()


def test_skills_of_one_repository_are_no_copies_of_each_other() -> None:
    same = [skill("a/b", name, "Create or optimize popups") for name in ("popups", "popup-cro")]

    assert Copies(Library.of(same)).of("a/b:popups") == set()


def test_a_copy_is_a_right_answer_where_copies_are_marked() -> None:
    query = task("x", "a/b:popups")

    assert right_ids(query) == {"a/b:popups"}
    assert right_ids(Copies(Library.of(COLLECTION)).marked(query)) == {
        "a/b:popups",
        "c/d:popup-cro",
    }


def test_with_a_repository_the_copies_of_its_skills_are_taken_out_and_nothing_else(
    tmp_path: Path,
) -> None:
    library = Library.of(COLLECTION)
    take_in(tmp_path / "home", library)
    query = {**task("x", "a/b:popups"), "source_repo": "a/b"}

    with Store.open(tmp_path / "home") as store:
        for copies, left in (
            (Copies(library), {"pricing", "pdf"}),
            (None, {"popup-cro", "pricing", "emails-2", "pdf"}),
        ):
            for its, _ in without_the_right(store, library, [query], copies):
                assert its == [query]
                assert {head.name for head in store.heads() if head.version is not None} == left
        assert {head.name for head in store.heads() if head.version is not None} == set(
            library.skills
        )
