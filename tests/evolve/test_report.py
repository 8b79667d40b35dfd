"""The report of a run: the page, the JSON and the text. All figures are simulated."""

import asyncio
import contextlib
import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from evolve_runs import program, running, scripted, task, tasks

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.ledger.run_directory import RunDirectory
from evolvable_evolve.evolution.ledger.run_reducer import fold_records, read_records
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.report.render import WrittenReport, write_report
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_context import RunStopped
from evolvable_evolve.evolution.run_control import read_status
from evolvable_evolve.evolution.task import Rollout, Split, Task
from evolvable_tools.redaction.redactor import Redactor

USEFUL = ("Dates are ISO", ["rule: iso"])
USELESS = ("Say hello", ["Say hello."])
SECTIONS = (
    "curve",
    "lineage",
    "candidates",
    "categories",
    "tasks",
    "resources",
    "bill",
    "gates",
    "provenance",
)


class Page(HTMLParser):
    """What a browser would make of a page: its text, the ids, the tags and where it points."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.said, self.ids, self.tags, self.links = "", list[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [
            value for name, value in attrs if name in ("href", "src", "xlink:href", "action")
        ]

    def handle_data(self, data):
        self.said += data


def _most(n: int) -> bool:
    return n % 4 != 1


def reported(
    place: Path, proposals, *, iterations: int = 2, stop=lambda: False, needs=lambda n: n % 4 != 1
) -> WrittenReport:
    """The report of a run over the usual tasks, of which three in four need a rule."""
    splits = {
        split: [task(split, n, *(["needs:iso"] if needs(n) else [])) for n in range(size)]
        for split, size in ((Split.TRAIN, 12), (Split.VAL, 12), (Split.TEST, 24))
    }
    given = RunSettings("environment:made-up", iterations=iterations, test_repeats=1)
    made = running(place, program(), scripted(proposals), splits, given, stop=stop)
    with made as run, contextlib.suppress(RunStopped):
        asyncio.run(run_phases(run))
    return write_report(RunDirectory(place))


@pytest.fixture(scope="module")
def promoted(tmp_path_factory) -> WrittenReport:
    return reported(tmp_path_factory.mktemp("runs") / "run", [USELESS, USEFUL])


def page_of(said: WrittenReport) -> Page:
    return Page(Path(said.html).read_text(encoding="utf-8"))


@pytest.mark.process
def test_the_verdict_comes_first_with_its_numbers_and_every_figure_says_that_it_is_simulated(
    promoted,
):
    values, page = json.loads(Path(promoted.json).read_text(encoding="utf-8")), page_of(promoted)

    assert values["ruling"] == "PROMOTE" and values["label"] == promoted.label == "simulated"
    low, high = values["verdict"]["interval"]
    for said in (page.said, promoted.text):
        assert values["headline"] in said and "simulated" in said
    assert f"{100 * values['verdict']['delta']:+.1f} points" in values["headline"]
    assert f"{100 * low:+.1f} to {100 * high:+.1f}" in values["headline"]
    assert f"on {values['verdict']['n']} sealed tasks" in values["headline"]
    assert "1st look" in values["headline"]


def test_the_page_needs_nothing_but_itself(promoted):
    page = page_of(promoted)

    assert [name for name in SECTIONS if name not in page.ids] == []
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "@import" not in page.said and "url(" not in page.said


def test_each_candidate_is_told_with_its_change_its_score_and_what_became_of_it(promoted):
    values, page = json.loads(Path(promoted.json).read_text(encoding="utf-8")), page_of(promoted)
    base, first, second = values["tried"]

    assert [one["decision"] for one in (base, first, second)] == ["base", "rejected", "admitted"]
    assert "+rule: iso" in second["diff"] and "+rule: iso" in page.said
    assert second["validation"]["n"] == 24 and second["delta"] == pytest.approx(0.75)
    assert (
        second["validation"]["low"] < second["validation"]["mean"] <= second["validation"]["high"]
    )
    assert len(second["fixed"]) == 18 and first["fixed"] == []
    assert [row["n"] for row in values["heat"]] == [4, 4, 4]
    assert any(not gate["passed"] and gate["candidate"] == "c1" for gate in values["gates"])


def test_tasks_that_changed_stand_with_the_part_that_they_are_of(promoted):
    values = json.loads(Path(promoted.json).read_text(encoding="utf-8"))

    for split in ("train", "val"):
        [line] = re.findall(rf"^Fixed in {split}: (.*)$", promoted.text, re.M)
        assert {name.split("-")[0] for name in line.split(" and ")[0].split(", ")} == {split}
        fixed = [
            flip for flip in values["flips"] if flip["split"] == split and flip["change"] == "fixed"
        ]
        assert f"{split.capitalize()}: {len(fixed)} fixed" in page_of(promoted).said


def test_each_category_shows_its_own_means(tmp_path):
    said = reported(tmp_path / "run", [USELESS], iterations=1, needs=lambda n: n % 3)
    values = json.loads(Path(said.json).read_text(encoding="utf-8"))
    html = Path(said.html).read_text(encoding="utf-8")
    table = html[html.index('id="categories"') :].partition("</table>")[0]
    rows = [
        [float(cell) for cell in re.findall(r'<td class="heat"[^>]*>([0-9.]+)<', row)]
        for row in table.split("<tr>")[2:]
    ]

    assert rows == [[round(mean, 2) for mean in row["means"].values()] for row in values["heat"]]
    assert len({tuple(row) for row in rows}) > 1


def test_the_sealed_test_is_shown_by_its_scores_and_no_report_or_status_names_a_task_of_it(
    promoted,
):
    values = json.loads(Path(promoted.json).read_text(encoding="utf-8"))

    assert {name: arm["n"] for name, arm in values["test"].items()} == {"base": 12, "finalist": 12}
    assert sum(values["test_changes"].values()) == 12 and values["test_changes"]["fixed"] > 8
    assert any(flip["outputs"] for flip in values["flips"] if flip["split"] == "val")
    folder = RunDirectory(Path(promoted.html).parent)
    status = json.dumps(asdict(read_status(folder)))
    for said in (
        promoted.text,
        Path(promoted.html).read_text(),
        Path(promoted.json).read_text(),
        status,
    ):
        assert "val-0" in said or said is status
        assert "test-0" not in said, "what the ledger has, and only a person reads"
    assert "test-0" in folder.ledger.read_text()


def test_a_run_that_is_not_finished_has_a_report_that_claims_nothing(tmp_path):
    looks = iter([False] * 6)
    said = reported(tmp_path / "run", [USEFUL], stop=lambda: next(looks, None) is not False)

    values = json.loads(Path(said.json).read_text(encoding="utf-8"))
    assert values["ruling"] == "" and values["test"] is None
    assert "Nothing is claimed" in values["headline"] and "test is sealed" in said.text
    assert "test sealed" in page_of(said).said


def test_nothing_found_is_told_as_that(tmp_path):
    said = reported(tmp_path / "run", [USELESS], iterations=1)

    assert said.text.splitlines()[1].startswith("NOT SUPPORTED: Nothing was found")
    assert "without a known price" in said.text and "$0.0000" not in said.text


def test_what_a_model_wrote_stays_text(tmp_path):
    hostile = '<script>alert(1)</script><img src=x onerror="alert(2)">&amp;'
    said = reported(tmp_path / "run", [(hostile, [f"{hostile} rule: iso"])], iterations=1)
    raw, page = Path(said.html).read_text(encoding="utf-8"), page_of(said)

    assert {"script", "img"}.isdisjoint(page.tags)
    assert hostile in page.said and not re.search(r"<script|<img", raw)


class _Talkative(SimulatedExecutor):
    """An executor whose outputs hold a token behind so many words that a cut of the output goes
    through it.
    """

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        done = await super().run(task, program, repeat, workspace)
        return replace(
            done, output=f"{done.output} Gudrun {TOKEN} {'and so on ' * 32}{TOKEN}", trace=TOKEN
        )


TOKEN = "ghp_" + "k3Qz" * 9


def test_no_secret_of_an_output_or_a_candidate_is_in_a_report(tmp_path):
    splits = {
        Split.TRAIN: tasks(Split.TRAIN, 8),
        Split.VAL: tasks(Split.VAL, 8),
        Split.TEST: tasks(Split.TEST, 16),
    }
    executor = _Talkative([one for split in splits.values() for one in split])
    base = program(f"Log in with {TOKEN}.", "Ask Gudrun.")
    proposals = scripted([USEFUL])
    settings = RunSettings("environment:made-up", iterations=1, test_repeats=1)
    with running(tmp_path / "run", base, proposals, splits, settings, executor) as run:
        asyncio.run(run_phases(run))
    folder = RunDirectory(tmp_path / "run")

    said, own = (
        write_report(folder),
        write_report(folder, tmp_path / "out", Redactor({"friend": "Gudrun"})),
    )

    state = fold_records(read_records(folder))
    assert TOKEN in folder.ledger.read_text(encoding="utf-8"), "the ledger keeps what was scored"
    assert TOKEN in folder.program(state.base).by_ref["skill:forms"].texts["SKILL.md"]
    for written in (said, own):
        shown = [
            Path(path).read_text(encoding="utf-8") for path in (written.html, written.json)
        ] + [written.text]
        assert not [text for text in shown if TOKEN[:8] in text]
        values = json.loads(shown[1])
        outputs = [output for flip in values["flips"] for output in flip["outputs"]]
        assert len(outputs) == 16 and all(
            one.count("[redacted:github-token]") == 2 for one in outputs
        )
        assert "[redacted:github-token]" in values["tried"][1]["diff"]
    whole = [Path(path).read_text(encoding="utf-8") for path in (own.html, own.json)]
    assert all("[redacted:friend]" in text and "Gudrun" not in text for text in whole)
    assert "Gudrun" in Path(said.html).read_text(encoding="utf-8")


def test_the_report_goes_where_it_is_wanted_and_can_be_made_again(tmp_path):
    reported(tmp_path / "run", [USEFUL], iterations=1)

    first = write_report(RunDirectory(tmp_path / "run"), tmp_path / "out")
    page = Path(first.html).read_bytes()
    again = write_report(RunDirectory(tmp_path / "run"), tmp_path / "out")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "report.json",
    ]
    assert again == first and Path(again.html).read_bytes() == page
