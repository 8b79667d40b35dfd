"""Standing: among those that fit about as well, the one that proved itself comes first, then the nearer scope."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from earned import WORDS, verified

from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import IndexEntry
from evolvable_store.storage.evidence import SuccessCounts
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.metrics import wilson_lower_bound
from evolvable_tools.retrieval.cascade import CAP, TIE, _bound, break_ties
from evolvable_tools.retrieval.search_types import SearchMatch
from evolvable_tools.verbs.load import load_skill, report_outcome
from evolvable_tools.verbs.search import find_skill

Skill = Callable[..., Ref]

FITS = 0.4
CALLER = Caller(Actor.AGENT, session="session-1", scopes=("acme", "user"))
FORMS = "Fill and merge tax forms."
OTHERS = ("Bakes bread.", "Tunes pianos.", "Repairs bicycles.", "Plans a garden.", "Keeps bees.")


@pytest.fixture
def twins(skill: Skill) -> None:
    """Two skills that say the same of themselves, among others."""
    skill("forms-a", description=FORMS)
    skill("forms-b", description=FORMS)
    for number, description in enumerate(OTHERS):
        skill(f"other-{number}", description=description)


def used(library: Library, name: str, outcome: str, times: int = 1) -> None:
    """Loads a skill and tells what came of it, in so many sessions; verified where a transcript can show it."""
    for number in range(times):
        if outcome in WORDS:
            verified(library, name, f"{name}-{outcome}-{number}", outcome)
            continue
        caller = replace(CALLER, session=f"{name}-{outcome}-{number}")
        use = load_skill(library, caller, Ref.parse(name))
        report_outcome(library, caller, outcome=outcome, use_id=use.use_id)


def order(library: Library, task: str = "fill my tax forms") -> list[str]:
    return [match.ref for match in find_skill(library, CALLER, task).matches]


@pytest.mark.usefixtures("twins")
@pytest.mark.parametrize("proven", ["forms-a", "forms-b"])
def test_of_two_that_fit_alike_the_one_that_succeeded_comes_first(library: Library, proven: str) -> None:
    used(library, proven, "succeeded", 3)

    assert order(library)[0] == f"skill:{proven}"


@pytest.mark.process
@pytest.mark.usefixtures("twins")
def test_the_share_of_successes_among_the_known_ends_counts(library: Library) -> None:
    used(library, "forms-a", "succeeded", 4)
    used(library, "forms-a", "failed", 6)
    used(library, "forms-b", "succeeded", 2)

    assert order(library)[0] == "skill:forms-b"


@pytest.mark.process
@pytest.mark.usefixtures("twins")
def test_many_successes_are_worth_more_than_one_even_with_a_failure_among_them(library: Library) -> None:
    used(library, "forms-a", "succeeded")
    used(library, "forms-b", "succeeded", 9)
    used(library, "forms-b", "failed")

    assert order(library)[0] == "skill:forms-b"


@pytest.mark.process
@pytest.mark.usefixtures("twins")
@pytest.mark.parametrize("outcome", ["abandoned", "unknown"])
def test_an_end_that_nobody_knows_moves_nothing(library: Library, outcome: str) -> None:
    before = order(library)
    used(library, "forms-b", outcome, 5)
    load_skill(library, CALLER, Ref.parse("forms-b"))

    assert order(library) == before


@pytest.mark.process
@pytest.mark.usefixtures("twins")
def test_proof_does_not_lift_what_fits_less(library: Library, skill: Skill) -> None:
    used(library, "other-0", "succeeded", 20)
    used(library, "forms-a", "failed", 5)
    used(library, "forms-b", "failed", 5)
    task = "fill my tax forms, and then somebody bakes bread"

    assert set(order(library)[:2]) == {"skill:forms-a", "skill:forms-b"}
    assert set(order(library, task)[:2]) == {"skill:forms-a", "skill:forms-b"}


@pytest.mark.usefixtures("twins")
def test_without_any_proof_the_nearer_scope_comes_first(library: Library, skill: Skill) -> None:
    skill("acme/forms-c", description=FORMS)

    assert order(library)[0] == "skill:acme/forms-c"
    used(library, "forms-b", "succeeded")
    assert order(library)[:2] == ["skill:forms-b", "skill:acme/forms-c"]


@pytest.mark.process
@pytest.mark.usefixtures("twins")
def test_who_is_called_by_name_is_not_overtaken(library: Library) -> None:
    used(library, "forms-b", "succeeded", 20)

    assert order(library, "use the forms-a skill to fill my tax forms")[0] == "skill:forms-a"


# The rule itself


def match(id_: int, confidence: float, scope: str = "user", stage: str = "text") -> SearchMatch:
    entry = IndexEntry(id_, Kind.SKILL, scope, f"skill-{id_}", 1, "", (), False, "", "")
    return SearchMatch(entry, confidence, "", stage=stage)


def ids(matches: Sequence[SearchMatch], proven: Sequence[int] = ()) -> list[int]:
    """Returns the order of the matches when these succeeded nine times of ten."""
    proofs = dict.fromkeys(proven, SuccessCounts(10, 9, 10, 9))
    return [one.entry.id for one in break_ties(matches, proofs, ("acme", "user"), FITS)]


def test_what_is_surer_by_more_than_a_tie_is_not_overtaken() -> None:
    assert ids([match(1, 0.8), match(2, 0.8 - TIE + 0.001)], proven=[2]) == [2, 1]
    assert ids([match(1, 0.8), match(2, 0.8 - TIE - 0.001)], proven=[2]) == [1, 2]


def test_many_steps_within_a_tie_do_not_add_up() -> None:
    """Each is within a tie of the next; the last is not of the first."""
    matches = [match(1, 0.8), match(2, 0.77), match(3, 0.74), match(4, 0.71)]

    assert ids(matches, proven=[4]) == [1, 2, 4, 3]


def test_nothing_that_does_not_fit_is_moved() -> None:
    assert ids([match(1, FITS), match(2, FITS - 0.001)], proven=[2]) == [1, 2]
    assert ids([match(1, FITS - 0.01), match(2, FITS - 0.02, "acme")], proven=[2]) == [1, 2]
    assert ids([match(1, FITS + 0.01), match(2, FITS)], proven=[2]) == [2, 1]


@pytest.mark.parametrize("stage", ["judge", "keyword"])
def test_what_a_judge_or_a_name_chose_stays_first(stage: str) -> None:
    matches = [match(1, 0.8, stage=stage), match(2, 0.8), match(3, 0.79)]

    assert ids(matches, proven=[2]) == [1, 2, 3]
    assert ids(matches, proven=[3]) == [1, 3, 2]


def test_what_is_equal_in_everything_keeps_its_order() -> None:
    matches = [match(3, 0.8), match(1, 0.8), match(2, 0.79), match(4, 0.2)]

    assert ids(matches) == ids(matches, proven=[1, 2, 3]) == [3, 1, 2, 4]
    assert ids([]) == []


def test_a_scope_that_nobody_named_is_the_farthest() -> None:
    assert ids([match(1, 0.8, "zoo"), match(2, 0.8, "user"), match(3, 0.8, "acme")]) == [3, 2, 1]


@pytest.mark.parametrize(
    ("successes", "ends", "bound"),
    [(0, 0, 0.0), (1, 1, 0.207), (9, 10, 0.596), (0, 10, 0.0), (5, 10, 0.237), (10, 10, 0.722), (90, 100, 0.826)],
)
def test_the_bound_is_that_of_wilson(successes: int, ends: int, bound: float) -> None:
    assert wilson_lower_bound(successes, ends) == pytest.approx(bound, abs=0.0005)


def test_what_sessions_only_report_is_worth_one_success_at_most_and_takes_nothing_from_what_is_verified() -> None:
    reported, verified = (
        SuccessCounts(ends=50, successes=50),
        SuccessCounts(ends=54, successes=4, verified=4, verified_successes=4),
    )

    assert _bound(reported, capped=False) == CAP
    assert _bound(verified, capped=False) == wilson_lower_bound(4, 4)
    assert _bound(verified, capped=True) == CAP
