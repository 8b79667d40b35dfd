"""One run of agents on the local page: its plan, its items with their checks, its bus, and the
rates of its agents.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import htpy as h
from htpy import Node

from evolvable_evolve import ags
from evolvable_evolve.evolution import AGS_DIR, find_run
from evolvable_server.page_kit import PageForm, PageKit, PageSite
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library
from evolvable_tools.outcomes import AgentUtility, stats

if TYPE_CHECKING:
    from evolvable_evolve.ags import AgsStatus

MESSAGES = 60
"""Messages of the bus that are shown, the newest first."""

_STATES = {"running": "good", "waiting": "doubtful", "interrupted": "bad", "kept": "good"}
_ITEM_STATES = {"done": "good", "failed": "bad", "blocked": "doubtful", "running": "good"}


def draw_agents_run(page: PageKit, site: PageSite, request: PageForm) -> Any:
    """Show one run of agents. Raises NoSuchRun."""
    library, caller = site.library, site.caller
    folder = find_run(library.store.home, str(request.path["run"]), AGS_DIR)
    status = folder.ledger.stat()
    key = (status.st_size, status.st_mtime_ns, library.store.sequence())
    read: tuple[AgsStatus, Sequence[AgentUtility]] | None = site.value(
        f"agents {folder.id}", lambda: _read_run(library, caller, folder.id), key
    )
    title = f"Agents' run {folder.id}"
    live = h.div(id="run", data_live=True)
    if read is None:
        waits = live[h.p["The ledger is being read; this page shows it by itself."]]
        return page.PageBody(title, [h.h1["Agents' run ", h.code[folder.id]], waits], "overview")
    run, rates = read
    question: Node = None
    if run.question:
        question = h.p(".warning")["The planner asks: ", page.make_visible(run.question)]
    body = live[
        h.p[page.tag(run.state, _STATES.get(run.state, "")), " ", page.make_visible(run.line)],
        h.p(".warning")[page.make_visible(run.why)] if run.why else None,
        question,
        h.h2["Task"],
        h.p[page.make_visible(run.task)],
        [h.h2["Result"], h.p[page.make_visible(run.result)]] if run.result else None,
        _draw_plan(page, run),
        _draw_rates(page, run, rates),
        _draw_improvements(page, run),
        _draw_bus(page, run),
    ]
    heading = h.h1["Agents' run ", h.code[run.run], " ", page.tag(run.label)]
    return page.PageBody(title, [heading, body], "overview")


def _read_run(
    library: Library, caller: Caller, run: str
) -> "tuple[AgsStatus, Sequence[AgentUtility]]":
    status = ags.ags_status(library.store.home, run)
    own = {_drop_version(item["agent"]) for item in status.items}
    return status, [agent for agent in stats(library, caller).agents if agent.agent in own]


def _drop_version(ref: str) -> str:
    return str(Ref.parse(ref).at(None))


def _draw_plan(page: PageKit, run: "AgsStatus") -> Node:
    if not run.items:
        return [h.h2["Plan"], h.p(".none")["The planner has not answered yet."]]
    rows = [
        [
            item["id"],
            page.tag(item["state"], _ITEM_STATES.get(item["state"], "")),
            _draw_check(page, item),
            page.make_visible(item["agent"]),
            ", ".join(item["needs"]) or "-",
            page.make_visible(item.get("summary", item["subtask"])),
        ]
        for item in run.items
    ]
    heads = ("item", "state", "check", "agent", "needs", "subtask or summary")
    plan = h.p[h.a(href=f"/resource/{run.plan}")["The plan as a document, with its versions"]]
    return [h.h2["Plan"], page.table(heads, rows, "Items in the order of the plan"), plan]


def _draw_check(page: PageKit, item: dict[str, Any]) -> Node:
    """Return the check of an item with its result."""
    name = item.get("check")
    if not name:
        return "none"
    passed = item.get("passed")
    if passed is None:
        return page.make_visible(f"{name}: not seen")
    words = f"{name}: {'passed' if passed else 'not passed'}"
    label: Node = page.tag(words, "good" if passed else "bad")
    return label


def _draw_rates(page: PageKit, run: "AgsStatus", rates: Sequence[AgentUtility]) -> Node:
    rows: list[list[Node]] = []
    for rate in rates:
        share = rate.share
        if share.n:
            interval = f"({share.low:.2f} to {share.high:.2f})"
            rows.append(
                [
                    page.make_visible(rate.agent),
                    rate.task_type,
                    f"{share.successes} of {share.n}",
                    f"{share.successes / share.n:.2f} {interval}",
                ]
            )
    if not rows:
        none = "No end of these agents is verified: only items with a check count."
        return [h.h2["Agents"], h.p(".none")[none]]
    heads = ("agent", "tasks", "succeeded", "rate (95 %)")
    return [h.h2["Agents"], page.table(heads, rows, "Verified ends in the whole library")]


def _draw_improvements(page: PageKit, run: "AgsStatus") -> Node:
    if not run.improvements:
        return None
    rows = [
        [
            str(improvement["number"]),
            page.tag(improvement["state"], _STATES.get(improvement["state"], "")),
            page.make_visible(improvement["line"]),
        ]
        for improvement in run.improvements
    ]
    return [h.h2["Changes of the program"], page.table(("number", "state", "result"), rows)]


def _draw_bus(page: PageKit, run: "AgsStatus") -> Node:
    rows = [
        [str(event.number), page.when(event.at), page.make_visible(event.what)]
        for event in reversed(run.events[-MESSAGES:])
    ]
    return [
        h.h2["Bus"],
        page.table(("record", "when", "message"), rows, "Newest first") if rows else None,
    ]
