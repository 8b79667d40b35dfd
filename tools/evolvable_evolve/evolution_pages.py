"""Evolution: the runs of the library, and one run live from its ledger; stop it, or adopt what it
promoted.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import htpy as h
from htpy import Node

from evolvable_evolve import evolution
from evolvable_evolve.agents_page import draw_agents_run
from evolvable_evolve.evolution import (
    RunStatus,
    find_run,
    list_statuses,
    read_status,
)
from evolvable_evolve.learning_overview import draw_learning
from evolvable_evolve.promoted_runs import draw_promoted
from evolvable_evolve.waiting_tries import find_waiting_try
from evolvable_server.page_kit import PageForm, PageKit, PageParts, PageSite
from evolvable_store.errors import InvalidArgument
from evolvable_tools.redaction import Redactor

if TYPE_CHECKING:
    from evolvable_evolve.evolution import (
        AdoptionPreview,
        BlindPair,
        CandidateFacts,
        MeanInterval,
        RunDirectory,
        RunFacts,
        TryResult,
    )

RUNS = 20
"""Runs that are listed, the newest first."""

EVENTS = 30
"""Events that are shown of a run, the newest first."""

_STATES = {"running": "good", "waiting": "doubtful", "interrupted": "bad"}
_VERDICTS = {
    "PROMOTE": "good",
    "HARMFUL": "bad",
    "DISQUALIFIED": "bad",
    "helps": "good",
    "harms": "bad",
}


class EvolutionPages:
    """What evolution adds to the local page. page: what pages are drawn with."""

    def __init__(self, page: PageKit) -> None:
        self._page = page

    def parts(self) -> PageParts:
        """Return the views, the actions, and what waits in the inbox."""
        page = self._page
        views = (
            page.PageView("/evolution", self._evolution),
            page.PageView("/evolution/{run}", self._run),
            page.PageView("/evolution/{run}/adopt", self._adoption),
            page.PageView("/agents/{run}", partial(draw_agents_run, page)),
        )
        actions = (
            page.PageAction("evolve adopt", self._adopt),
            page.PageAction("evolve stop", self._stop),
            page.PageAction("evolve continue", self._begin),
        )
        section = ("evolution", "/evolution", "Evolution")
        return PageParts(
            views, actions, section, partial(draw_promoted, page), partial(draw_learning, page)
        )

    def _evolution(self, site: PageSite, request: PageForm) -> Any:
        """List the runs of the library."""
        runs = list_statuses(site.library.store.home, RUNS)
        rows = [
            [
                h.a(href=f"/evolution/{status.run}")[status.run],
                self._page.tag(status.state, _STATES.get(status.state, "")),
                self._page.tag(status.verdict, _VERDICTS.get(status.verdict, ""))
                if status.verdict
                else status.phase,
                status.label,
                f"{status.spent.get('trials', 0):,}",
                f"{status.spent.get('tokens', 0):,}",
                self._page.make_visible(status.why),
            ]
            for status in runs
        ]
        heads = ("run", "state", "verdict", "figures", "trials", "tokens", "why")
        none = h.p[
            self._page.with_code(
                "No run yet. `evolvable evolve start` starts one on a task set of yours."
            )
        ]
        listing = self._page.table(heads, rows, "Runs, newest first") if rows else none
        return self._page.PageBody(
            "Evolution", [h.h1["Evolution"], h.div(id="runs", data_live=True)[listing]], "evolution"
        )

    def _run(self, site: PageSite, request: PageForm) -> Any:
        """Show one run: its state, its figures so far, its events."""
        folder = find_run(site.library.store.home, str(request.path["run"]))
        seen = folder.ledger.stat()
        found = site.value(
            f"run {folder.id}",
            lambda: _read(folder, site.library.redactor()),
            (seen.st_size, seen.st_mtime_ns),
        )
        if found is None:
            waits = h.div(id="run", data_live=True)[
                h.p["The ledger is being read; this page shows it by itself."]
            ]
            return self._page.PageBody(
                f"Run {folder.id}",
                [h.h1["Run ", h.code[folder.id]], waits],
                "evolution",
            )
        status, facts = found
        tried = evolution.read_try(site.library.store.home, folder.id)
        live = h.div(id="run", data_live=True)[
            h.p[
                self._page.tag(status.state, _STATES.get(status.state, "")),
                " ",
                self._page.tag(status.verdict, _VERDICTS.get(status.verdict, ""))
                if status.verdict
                else status.phase,
                " ",
                self._page.make_visible(status.line),
            ],
            h.p(".warning")[self._page.make_visible(status.why)] if status.why else None,
            [h.p(".warning")[self._page.make_visible(text)] for text in facts.warnings],
            *(self._rest(facts) if tried is None else self._draw_try_result(tried)),
            h.h2["What it took"],
            self._bill(facts),
            self._events(status),
        ]
        title = h.h1["Run ", h.code[status.run], " ", self._page.tag(status.label)]
        main = [
            self._page.operation_note(site, request),
            title,
            self._controls(site, request, status),
            live,
        ]
        return self._page.PageBody(f"Run {status.run}", main, "evolution")

    def _rest(self, facts: "RunFacts") -> list[Node]:
        """Return the results of a search or a measurement: the sealed test, validation, and
        candidates.
        """
        return [
            self._draw_sealed_test(facts),
            h.h2["Fitness in validation"],
            h.p(".none")[
                "Square: base. Dot: admitted. Cross: not kept. Ring: indecisive. Star: sealed "
                "test. Bars: 95 %."
            ],
            h.div(".chart")[evolution.draw_curve(facts, "iterations")] if facts.tried else None,
            self._heat(facts),
            h.h2["Lineage"],
            h.div(".chart")[evolution.draw_lineage(facts)] if facts.tried else None,
            self._candidates(facts.tried),
        ]

    def _draw_try_result(self, tried: "TryResult") -> list[Node]:
        """Return the answer of a trial of skills, and the answers of both arms side by side."""
        nodes: list[Node] = [h.p[self._page.make_visible(skill.sentence)] for skill in tried.skills]
        for skill in tried.skills:
            rows = [
                [
                    self._page.make_visible(task_answers.prompt[:200]),
                    _score(task_answers.score_without),
                    _score(task_answers.score_with),
                    [
                        self._changed_words(kind, text)
                        for kind, text in evolution.word_changes(
                            task_answers.without, task_answers.with_skill
                        )
                    ],
                ]
                for task_answers in skill.answers
            ]
            heads = (
                "task",
                "without",
                f"with {skill.skill}",
                "answers: removed words are without, added ones with it",
            )
            nodes.append(self._page.table(heads, rows, "Answers side by side"))
        left = [
            h.li[f"{self._page.make_visible(task)}: {why}"] for task, why in tried.left_out.items()
        ]
        return [*nodes, [h.h2["Left out"], h.ul[left]] if left else None]

    def _changed_words(self, kind: str, text: str) -> Node:
        words = self._page.make_visible(text)
        return [
            h.del_[words] if kind == "-" else h.ins[words] if kind == "+" else words,
            " ",
        ]

    def _draw_sealed_test(self, facts: "RunFacts") -> Node:
        rows = [
            [name.replace("_", "-"), _mean(interval)]
            for name, interval in (facts.test or {}).items()
        ]
        if not rows:
            return h.p["The test is sealed."]
        return [
            h.h2["Sealed test"],
            self._page.table(("arm", "mean"), rows, f"Every figure is {facts.label}"),
        ]

    def _heat(self, facts: "RunFacts") -> Node:
        """Return the mean of each candidate by category.

        The number is in each cell, the shade only helps.
        """
        names = [
            candidate.name
            for candidate in facts.tried
            if any(candidate.name in row.means for row in facts.heat)
        ]
        if not names:
            return None

        def cell(mean: float | None) -> Node:
            if mean is None:
                return h.td["-"]
            return h.td(class_=f"heat heat-{round(10 * mean)}")[f"{mean:.2f}"]

        rows = [
            h.tr[
                h.th(scope="row")[
                    f"{self._page.make_visible(row.category) or '(none)'} (n = {row.n})"
                ],
                [cell(row.means.get(name)) for name in names],
            ]
            for row in facts.heat
        ]
        heads = h.tr[h.th(scope="col")["category"], [h.th(scope="col")[name] for name in names]]
        return [
            h.h2["Categories"],
            h.div(".wide", tabindex="0", role="region", aria_label="Scores by category")[
                h.table[h.thead[heads], h.tbody[rows]]
            ],
        ]

    def _candidates(self, tried: "Sequence[CandidateFacts]") -> Node:
        return [
            h.details[
                h.summary[
                    h.strong[candidate.name],
                    " ",
                    self._page.tag(
                        str(candidate.decision), "good" if candidate.decision == "admitted" else ""
                    ),
                    f" {_mean(candidate.validation)}",
                    ""
                    if candidate.delta is None or not candidate.parents
                    else f", {100 * candidate.delta:+.1f} points",
                ],
                h.p[self._page.make_visible(candidate.summary)] if candidate.summary else None,
                h.p(".none")[self._page.make_visible(candidate.reason)]
                if candidate.reason
                else None,
                [
                    h.p(".warning")[self._page.make_visible(finding)]
                    for finding in candidate.findings
                ],
                self._page.draw_diff(candidate.diff) if candidate.diff else None,
            ]
            for candidate in tried
        ]

    def _bill(self, facts: "RunFacts") -> Any:
        heads = ("for", "trials", "cached", "calls", "tokens", "cost")
        rows = [
            [
                name.replace("role:", ""),
                *(f"{spent.get(key, 0):,}" for key in ("trials", "cached", "calls", "tokens")),
                f"${spent['cost']:.4f}" if not spent.get("unpriced") else "no known price",
            ]
            for name, spent in [*facts.spent.items(), ("all", facts.bill)]
        ]
        return self._page.table(heads, rows, "Spending")

    def _events(self, status: RunStatus) -> Node:
        rows = [
            [
                str(event.number),
                self._page.when(event.at),
                self._page.make_visible(event.what),
            ]
            for event in reversed(status.events[-EVENTS:])
        ]
        return [
            h.h2["Events"],
            self._page.table(("record", "when", "what"), rows, "Newest first") if rows else None,
        ]

    def _controls(self, site: PageSite, request: PageForm, status: RunStatus) -> Any:
        csrf, fields = request.session.csrf, {"run": status.run}
        if waiting := find_waiting_try(site.library, status.run):
            begin = h.button(".good", type="submit")["Begin this trial"]
            lines = [h.p[self._page.make_visible(line)] for line in waiting.text.splitlines()]
            return [
                lines,
                self._page.form(
                    csrf, self._page.action_path("evolve continue"), begin, fields=fields
                ),
            ]
        if status.state in ("running", "waiting"):
            stop = h.button(type="submit")["Stop this run"]
            return self._page.form(csrf, self._page.action_path("evolve stop"), stop, fields=fields)
        if status.adoptable:
            return h.p[h.a(href=f"/evolution/{status.run}/adopt")["See what would be adopted"]]
        return None

    def _adoption(self, site: PageSite, request: PageForm) -> Any:
        """Show all of what an adoption makes live, before it is asked for."""
        run = str(request.path["run"])
        preview = evolution.preview_adoption(site.library.store.home, run)
        # Before the preview is drawn: its difference would tell which answer is whose.
        if pairs := evolution.draw_blind_pairs(site.library, site.caller, run):
            return self._comparison(request, preview.run, pairs)
        lists = (("It can do now", preview.capabilities), ("The scan found", preview.findings))
        button = h.button(".good", type="submit")["Make this live"]
        fields = {"run": preview.run, "candidate": preview.candidate}
        return self._page.PageBody(
            f"Adopt run {run}",
            [
                h.h1["Adopt run ", h.code[preview.run]],
                h.p[
                    self._page.tag(preview.verdict, _VERDICTS.get(preview.verdict, "")),
                    f" [{preview.label}] ",
                    self._page.make_visible(preview.why),
                ],
                [
                    [
                        h.h2[what],
                        h.ul[[h.li[self._page.make_visible(str(row))] for row in rows]]
                        if rows
                        else h.p["Nothing new."],
                    ]
                    for what, rows in lists
                ],
                h.h2["Difference"],
                self._page.draw_diff(preview.diff),
                self._page.form(
                    request.session.csrf,
                    self._page.action_path("evolve adopt"),
                    self._doubt(preview),
                    h.label[
                        "Reason ",
                        h.input(type="text", name="reason", maxlength="2000", autocomplete="off"),
                    ],
                    self._page.passphrase_field(site.passphrase_label),
                    button,
                    fields=fields,
                ),
            ],
            "evolution",
        )

    def _adopt(self, site: PageSite, request: PageForm) -> str:
        run = find_run(site.library.store.home, request.get("run")).id
        if request.get("pairs"):
            return self._compare(site, request, run)
        # The run may have gone on since the page was drawn.
        if evolution.preview_adoption(site.library.store.home, run).candidate != request.get(
            "candidate"
        ):
            raise InvalidArgument("The run has another finalist than you saw.", "Look at it again.")
        base_preferred = request.get("base_preferred") == "1"
        adopted = evolution.adopt(
            site.library,
            site.decider(request),
            run,
            request.get("reason"),
            base_preferred=base_preferred,
        )
        return f"/evolution/{run}?operation={adopted.operation}"

    def _comparison(self, request: PageForm, run: str, pairs: "Sequence[BlindPair]") -> Any:
        """Return the answers without names, before the difference is shown: that would tell them
        apart.
        """
        fieldsets = [
            h.fieldset(".part")[
                h.legend[
                    f"{number} of {len(pairs)}: ", self._page.make_visible(pair.prompt or pair.task)
                ],
                [
                    [h.h3[f"Answer {which}"], h.pre[self._page.make_visible(text)]]
                    for which, text in (("1", pair.first), ("2", pair.second))
                ],
                [
                    h.label[
                        h.input(type="radio", name=f"pair{number}", value=value, required=True),
                        f" {words} ",
                    ]
                    for value, words in (
                        ("1", "1 is better"),
                        ("2", "2 is better"),
                        ("=", "no difference"),
                    )
                ],
            ]
            for number, pair in enumerate(pairs, 1)
        ]
        body = [
            h.h1["Adopt run ", h.code[run]],
            h.p[
                "A judge scored these answers. Compare them before you see which program "
                "gave which."
            ],
            self._page.form(
                request.session.csrf,
                self._page.action_path("evolve adopt"),
                fieldsets,
                h.button(".good", type="submit")["Go on"],
                fields={"run": run, "pairs": _pairs_digest(pairs)},
            ),
        ]
        return self._page.PageBody(f"Adopt run {run}", body, "evolution")

    def _compare(self, site: PageSite, request: PageForm, run: str) -> str:
        """Record what the person preferred, once, and go on to what would be adopted."""
        pairs = evolution.draw_blind_pairs(site.library, site.caller, run)
        if pairs and _pairs_digest(pairs) != request.get("pairs"):
            raise InvalidArgument("The run has other answers than you saw.", "Compare them again.")
        choices = [request.get(f"pair{number}") for number in range(1, len(pairs) + 1)]
        if not all(choice in ("1", "2", "=") for choice in choices):
            raise InvalidArgument("A pair has no choice.", "Choose one of the three for each pair.")
        if pairs:
            evolution.record_preferences(site.library, site.caller, run, pairs, choices)
        return f"/evolution/{run}/adopt"

    def _doubt(self, preview: "AdoptionPreview") -> Node:
        """Return the preferences of the person, with a box to tick where they speak against the
        adoption.
        """
        if preview.preferences is None:
            return None
        if not preview.preferences.doubtful:
            return h.p[f"{preview.preferences}."]
        return [
            h.p(".warning")[f"{preview.preferences}: the judge may like what you do not."],
            h.label[
                h.input(type="checkbox", name="base_preferred", value="1", required=True),
                " Make it live all the same",
            ],
        ]

    def _begin(self, site: PageSite, request: PageForm) -> str:
        """Begin a trial that waits.

        Raise InvalidArgument for any other run: what it may spend was not shown.
        """
        if (waiting := find_waiting_try(site.library, request.get("run"))) is None:
            raise InvalidArgument("This run does not wait to be begun.", "Look at it again.")
        site.decider(request)
        waiting.begin(site.config)
        return f"/evolution/{waiting.run}"

    def _stop(self, site: PageSite, request: PageForm) -> str:
        return f"/evolution/{evolution.stop_run(site.library.store.home, request.get('run')).run}"


def _read(folder: "RunDirectory", redactor: Redactor) -> "tuple[RunStatus, RunFacts]":
    records = evolution.read_records(folder)
    return read_status(folder), evolution.collect_facts(
        folder, evolution.fold_records(records), records, redactor
    )


def _pairs_digest(pairs: "Sequence[BlindPair]") -> str:
    return hashlib.sha256(repr(pairs).encode()).hexdigest()


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(interval: "MeanInterval | None") -> str:
    return evolution.format_mean(interval) if interval is not None else "not measured"
