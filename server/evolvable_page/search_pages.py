"""Search as an agent searches: the matches, the message of each stage, and the corrections."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    resource_link,
    swapping,
    tag,
    with_code,
)
from evolvable_page.library_catalog import check_kind
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_store.resource import Kind, Ref
from evolvable_tools.outcomes import correct_task, list_learned
from evolvable_tools.retrieval import MODES, VERDICTS, Verdict
from evolvable_tools.verbs import FoundSkills, find_skill

if TYPE_CHECKING:
    from evolvable_store.search import Match

MAX_TASK = 4_000
"""Characters of a task."""

MAX_MATCHES = 10
"""Matches of a search."""

MAX_LEARNED = 12
"""Learned tasks of the first matches that are shown."""


def _show_search(site: Site, request: PageRequest) -> PageBody:
    """Show the result of a search as an agent makes it, with the message of every stage."""
    task = request.get("task")[:MAX_TASK]
    mode, kind = request.get("mode") or "auto", request.get("kind") or "skill"
    limit = str(MAX_TASK)
    fields = [
        h.label[
            "Task ",
            h.input(type="search", name="task", value=task, maxlength=limit, required=True),
        ],
        _draw_choice("Mode", "mode", list(MODES), mode),
        _draw_choice("Kind", "kind", [choice.value for choice in Kind], kind),
        h.button(type="submit")["Search"],
    ]
    main: list[Node] = [
        h.h1["Search"],
        h.form(".line", method="get", action="/search", role="search")[fields],
    ]
    if task.strip():
        asked_kind = check_kind(kind) or Kind.SKILL
        found = find_skill(
            site.library, site.caller, task, kind=asked_kind, mode=mode, limit=MAX_MATCHES
        )
        main.append(_draw_found(site, request, task, found))
    else:
        how = "Type a task as you would give it to an agent. Nothing of it is stored."
        main.append(h.p(".none")[how])
    return PageBody("Search", main, "search")


def _draw_choice(title: str, name: str, values: Sequence[str], chosen: str) -> Node:
    options = [h.option(value=value, selected=value == chosen)[value] for value in values]
    return h.label[f"{title} ", h.select(name=name)[options]]


def _draw_found(site: Site, request: PageRequest, task: str, found: FoundSkills) -> Node:
    """Return the skills that fit; the others and the stages of the search are folded."""
    fits = found.fitting or (found.lines if found.verdict is not Verdict.NONE else [])
    others = [line for line in found.lines if line not in fits]
    stages = [h.li[h.strong[stage.stage], ": ", make_visible(stage.said)] for stage in found.stages]
    nearest: Node = None
    if others:
        title = h.summary[f"The nearest beside: {len(others)}"]
        nearest = h.details(id="others")[title, _draw_matches(request, task, others, found)]
    correction = _draw_correction(request, task, found)
    return [
        h.p(".lead")[VERDICTS[found.verdict]],
        _draw_matches(request, task, fits, found),
        _draw_further(found),
        nearest,
        h.details(id="stages")[h.summary["How the search came to it"], h.ol[stages]],
        h.details(id="correct")[h.summary["This should have been another one"], correction],
        _draw_learned(site, found),
    ]


def _draw_matches(
    request: PageRequest, task: str, matches: "Sequence[Match]", found: FoundSkills
) -> Node:
    if not matches:
        return None
    return h.ul(".rows")[[_draw_match(request, task, match, found) for match in matches]]


def _draw_match(request: PageRequest, task: str, match: "Match", found: FoundSkills) -> Node:
    best = _find_best(found)
    fields = {"task": task, "right": match.ref, "wrong": best if best != match.ref else ""}
    button = h.button(type="submit", aria_label=f"This is right: {match.ref}")["This is right"]
    sure = found.verdict is Verdict.SURE and match.ref == best
    return h.li[
        h.div(".grow")[
            resource_link(match.ref, f"{match.ref}@{match.version}"),
            " ",
            author_tag(match.author, match.by),
            h.div[one_line(match.description, 240)],
            h.div(".none")[f"{match.stage}: ", make_visible(match.why)],
        ],
        h.span(".number")[f"{match.confidence:.2f} ", tag("sure", "good") if sure else None],
        form(request.session.csrf, action_path("learned"), button, fields=fields, **swapping()),
    ]


def _find_best(found: FoundSkills) -> str:
    """Return the ref of the match that an agent is told to use, '' where there is none."""
    return found.matches[0].ref if found.verdict is Verdict.SURE else ""


def _draw_further(found: FoundSkills) -> Node:
    if found.verdict is not Verdict.CHOOSE or not found.further:
        return None
    choices = [h.li[resource_link(choice.ref)] for choice in found.further]
    return h.section[h.h2["What else an agent may choose"], h.ul[choices]]


def _draw_correction(request: PageRequest, task: str, found: FoundSkills) -> Node:
    explanation = (
        "The task is stored as a label of yours. Lookup learns it at once; one of four labels is "
        "held out instead, and `evolvable learn tasks --measure` asks it."
    )
    field = h.input(type="text", name="right", required=True, placeholder="skill:pdf")
    correct = form(
        request.session.csrf,
        action_path("learned"),
        h.label["Resource ", field],
        h.button(type="submit")["Store the correction"],
        fields={"task": task, "wrong": _find_best(found)},
        class_="line",
        **swapping(),
    )
    return h.section[h.p(".none")[with_code(explanation)], correct]


def _draw_learned(site: Site, found: FoundSkills) -> Node:
    refs = [Ref.parse(match.ref) for match in found.matches[:3]]
    tasks = [learned for ref in refs for learned in list_learned(site.library, site.caller, ref)]
    # A task without a text is a prompt of the person, which is not shown.
    named = [learned for learned in tasks if learned.task]
    rows = [
        h.li[
            resource_link(learned.ref),
            ": ",
            "not " if learned.against else "",
            make_visible(learned.task),
            f" ({learned.source})",
        ]
        for learned in named[:MAX_LEARNED]
    ]
    return h.details[h.summary["Learned tasks of the first matches"], h.ul[rows]] if rows else None


def _correct(site: Site, request: PageRequest) -> str:
    task, wrong = request.get("task")[:MAX_TASK], request.get("wrong")
    right = Ref.parse(request.get("right"))
    against = Ref.parse(wrong) if wrong and Ref.parse(wrong) != right else None
    correct_task(site.library, site.caller, task, right, against)
    return f"/search?task={quote_part(task)}&kind={right.kind}"


VIEWS = (PageView("/search", _show_search),)

ACTIONS = (PageAction("learned", _correct),)
