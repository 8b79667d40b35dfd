"""Fusion: what the meaning adds to what the words say, and how sure both are.

The embedder here is a stand-in with cosines by hand; the real one has tests of its own.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from samples import OFFICE

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import Match
from evolvable_tools.embedding.embedder import NearestDescription, SimilarResources
from evolvable_tools.library import Library
from evolvable_tools.retrieval.cascade import CascadeResult, search_cascade
from evolvable_tools.retrieval.hybrid import DEPTH, FAR, confidences, fuse_with_vectors
from evolvable_tools.retrieval.search_types import SearchDependencies, SearchQuery

Skill = Callable[..., Ref]


@dataclass
class StandIn:
    """An embedder that knows the cosines it was given, by name or by id, and answers every task
    with them.
    """

    library: Library
    by_name: Mapping[str, float] = field(default_factory=dict)
    by_id: Mapping[int, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    learned: Mapping[str, float] = field(default_factory=dict)
    said: str = "stand-in, all embedded"
    available: bool = True

    def begin(self, task: str) -> "StandIn":
        return self

    @property
    def trouble(self) -> str:
        return self.said if not self.available else ""

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        if not self.available:
            return SimilarResources(said=self.said)
        cosines = dict(self.by_id)
        for name, cosine in self.by_name.items():
            cosines[self.library.store.head(Ref.parse(name)).id] = cosine
        nearest = sorted(cosines, key=lambda id_: -cosines[id_])[:limit]
        late, learned = (
            {self.library.store.head(Ref.parse(name)).id: near for name, near in its.items()}
            for its in (self.late, self.learned)
        )
        known = {id_: cosines[id_] for id_ in cosines if id_ in {*ids, *nearest}}
        return SimilarResources(known, tuple(nearest), self.said, True, late, learned)

    def nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, *, within: float | None = None
    ) -> NearestDescription:
        return NearestDescription(said=self.said)


def refs(found: CascadeResult) -> list[str]:
    return [match.ref for match in found.matches]


def of(found: CascadeResult, ref: str) -> Match:
    (match,) = (match for match in found.matches if match.ref == ref)
    return match


def said(found: CascadeResult, stage: str) -> str:
    (report,) = (report for report in found.stages if report.stage == stage)
    return report.said


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    "task", ["fill a PDF form", "write the report of a release", "quantum chromodynamics", "the"]
)
def test_an_embedder_that_cannot_answer_changes_nothing_and_says_why(
    library: Library, task: str
) -> None:
    cold = StandIn(library, said="embedder is warming up", available=False)

    alone, found = (
        search_cascade(library.index, task),
        search_cascade(library.index, task, dependencies=SearchDependencies(cold)),
    )

    assert (found.matches, found.verdict) == (alone.matches, alone.verdict)
    assert [report.stage for report in found.stages] == ["keyword", "text", "embedding"]
    assert said(found, "embedding") == "embedder is warming up"


@pytest.mark.usefixtures("office")
def test_what_words_do_not_find_is_found_by_its_meaning(library: Library) -> None:
    task = "ship our containers into the cluster"
    assert "skill:helm-deploy" not in refs(search_cascade(library.index, task))
    near = StandIn(library, {"helm-deploy": 0.7, "csv-tables": 0.02})

    found = search_cascade(library.index, task, dependencies=SearchDependencies(near))

    best = found.matches[0]
    assert (best.ref, best.stage) == ("skill:helm-deploy", "embedding")
    assert "meaning: cosine 0.70" in best.why
    assert said(found, "embedding") == "stand-in, all embedded"


@pytest.mark.usefixtures("office")
def test_what_words_found_keeps_its_stage_and_says_its_cosine_too(library: Library) -> None:
    near = StandIn(library, dict.fromkeys(OFFICE, 0.1) | {"pdf-forms": 0.6})

    best = search_cascade(
        library.index,
        "what to do with this form from the office, please",
        dependencies=SearchDependencies(near),
    ).matches[0]

    assert (best.ref, best.stage) == ("skill:pdf-forms", "text")
    assert "words: " in best.why and best.why.endswith("meaning: cosine 0.60")


@pytest.mark.usefixtures("office")
def test_words_that_are_sure_do_not_wait_for_the_meaning(library: Library) -> None:
    near = StandIn(library, {"helm-deploy": 0.9})

    alone, found = (
        search_cascade(library.index, "fill a PDF form"),
        search_cascade(library.index, "fill a PDF form", dependencies=SearchDependencies(near)),
    )

    assert found.matches == alone.matches and found.verdict != "none"
    assert said(found, "embedding").startswith("not waited for")


@pytest.mark.usefixtures("office")
def test_meaning_decides_between_two_that_words_find_alike(library: Library, skill: Skill) -> None:
    skill("forms-a", description="Handles tax forms of companies.")
    skill("forms-b", description="Handles tax forms of people.")
    for best, other in (("forms-a", "forms-b"), ("forms-b", "forms-a")):
        near = StandIn(library, {best: 0.8, other: 0.2})
        assert refs(
            search_cascade(library.index, "handle tax forms", dependencies=SearchDependencies(near))
        )[:2] == [
            f"skill:{best}",
            f"skill:{other}",
        ]


@pytest.mark.usefixtures("office")
def test_a_resource_without_a_vector_is_not_thrown_out(library: Library) -> None:
    others = {name: 0.2 for name in OFFICE if name != "pdf-forms"}
    task = "fill a PDF form of the release with SQL and CSV tables"
    alone = search_cascade(library.index, task)
    assert alone.matches[0].ref == "skill:pdf-forms"

    found = search_cascade(
        library.index, task, dependencies=SearchDependencies(StandIn(library, others))
    )

    assert refs(found)[0] == "skill:pdf-forms"
    assert "cosine" not in of(found, "skill:pdf-forms").why


@pytest.mark.usefixtures("office")
def test_a_resource_without_a_vector_is_taken_for_as_near_as_the_others(
    library: Library, skill: Skill
) -> None:
    skill("newcomer", description="Handles tax forms of companies.")
    skill("known", description="Handles tax forms of people.")
    others = dict.fromkeys(OFFICE, 0.85) | {"known": 0.9}

    found = search_cascade(
        library.index,
        "handle tax forms of companies",
        dependencies=SearchDependencies(StandIn(library, others)),
    )

    assert refs(found)[:2] == ["skill:newcomer", "skill:known"]


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize("seed", range(5))
def test_how_sure_it_is_does_not_change_the_order(library: Library, seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample(sorted(OFFICE), 4)
    near = StandIn(library, {name: chance.uniform(-0.1, 0.9) for name in names})
    query = SearchQuery(
        "review the sql and pdf tables of the release with helm", Kind.SKILL, None, 10
    )
    ranking = library.index.search(query.task, kind=query.kind, limit=query.limit, depth=DEPTH)

    fused = fuse_with_vectors(library.index, query, ranking, near)

    sure = confidences(fused)
    assert list(sure) == sorted(sure, reverse=True)
    found = search_cascade(
        library.index, query.task, limit=10, dependencies=SearchDependencies(near)
    )
    assert refs(found) == [str(hit.entry.ref) for hit in fused.hits]


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize(
    "cosines", [{}, {"pdf-forms": 1.0}, dict.fromkeys(OFFICE, 1.0), dict.fromkeys(OFFICE, -1.0)]
)
@pytest.mark.parametrize(
    "task", ["review the sql and pdf tables of the release with helm", "quantum", "the of and"]
)
def test_confidences_are_shares_and_fall_with_the_order(
    library: Library, task: str, cosines: dict[str, float]
) -> None:
    for means in (SearchDependencies(), SearchDependencies(StandIn(library, cosines))):
        confidences = [
            match.confidence
            for match in search_cascade(library.index, task, limit=20, dependencies=means).matches
        ]
        assert confidences == sorted(confidences, reverse=True)
        assert all(0 <= confidence <= 1 for confidence in confidences)


@pytest.mark.usefixtures("office")
def test_what_is_near_but_may_not_be_seen_is_not_answered(library: Library, skill: Skill) -> None:
    """The embedder may be behind the library, or be asked by a caller who sees less."""
    skill("acme/secret", description="Only of a project.")
    with library.store.transaction(Actor.HUMAN, "x") as tx:
        tx.put(Ref.parse("prompt:hello"), {"PROMPT.md": _file("hello")})
        tx.put(Ref.parse("gone"), {"SKILL.md": _file("gone")})
    heads = [library.store.head(Ref.parse(ref)) for ref in ("acme/secret", "prompt:hello", "gone")]
    with library.store.transaction(Actor.HUMAN, "x") as tx:
        tx.remove(Ref.parse("gone"))
    strangers = {head.id: 0.99 for head in heads} | {999_999: 0.99, -1: 0.9}
    near = StandIn(library, {"csv-tables": 0.5}, strangers)

    found = search_cascade(
        library.index,
        "something else entirely",
        scopes=("user",),
        limit=50,
        dependencies=SearchDependencies(near),
    )

    assert refs(found) == ["skill:csv-tables"]


def _file(text: str) -> File:
    return File(f"---\nname: {text}\ndescription: {text}\n---\n".encode())


@pytest.mark.usefixtures("office")
def test_a_user_s_resource_that_a_project_s_hides_is_not_brought_back_by_its_meaning(
    library: Library, skill: Skill
) -> None:
    skill("acme/csv-tables", description="Tables of Acme.")
    hidden = library.store.head(Ref.parse("csv-tables")).id
    near = StandIn(library, {"acme/csv-tables": 0.3}, {hidden: 0.9})

    found = search_cascade(
        library.index,
        "something else entirely",
        scopes=("acme", "user"),
        dependencies=SearchDependencies(near),
    )

    assert refs(found) == ["skill:acme/csv-tables"]


@pytest.fixture
def thirty(skill: Skill, office: Mapping[str, str]) -> Iterator[None]:
    subjects = "roses tyres pianos bread sails bees clocks wine cheese horses stamps kites"
    verbs = ("Restores old", "Sells rare")
    for verb in verbs:
        for subject in subjects.split():
            skill(
                f"{verb.split()[0].lower()}-{subject}",
                description=f"{verb} {subject} for collectors.",
            )
    yield


@pytest.mark.process
@pytest.mark.usefixtures("thirty")
@pytest.mark.parametrize("cosines", [None, {"pdf-forms": 0.6, "pdf-forms-copy": 0.6}])
def test_an_exact_copy_of_the_right_skill_does_not_make_the_library_doubt(
    library: Library, skill: Skill, cosines: dict[str, float] | None
) -> None:
    skill("pdf-forms-copy", description=OFFICE["pdf-forms"])
    means = (
        SearchDependencies(StandIn(library, dict.fromkeys(OFFICE, 0.1) | cosines))
        if cosines
        else SearchDependencies()
    )

    found = search_cascade(library.index, "fill the forms of a PDF", dependencies=means)

    assert set(refs(found)[:2]) == {"skill:pdf-forms", "skill:pdf-forms-copy"}
    assert found.verdict != "none"


@pytest.mark.usefixtures("office")
def test_a_meaning_far_away_does_not_make_anything_fit(library: Library) -> None:
    far = StandIn(library, dict.fromkeys(OFFICE, 0.05))

    assert (
        search_cascade(
            library.index, "bake sourdough bread with rye", dependencies=SearchDependencies(far)
        ).verdict
        == "none"
    )


@pytest.mark.usefixtures("office")
@pytest.mark.parametrize("mode", ["text", "keyword"])
def test_a_mode_of_one_stage_does_not_ask_the_embedder(library: Library, mode: str) -> None:
    near = StandIn(library, dict.fromkeys(OFFICE, 0.9))

    found = search_cascade(
        library.index, "fill a PDF form", mode=mode, dependencies=SearchDependencies(near)
    )

    assert [report.stage for report in found.stages] == [mode]
    assert found.matches == search_cascade(library.index, "fill a PDF form", mode=mode).matches


def test_an_empty_library_is_asked_without_trouble(library: Library) -> None:
    found = search_cascade(
        library.index, "anything", dependencies=SearchDependencies(StandIn(library))
    )

    assert (found.matches, found.verdict) == ((), "none")


# Late interaction


SIBLINGS = {
    "ship-web": "Ships the web application to customers.",
    "ship-app": "Ships the mobile application to customers.",
    "ship-api": "Ships the programming interface to customers.",
    "bake": "Bakes bread.",
}


@pytest.fixture
def siblings(library: Library, skill: Skill) -> Library:
    for name, description in SIBLINGS.items():
        skill(name, description=description)
    return library


def test_siblings_that_words_do_not_tell_apart_are_ordered_by_late_interaction(
    siblings: Library,
) -> None:
    near = StandIn(
        siblings,
        dict.fromkeys(SIBLINGS, 0.5),
        late={"ship-api": 0.9, "ship-app": 0.5, "ship-web": 0.4},
    )

    found = search_cascade(
        siblings.index, "ships to our customers", dependencies=SearchDependencies(near)
    )

    assert refs(found)[:3] == ["skill:ship-api", "skill:ship-app", "skill:ship-web"]


def test_siblings_are_distinguished_by_their_own_words_beside_an_embedder_too(
    library: Library, skill: Skill
) -> None:
    shared = "Manage, list and inspect with the acme command what Acme Cloud has of"
    for name in ("storage", "network", "functions", "secrets", "images"):
        skill(f"acme-{name}", description=f"{shared} {name}.")
    skill("acme-start", "Queues. " * 4, description=f"{shared}.")
    skill("acme-queues", "Long text on other things. " * 60, description=f"{shared} queues.")
    query = SearchQuery("show what our acme cloud queues cost", Kind.SKILL, None, 10)
    ranking = library.index.search(query.task, kind=query.kind, limit=query.limit, depth=DEPTH)
    names = [hit.entry.name for hit in ranking.scored]
    assert names[0] == "acme-start"

    fused = fuse_with_vectors(
        library.index, query, ranking, StandIn(library, dict.fromkeys(names, 0.5))
    )

    assert [hit.entry.name for hit in fused.hits[:2]] == ["acme-queues", "acme-start"]


def test_late_interaction_changes_the_order_and_no_confidence_of_a_place(siblings: Library) -> None:
    cosines = dict.fromkeys(SIBLINGS, 0.5)
    plain, near = (
        StandIn(siblings, cosines),
        StandIn(siblings, cosines, late={"ship-api": 0.9, "ship-web": 0.4}),
    )

    before, after = (
        search_cascade(
            siblings.index, "ships to our customers", dependencies=SearchDependencies(one)
        )
        for one in (plain, near)
    )

    assert [match.confidence for match in after.matches] == [
        match.confidence for match in before.matches
    ]
    assert sorted(refs(after)) == sorted(refs(before))


def test_one_text_alone_is_not_reordered_and_a_text_without_tokens_keeps_its_place(
    siblings: Library,
) -> None:
    cosines = dict.fromkeys(SIBLINGS, 0.5)
    plain, one = StandIn(siblings, cosines), StandIn(siblings, cosines, late={"bake": 1.0})

    before, after = (
        search_cascade(
            siblings.index, "ships to our customers", dependencies=SearchDependencies(it)
        )
        for it in (plain, one)
    )

    assert refs(after) == refs(before)


def test_a_text_that_words_rank_far_behind_is_not_raised_by_late_interaction(
    siblings: Library,
) -> None:
    far = StandIn(siblings, dict.fromkeys(SIBLINGS, 0.5), late={"bake": 0.6, "ship-web": 0.5})

    found = search_cascade(
        siblings.index, "ships the web application", dependencies=SearchDependencies(far)
    )

    assert refs(found)[0] == "skill:ship-web"


# Learned tasks by their vectors


def test_of_siblings_the_one_with_a_learned_task_near_this_one_comes_first(
    siblings: Library,
) -> None:
    late = dict.fromkeys(SIBLINGS, 0.5)
    plain = StandIn(siblings, late, late=late)
    used = StandIn(siblings, late, late=late, learned={"ship-api": 0.9, "ship-app": 0.5})

    before, after = (
        search_cascade(
            siblings.index, "ships to our customers", dependencies=SearchDependencies(it)
        )
        for it in (plain, used)
    )

    assert refs(after)[:3] == ["skill:ship-api", "skill:ship-app", "skill:ship-web"]
    assert [match.confidence for match in after.matches] == [
        match.confidence for match in before.matches
    ]


def test_the_reason_says_that_a_learned_task_is_near_and_how_many_places_it_is_worth(
    siblings: Library,
) -> None:
    late = {"ship-web": 0.5, "ship-app": 0.4, "ship-api": 0.3}
    used = StandIn(
        siblings,
        dict.fromkeys(SIBLINGS, 0.5),
        late=late,
        learned={"ship-api": 0.9, "ship-web": 0.31},
    )

    found = search_cascade(
        siblings.index, "ships to our customers", dependencies=SearchDependencies(used)
    )

    assert refs(found)[:3] == ["skill:ship-api", "skill:ship-web", "skill:ship-app"]
    assert of(found, "skill:ship-api").why.endswith("near by 0.90, 2 places up")
    assert of(found, "skill:ship-web").why.endswith("; learned task: near by 0.31")
    assert "learned task" not in of(found, "skill:ship-app").why


def test_the_reason_names_no_learned_task_that_took_no_part(siblings: Library) -> None:
    late = dict.fromkeys(SIBLINGS, 0.5)
    used = StandIn(siblings, late, late=late, learned={"ship-api": FAR})

    found = search_cascade(
        siblings.index, "ships to our customers", dependencies=SearchDependencies(used)
    )

    assert not any("learned task" in match.why for match in found.matches)


def test_a_learned_task_that_is_far_changes_nothing(siblings: Library) -> None:
    late = dict.fromkeys(SIBLINGS, 0.5)
    plain, used = (
        StandIn(siblings, late, late=late),
        StandIn(siblings, late, late=late, learned={"ship-api": FAR}),
    )

    before, after = (
        search_cascade(
            siblings.index, "ships to our customers", dependencies=SearchDependencies(it)
        )
        for it in (plain, used)
    )

    assert refs(after) == refs(before)


def test_a_text_that_words_rank_far_behind_is_not_raised_by_a_learned_task(
    siblings: Library,
) -> None:
    late = dict.fromkeys(SIBLINGS, 0.5)
    used = StandIn(siblings, late, late=late, learned={"bake": 0.6})

    found = search_cascade(
        siblings.index, "ships the web application", dependencies=SearchDependencies(used)
    )

    assert refs(found)[0] == "skill:ship-web"
