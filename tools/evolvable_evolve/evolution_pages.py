"""Evolution: the runs of the library, and one run live from its ledger, with the forms that stop
it and adopt its result.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import htpy as h
from htpy import Node

from evolvable_evolve import evolution
from evolvable_evolve.agents_page import draw_agents_run
from evolvable_evolve.evolution import RunStatus, find_run, list_statuses, read_status
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
    """The part of evolution in the local page. page: the functions that draw pages."""

    def __init__(self, page: PageKit) -> None:
        self._page = page

    def parts(self) -> PageParts:
        """Return the views, the actions, and what waits in the inbox."""
        page = self._page
        views = (
            page.PageView("/evolution", self._show_runs),
            page.PageView("/evolution/{run}", self._show_run),
            page.PageView("/evolution/{run}/adopt", self._show_adoption),
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

    def _show_runs(self, site: PageSite, request: PageForm) -> Any:
        """List the runs of the library."""
        runs = list_statuses(site.library.store.home, RUNS)
        rows = [
            [
                h.a(href=f"/evolution/{status.run}")[status.run],
                self._page.tag(status.state, _STATES.get(status.state, "")),
                self._draw_verdict(status),
                status.label,
                f"{status.spent.get('trials', 0):,}",
                f"{status.spent.get('tokens', 0):,}",
                self._page.make_visible(status.why),
            ]
            for status in runs
        ]
        heads = ("run", "state", "verdict", "figures", "trials", "tokens", "why")
        if rows:
            listing = self._page.table(heads, rows, "Runs, newest first")
        else:
            none = "No run yet. `evolvable evolve start` starts one on a task set of yours."
            listing = h.p[self._page.with_code(none)]
        live = h.div(id="runs", data_live=True)[listing]
        return self._page.PageBody("Evolution", [h.h1["Evolution"], live], "evolution")

    def _draw_verdict(self, status: RunStatus) -> Node:
        """Return the verdict of a run as a label, before there is one its phase."""
        if not status.verdict:
            return status.phase
        label: Node = self._page.tag(status.verdict, _VERDICTS.get(status.verdict, ""))
        return label

    def _show_run(self, site: PageSite, request: PageForm) -> Any:
        """Show one run: its state, its figures so far, its events."""
        folder = find_run(site.library.store.home, str(request.path["run"]))
        ledger = folder.ledger.stat()
        key = (ledger.st_size, ledger.st_mtime_ns)
        read = site.value(
            f"run {folder.id}", lambda: _read_run(folder, site.library.redactor()), key
        )
        live = h.div(id="run", data_live=True)
        if read is None:
            waits = live[h.p["The ledger is being read; this page shows it by itself."]]
            heading = h.h1["Run ", h.code[folder.id]]
            return self._page.PageBody(f"Run {folder.id}", [heading, waits], "evolution")
        status, facts = read
        tried = evolution.read_try(site.library.store.home, folder.id)
        results = self._draw_results(facts) if tried is None else self._draw_try_result(tried)
        body = live[
            h.p[
                self._page.tag(status.state, _STATES.get(status.state, "")),
                " ",
                self._draw_verdict(status),
                " ",
                self._page.make_visible(status.line),
            ],
            h.p(".warning")[self._page.make_visible(status.why)] if status.why else None,
            [h.p(".warning")[self._page.make_visible(text)] for text in facts.warnings],
            *results,
            h.h2["What it took"],
            self._draw_bill(facts),
            self._draw_events(status),
        ]
        title = h.h1["Run ", h.code[status.run], " ", self._page.tag(status.label)]
        main = [
            self._page.operation_note(site, request),
            title,
            self._draw_controls(site, request, status),
            body,
        ]
        return self._page.PageBody(f"Run {status.run}", main, "evolution")

    def _draw_results(self, facts: "RunFacts") -> list[Node]:
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
            self._draw_heat(facts),
            h.h2["Lineage"],
            h.div(".chart")[evolution.draw_lineage(facts)] if facts.tried else None,
            self._draw_candidates(facts.tried),
        ]

    def _draw_try_result(self, tried: "TryResult") -> list[Node]:
        """Return the answer of a trial of skills, and the answers of both arms side by side."""
        nodes: list[Node] = [h.p[self._page.make_visible(skill.sentence)] for skill in tried.skills]
        for skill in tried.skills:
            rows: list[list[Node]] = []
            for task_answers in skill.answers:
                pieces = evolution.word_changes(task_answers.without, task_answers.with_skill)
                rows.append(
                    [
                        self._page.make_visible(task_answers.prompt[:200]),
                        _format_score(task_answers.score_without),
                        _format_score(task_answers.score_with),
                        [self._mark_words(kind, text) for kind, text in pieces],
                    ]
                )
            legend = "answers: removed words are without, added ones with it"
            heads = ("task", "without", f"with {skill.skill}", legend)
            nodes.append(self._page.table(heads, rows, "Answers side by side"))
        left = [
            h.li[f"{self._page.make_visible(task)}: {why}"] for task, why in tried.left_out.items()
        ]
        return [*nodes, [h.h2["Left out"], h.ul[left]] if left else None]

    def _mark_words(self, kind: str, text: str) -> Node:
        words = self._page.make_visible(text)
        if kind == "-":
            return [h.del_[words], " "]
        return [h.ins[words] if kind == "+" else words, " "]

    def _draw_sealed_test(self, facts: "RunFacts") -> Node:
        rows = [
            [name.replace("_", "-"), _format_interval(interval)]
            for name, interval in (facts.test or {}).items()
        ]
        if not rows:
            return h.p["The test is sealed."]
        return [
            h.h2["Sealed test"],
            self._page.table(("arm", "mean"), rows, f"Every figure is {facts.label}"),
        ]

    def _draw_heat(self, facts: "RunFacts") -> Node:
        """Return the mean of each candidate by category, as a number on a shade."""
        measured = {name for row in facts.heat for name in row.means}
        names = [candidate.name for candidate in facts.tried if candidate.name in measured]
        if not names:
            return None

        def cell(mean: float | None) -> Node:
            if mean is None:
                return h.td["-"]
            return h.td(class_=f"heat heat-{round(10 * mean)}")[f"{mean:.2f}"]

        rows: list[Node] = []
        for row in facts.heat:
            category = self._page.make_visible(row.category) or "(none)"
            cells = [cell(row.means.get(name)) for name in names]
            rows.append(h.tr[h.th(scope="row")[f"{category} (n = {row.n})"], cells])
        heads = h.tr[h.th(scope="col")["category"], [h.th(scope="col")[name] for name in names]]
        region = h.div(".wide", tabindex="0", role="region", aria_label="Scores by category")
        return [h.h2["Categories"], region[h.table[h.thead[heads], h.tbody[rows]]]]

    def _draw_candidates(self, tried: "Sequence[CandidateFacts]") -> Node:
        return [self._draw_candidate(candidate) for candidate in tried]

    def _draw_candidate(self, candidate: "CandidateFacts") -> Node:
        decision = str(candidate.decision)
        label = self._page.tag(decision, "good" if decision == "admitted" else "")
        points = ""
        if candidate.delta is not None and candidate.parents:
            points = f", {100 * candidate.delta:+.1f} points"
        summary = self._page.make_visible(candidate.summary)
        reason = self._page.make_visible(candidate.reason)
        return h.details[
            h.summary[
                h.strong[candidate.name],
                " ",
                label,
                f" {_format_interval(candidate.validation)}",
                points,
            ],
            h.p[summary] if candidate.summary else None,
            h.p(".none")[reason] if candidate.reason else None,
            [h.p(".warning")[self._page.make_visible(finding)] for finding in candidate.findings],
            self._page.draw_diff(candidate.diff) if candidate.diff else None,
        ]

    def _draw_bill(self, facts: "RunFacts") -> Any:
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

    def _draw_events(self, status: RunStatus) -> Node:
        rows = [
            [str(event.number), self._page.when(event.at), self._page.make_visible(event.what)]
            for event in reversed(status.events[-EVENTS:])
        ]
        return [
            h.h2["Events"],
            self._page.table(("record", "when", "what"), rows, "Newest first") if rows else None,
        ]

    def _draw_controls(self, site: PageSite, request: PageForm, status: RunStatus) -> Any:
        csrf, fields = request.session.csrf, {"run": status.run}
        if waiting := find_waiting_try(site.library, status.run):
            begin = h.button(".good", type="submit")["Begin this trial"]
            lines = [h.p[self._page.make_visible(line)] for line in waiting.text.splitlines()]
            address = self._page.action_path("evolve continue")
            return [lines, self._page.form(csrf, address, begin, fields=fields)]
        if status.state in ("running", "waiting"):
            stop = h.button(type="submit")["Stop this run"]
            return self._page.form(csrf, self._page.action_path("evolve stop"), stop, fields=fields)
        if status.adoptable:
            return h.p[h.a(href=f"/evolution/{status.run}/adopt")["See what would be adopted"]]
        return None

    def _show_adoption(self, site: PageSite, request: PageForm) -> Any:
        """Show the whole change that an adoption makes live, with the form that adopts it."""
        run = str(request.path["run"])
        preview = evolution.preview_adoption(site.library.store.home, run)
        # Before the preview is drawn: its difference would tell which answer is whose.
        if pairs := evolution.draw_blind_pairs(site.library, site.caller, run):
            return self._show_comparison(request, preview.run, pairs)
        reason = h.input(type="text", name="reason", maxlength="2000", autocomplete="off")
        adopt = self._page.form(
            request.session.csrf,
            self._page.action_path("evolve adopt"),
            self._draw_doubt(preview),
            h.label["Reason ", reason],
            self._page.passphrase_field(site.passphrase_label),
            h.button(".good", type="submit")["Make this live"],
            fields={"run": preview.run, "candidate": preview.candidate},
        )
        main = [
            h.h1["Adopt run ", h.code[preview.run]],
            h.p[
                self._page.tag(preview.verdict, _VERDICTS.get(preview.verdict, "")),
                f" [{preview.label}] ",
                self._page.make_visible(preview.why),
            ],
            self._draw_list("It can do now", preview.capabilities),
            self._draw_list("The scan found", preview.findings),
            h.h2["Difference"],
            self._page.draw_diff(preview.diff),
            adopt,
        ]
        return self._page.PageBody(f"Adopt run {run}", main, "evolution")

    def _draw_list(self, title: str, entries: Sequence[object]) -> Node:
        if not entries:
            return [h.h2[title], h.p["Nothing new."]]
        lines = [h.li[self._page.make_visible(str(entry))] for entry in entries]
        return [h.h2[title], h.ul[lines]]

    def _adopt(self, site: PageSite, request: PageForm) -> str:
        run = find_run(site.library.store.home, request.get("run")).id
        if request.get("pairs"):
            return self._record_comparison(site, request, run)
        # The run may have gone on since the page was drawn.
        preview = evolution.preview_adoption(site.library.store.home, run)
        if preview.candidate != request.get("candidate"):
            raise InvalidArgument("The run has another finalist than you saw.", "Look at it again.")
        reason, base_preferred = request.get("reason"), request.get("base_preferred") == "1"
        adopted = evolution.adopt(
            site.library, site.decider(request), run, reason, base_preferred=base_preferred
        )
        return f"/evolution/{run}?operation={adopted.operation}"

    def _show_comparison(self, request: PageForm, run: str, pairs: "Sequence[BlindPair]") -> Any:
        """Return the answers without names.

        The difference is shown after it, because it would tell the answers apart.
        """
        choices = (("1", "1 is better"), ("2", "2 is better"), ("=", "no difference"))
        fieldsets: list[Node] = []
        for number, pair in enumerate(pairs, 1):
            prompt = self._page.make_visible(pair.prompt or pair.task)
            answers = [
                [h.h3[f"Answer {which}"], h.pre[self._page.make_visible(text)]]
                for which, text in (("1", pair.first), ("2", pair.second))
            ]
            field = f"pair{number}"
            buttons = [
                h.label[h.input(type="radio", name=field, value=value, required=True), f" {words} "]
                for value, words in choices
            ]
            legend = h.legend[f"{number} of {len(pairs)}: ", prompt]
            fieldsets.append(h.fieldset(".part")[legend, answers, buttons])
        text = "A judge scored these answers. Compare them before you see which program gave which."
        compare = self._page.form(
            request.session.csrf,
            self._page.action_path("evolve adopt"),
            fieldsets,
            h.button(".good", type="submit")["Go on"],
            fields={"run": run, "pairs": _hash_pairs(pairs)},
        )
        main = [h.h1["Adopt run ", h.code[run]], h.p[text], compare]
        return self._page.PageBody(f"Adopt run {run}", main, "evolution")

    def _record_comparison(self, site: PageSite, request: PageForm, run: str) -> str:
        """Record the preferences of the person once, and lead to the preview of the adoption."""
        pairs = evolution.draw_blind_pairs(site.library, site.caller, run)
        if pairs and _hash_pairs(pairs) != request.get("pairs"):
            raise InvalidArgument("The run has other answers than you saw.", "Compare them again.")
        choices = [request.get(f"pair{number}") for number in range(1, len(pairs) + 1)]
        if not all(choice in ("1", "2", "=") for choice in choices):
            raise InvalidArgument("A pair has no choice.", "Choose one of the three for each pair.")
        if pairs:
            evolution.record_preferences(site.library, site.caller, run, pairs, choices)
        return f"/evolution/{run}/adopt"

    def _draw_doubt(self, preview: "AdoptionPreview") -> Node:
        """Return the preferences of the person, with a box to tick where they contradict the
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

        Raise InvalidArgument for any other run: its limits were not shown.
        """
        if (waiting := find_waiting_try(site.library, request.get("run"))) is None:
            raise InvalidArgument("This run does not wait to be begun.", "Look at it again.")
        site.decider(request)
        waiting.begin(site.config)
        return f"/evolution/{waiting.run}"

    def _stop(self, site: PageSite, request: PageForm) -> str:
        return f"/evolution/{evolution.stop_run(site.library.store.home, request.get('run')).run}"


def _read_run(folder: "RunDirectory", redactor: Redactor) -> "tuple[RunStatus, RunFacts]":
    records = evolution.read_records(folder)
    state = evolution.fold_records(records)
    return read_status(folder), evolution.collect_facts(folder, state, records, redactor)


def _hash_pairs(pairs: "Sequence[BlindPair]") -> str:
    return hashlib.sha256(repr(pairs).encode()).hexdigest()


def _format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_interval(interval: "MeanInterval | None") -> str:
    return evolution.format_mean(interval) if interval is not None else "not measured"
