"""The cascade: who is asked when the search is not sure, how often, and what the answer becomes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from model_api import Asked, ModelApi, Reply, asking, chooses, fails, labels
from samples import teach

from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.embedding.embedder import NearestDescription, SimilarResources
from evolvable_tools.found_answers import found_answer
from evolvable_tools.library import Library
from evolvable_tools.retrieval.search_types import SearchDependencies
from evolvable_tools.verbs.load import load_skill, report_outcome
from evolvable_tools.verbs.search import FoundSkills, find_skill

CALLER = Caller(Actor.AGENT)

OFFICE = {
    "pdf-forms": "Fill, merge and split PDF forms.",
    "release-notes": "Write the release notes of a version from its git log.",
    "sql-review": "Review SQL queries and the indexes that they use.",
    "csv-tables": "Clean and summarise CSV tables with pandas.",
    "excel-charts": "Draw charts of tables in Excel.",
    "latex-tables": "Set tables in LaTeX for a paper.",
}

UNSURE = "tables"
"""Two skills are about these, each as much as the other, and one a little."""

PLAIN = "review my SQL queries and the indexes they use"


class Model(ModelApi):
    """A model that chooses the entry of a name, whatever its label is; "none" is an answer too."""

    wanted = "latex-tables"

    def answer(self, asked: Asked) -> Reply:
        shown = labels(json.loads(asked.body["messages"][0]["content"]))
        self.then(chooses(shown.get(self.wanted, "none"), f"{self.wanted} does that"))
        return super().answer(asked)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture
def thinks(model: Model) -> Iterator[SearchDependencies]:
    """Means with a model that judges."""
    with asking(model) as thinker:
        yield SearchDependencies(judge_model=thinker)


@pytest.fixture
def office(library: Library) -> Library:
    for name, description in OFFICE.items():
        teach(library.store, name, description)
    return library


def stages(found: FoundSkills) -> dict[str, str]:
    return {report.stage: report.said for report in found.stages}


# When it is asked


@pytest.mark.parametrize(
    "task",
    ["csv-tables", "csv tables", "use the csv-tables skill", PLAIN, "!?"],
)
def test_no_model_is_asked_what_is_plain(
    office: Library, model: Model, thinks: SearchDependencies, task: str
) -> None:
    found = find_skill(office, CALLER, task, dependencies=thinks)

    assert "judge" not in stages(found) and found.verdict != "choose"
    assert model.asked == []


@pytest.mark.parametrize("mode", ["keyword", "text"])
def test_a_mode_of_one_stage_asks_no_model(
    office: Library, model: Model, thinks: SearchDependencies, mode: str
) -> None:
    find_skill(office, CALLER, UNSURE, mode=mode, dependencies=thinks)

    assert model.asked == []


def test_what_the_model_chose_comes_first(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    alone = find_skill(office, CALLER, UNSURE)
    assert alone.matches[0].ref != "skill:latex-tables"

    found = find_skill(office, CALLER, UNSURE, dependencies=thinks)

    best = found.matches[0]
    assert (best.ref, best.stage, found.verdict) == ("skill:latex-tables", "judge", "sure")
    assert best.why.startswith("latex-tables does that") and best.confidence >= 0.7
    judge = stages(found)["judge"]
    assert "anthropic:claude-haiku-5-5" in judge and "skill:latex-tables" in judge
    assert sorted(m.ref for m in found.matches) == sorted(m.ref for m in alone.matches)
    assert len(model.asked) == 1 and model.shown[0]["task"] == UNSURE


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_as_many_come_back_as_were_asked_for(
    office: Library, thinks: SearchDependencies, limit: int
) -> None:
    found = find_skill(office, CALLER, UNSURE, limit=limit, dependencies=thinks)

    assert (len(found.matches), found.matches[0].ref) == (limit, "skill:latex-tables")


def test_when_the_model_says_none_nothing_fits_and_the_nearest_are_listed(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    model.wanted = "nothing here"

    found = find_skill(office, CALLER, UNSURE, dependencies=thinks)

    assert found.verdict == "none" and found.matches == find_skill(office, CALLER, UNSURE).matches
    judge = stages(found)["judge"]
    assert "anthropic:claude-haiku-5-5" in judge and "none fits" in judge


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_when_the_model_fails_the_answer_stands_and_says_so(office: Library, status: int) -> None:
    alone = find_skill(office, CALLER, UNSURE)
    with ModelApi(fails(status, "not now")) as api, asking(api) as thinker:
        found = find_skill(
            office, CALLER, UNSURE, dependencies=SearchDependencies(judge_model=thinker)
        )

    assert (found.matches, found.verdict) == (alone.matches, alone.verdict)
    assert stages(found)["judge"] and "sk-ant" not in stages(found)["judge"]
    assert len(api.asked) == 1


@pytest.mark.parametrize("task", ["UNSURE", "Formulare ausfüllen und zusammenfügen"])
def test_when_the_model_fails_the_caller_gets_the_choice(office: Library, task: str) -> None:
    task = UNSURE if task == "UNSURE" else task
    alone = find_skill(
        office, replace(CALLER, session="other"), task, dependencies=SearchDependencies()
    )
    with ModelApi(fails(500, "not now")) as api, asking(api) as thinker:
        found = find_skill(
            office, CALLER, task, dependencies=SearchDependencies(judge_model=thinker)
        )

    assert (found.verdict, found.further) == ("choose", alone.further)
    assert found.matches == alone.matches and stages(found)["judge"]


# When nothing fits

FOREIGN = {
    "Formulare ausfüllen und zusammenfügen": "pdf-forms",
    "Neuigkeiten der Fassung zusammentragen": "release-notes",
    "accélérer mes requêtes": "sql-review",
    "nettoyer ce tableau": "csv-tables",
    "faire un joli camembert": "excel-charts",
}


def test_a_task_in_the_language_of_a_library_is_measured_by_its_own_words(library: Library) -> None:
    teach(
        library.store, "rechnung", "Prüft die Rechnungen des Monats und bucht sie auf die Konten."
    )
    teach(
        library.store,
        "urlaub",
        "Plant den Urlaub der Mitarbeiter und trägt ihn in den Kalender ein.",
    )

    found = find_skill(library, CALLER, "bitte eine Rechnung buchen")

    assert [match.name for match in found.matches] == ["rechnung"] and found.verdict != "none"
    assert library.index.search("bitte eine Rechnung").unknown == 0, "no resource says 'invoice'"
    strange = find_skill(library, CALLER, "eine Stimme für das Klavier")
    assert (strange.verdict, strange.matches) == ("choose", []), (
        "words of two languages tell nothing"
    )


@pytest.mark.parametrize(("task", "wanted"), FOREIGN.items())
def test_a_model_chooses_among_all_of_a_small_library_when_no_word_is_known(
    office: Library, model: Model, thinks: SearchDependencies, task: str, wanted: str
) -> None:
    alone = find_skill(office, CALLER, task)
    assert (alone.verdict, len(alone.matches) + len(alone.further)) == ("choose", len(OFFICE))
    model.wanted = wanted

    found = find_skill(office, CALLER, task, dependencies=thinks)

    best = found.matches[0]
    assert (best.ref, best.stage, best.confidence, found.verdict) == (
        f"skill:{wanted}",
        "judge",
        0.7,
        "sure",
    )
    assert len(model.shown[0]["choices"]) == len(OFFICE)


def test_nothing_fits_when_the_model_chooses_none_of_all(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    model.wanted = "nothing here"

    found = find_skill(office, CALLER, "Brot für morgen backen", dependencies=thinks)

    assert (found.verdict, found.matches, len(model.asked)) == ("none", [], 1)


def test_a_model_is_not_asked_what_nothing_is_near_to(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    assert find_skill(office, CALLER, "bake bread", dependencies=thinks).verdict == "none"
    assert model.asked == []


@pytest.mark.parametrize("task", ["accélérer mes requêtes", UNSURE, PLAIN, "bake bread"])
def test_a_caller_gets_the_same_answer_however_often_and_from_whatever_session_it_asks(
    office: Library, task: str
) -> None:
    callers = [
        Caller(Actor.AGENT, name, connection=link)
        for name in ("one", "two", None)
        for link in ("a", "b")
    ]

    answers = [
        found_answer(find_skill(office, caller, task), detail=True)
        for caller in (*callers, *callers)
    ]

    assert all(answer | {"search_id": ""} == answers[0] | {"search_id": ""} for answer in answers)


def test_a_task_in_another_language_is_given_all_of_a_small_library_to_choose_from(
    office: Library,
) -> None:
    answer = found_answer(find_skill(office, CALLER, "accélérer mes requêtes"))

    shown = {choice["ref"]: choice["about"] for choice in answer["choices"]}
    assert shown == {f"skill:{name}": description for name, description in OFFICE.items()}


def test_the_list_of_a_larger_library_has_the_nearest_the_proven_and_those_with_a_word_of_the_task(
    office: Library,
) -> None:
    for number in range(60):
        teach(
            office.store,
            f"other-{number:02}",
            f"Paint the {number}th wall of a house.",
            body="A tableau hangs there.",
        )
    proven, far = (office.store.head(Ref.parse(name)) for name in ("release-notes", "other-59"))
    use = load_skill(office, CALLER, proven.ref).use_id
    report_outcome(office, CALLER, outcome="succeeded", use_id=use)
    means = SearchDependencies(Nearest((far.id,)))

    found = find_skill(office, CALLER, "nettoyer ce tableau en profondeur", dependencies=means)

    assert found.verdict == "choose"
    refs = [choice.ref for choice in (*found.matches, *found.further)]
    assert len(refs) == len(set(refs)) == 36
    assert {"skill:other-59", "skill:release-notes"} <= set(refs)
    assert sum(ref.startswith("skill:other-") for ref in refs) >= 30


# Remembered


def test_the_same_question_is_asked_once(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    first, second = (find_skill(office, CALLER, UNSURE, dependencies=thinks) for _ in range(2))

    assert len(model.asked) == 1
    assert first.matches == second.matches
    assert stages(second)["judge"].endswith("(remembered)")


def test_that_none_fits_is_remembered_too(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    model.wanted = "nothing here"

    assert {find_skill(office, CALLER, UNSURE, dependencies=thinks).verdict for _ in range(2)} == {
        "none"
    }

    assert len(model.asked) == 1


def test_an_answer_is_remembered_by_every_process_of_the_library(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    first = find_skill(office, CALLER, UNSURE, dependencies=thinks)

    with Library.open(office.store.home) as other:
        second = find_skill(other, CALLER, UNSURE, dependencies=thinks)

    assert (first.matches, len(model.asked)) == (second.matches, 1)


def test_a_failure_is_not_remembered(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    with ModelApi(fails(500, "not now")) as api, asking(api) as thinker:
        find_skill(office, CALLER, UNSURE, dependencies=SearchDependencies(judge_model=thinker))

    assert find_skill(office, CALLER, UNSURE, dependencies=thinks).matches[0].stage == "judge"
    assert len(model.asked) == 1


@pytest.mark.parametrize("name", ["csv-tables", "latex-tables"])
def test_a_new_version_of_one_of_the_shortlist_is_asked_about_again(
    office: Library, model: Model, thinks: SearchDependencies, name: str
) -> None:
    find_skill(office, CALLER, UNSURE, dependencies=thinks)

    teach(office.store, name, OFFICE[name], body="A new line.")
    find_skill(office, CALLER, UNSURE, dependencies=thinks)

    assert len(model.asked) == 2


# The caller thinks


def test_a_caller_is_given_the_choice_when_the_search_is_not_sure(office: Library) -> None:
    found = find_skill(office, CALLER, UNSURE)

    assert found.verdict == "choose" and len(found.matches) > 1
    listed = [choice.ref for choice in (*found.matches, *found.further)]
    assert sorted(listed) == sorted(f"skill:{name}" for name in OFFICE)


@pytest.mark.parametrize("task", ["csv-tables", PLAIN, "!?"])
def test_a_caller_is_not_troubled_when_the_search_is_sure(office: Library, task: str) -> None:
    assert find_skill(office, CALLER, task).verdict != "choose"


def test_the_list_has_what_was_added_since_and_comes_again_after_a_load(office: Library) -> None:
    task = next(iter(FOREIGN))
    teach(office.store, "prompt:letters", "Write letters.")

    def listed(kind: Kind = Kind.SKILL) -> list[str]:
        found = find_skill(office, CALLER, task, kind=kind)
        return sorted(choice.ref for choice in (*found.matches, *found.further))

    before = listed()
    load_skill(office, CALLER, Ref.parse("pdf-forms"))
    assert listed() == before and listed(Kind.PROMPT) == listed(Kind.PROMPT) == ["prompt:letters"]
    teach(office.store, "harp-tuning", "Tune a harp.")
    assert listed() == listed() == sorted([*before, "skill:harp-tuning"])


def test_a_model_is_asked_rather_than_the_caller(
    office: Library, thinks: SearchDependencies
) -> None:
    found = find_skill(office, CALLER, UNSURE, dependencies=thinks)

    assert (found.verdict, found.matches[0].stage) == ("sure", "judge")


def test_the_threshold_decides_which_matches_fit(office: Library) -> None:
    best = find_skill(office, CALLER, PLAIN).matches[0].confidence

    def fitting(task: str, fits: float) -> list[str]:
        return [
            match.name
            for match in find_skill(
                office, CALLER, task, dependencies=SearchDependencies(fits=fits)
            ).fitting
        ]

    assert fitting(PLAIN, best) == ["sql-review"] and fitting(PLAIN, best + 0.001) == []
    assert fitting("tables", 0) and fitting(UNSURE, 1) == []
    assert fitting("the sql-review skill", 1) == ["sql-review"], (
        "what is called by its name fits at any threshold"
    )


def test_good_siblings_that_share_the_probability_are_not_told_as_nothing(office: Library) -> None:
    for language in (
        "go",
        "rust",
        "java",
        "ruby",
        "php",
        "swift",
        "kotlin",
        "scala",
        "perl",
        "lua",
        "dart",
        "julia",
    ):
        teach(
            office.store,
            f"{language}-helper",
            f"Deploys {language} services to kubernetes with helm charts.",
        )

    found = find_skill(office, CALLER, "deploy my service")

    assert (
        found.verdict != "none"
        and found.fitting == []
        and found.matches[0].name.endswith("-helper")
    )
    assert {
        find_skill(office, CALLER, "deploy my service", limit=limit).verdict for limit in (1, 3, 20)
    } == {"choose"}
    assert find_skill(office, CALLER, "tell me a joke about bread").verdict == "none"


# The paper's


@dataclass
class Descriptions:
    """A stand-in for the embedder that knows one nearest description."""

    best: tuple[int, float] | None

    def begin(self, task: str) -> "Descriptions":
        return self

    @property
    def trouble(self) -> str:
        return ""

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        return SimilarResources()

    def nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, *, within: float
    ) -> NearestDescription:
        return NearestDescription(self.best, "stand-in", True)


class Nearest(Descriptions):
    """An embedder that knows the nearest resources by their ids, and no cosines."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.best, self.ids = None, ids

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        return SimilarResources({}, self.ids, "stand-in", True)


def test_the_paper_s_stages_follow_each_other_only_until_one_answers(
    office: Library, model: Model, thinks: SearchDependencies
) -> None:
    teach(office.store, "art", "Paints.", triggers="art")
    latex, thinker = office.store.head(Ref.parse("latex-tables")).id, thinks.judge_model

    def asked(task: str, cosine: float) -> tuple[list[str], Any, float]:
        means = SearchDependencies(Descriptions((latex, cosine)), thinker)
        found = find_skill(office, CALLER, task, mode="paper", dependencies=means)
        return list(stages(found)), found.matches[0].ref, found.matches[0].confidence

    assert asked("start the presentation", 0.9) == (["keyword"], "skill:art", 1.0)
    assert asked("set it nicely", 0.6) == (["keyword", "embedding"], "skill:latex-tables", 0.6)
    assert model.asked == []
    assert asked("set it nicely", 0.59) == (
        ["keyword", "embedding", "llm"],
        "skill:latex-tables",
        0.7,
    )
    assert len(model.asked) == 1
    assert len(model.shown[0]["choices"]) == 7


def test_in_the_paper_s_mode_nothing_fits_when_no_stage_answers(office: Library) -> None:
    found = find_skill(office, CALLER, PLAIN, mode="paper")

    assert (found.matches, found.verdict) == ([], "none")
    assert all("skipped" in stages(found)[stage] for stage in ("embedding", "llm"))


# Other kinds


@pytest.mark.parametrize(
    "kind", [Kind.PROMPT, Kind.AGENT, Kind.MEMORY, Kind.TOOL, Kind.ENVIRONMENT]
)
def test_every_kind_is_found_and_judged_the_same_way(
    library: Library, thinks: SearchDependencies, kind: Kind
) -> None:
    for name, description in OFFICE.items():
        teach(library.store, f"{kind}:{name}", description)

    assert find_skill(library, CALLER, PLAIN, kind=kind).matches[0].ref == f"{kind}:sql-review"
    judged = find_skill(library, CALLER, UNSURE, kind=kind, dependencies=thinks).matches[0]
    assert (judged.ref, judged.stage) == (f"{kind}:latex-tables", "judge")
    assert find_skill(library, CALLER, PLAIN).matches == []
