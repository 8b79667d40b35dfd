"""Search as an agent searches: what fits, the rest folded, what each stage said; a person corrects
what it found.
"""

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


def _search(site: Site, request: PageRequest) -> PageBody:
    """Show the result of a search as an agent makes it, with the message of every stage."""
    task, mode, kind = (
        request.get("task")[:MAX_TASK],
        request.get("mode") or "auto",
        request.get("kind") or "skill",
    )
    fields = [
        h.label[
            "Task ",
            h.input(type="search", name="task", value=task, maxlength=str(MAX_TASK), required=True),
        ],
        _choice("Mode", "mode", list(MODES), mode),
        _choice("Kind", "kind", [choice.value for choice in Kind], kind),
        h.button(type="submit")["Search"],
    ]
    main: list[Node] = [
        h.h1["Search"],
        h.form(".line", method="get", action="/search", role="search")[fields],
    ]
    if task.strip():
        found = find_skill(
            site.library,
            site.caller,
            task,
            kind=check_kind(kind) or Kind.SKILL,
            mode=mode,
            limit=10,
        )
        main.append(_draw_found(site, request, task, found))
    else:
        main.append(
            h.p(".none")["Type a task as you would give it to an agent. Nothing of it is stored."]
        )
    return PageBody("Search", main, "search")


def _choice(title: str, name: str, values: Sequence[str], chosen: str) -> Node:
    options = [h.option(value=value, selected=value == chosen)[value] for value in values]
    return h.label[f"{title} ", h.select(name=name)[options]]


def _draw_found(site: Site, request: PageRequest, task: str, found: FoundSkills) -> Node:
    """Return the skills that fit; the others and the stages of the search are folded."""
    fits = found.fitting or (found.lines if found.verdict is not Verdict.NONE else [])
    others = [line for line in found.lines if line not in fits]
    stages = [h.li[h.strong[stage.stage], ": ", make_visible(stage.said)] for stage in found.stages]
    return [
        h.p(".lead")[VERDICTS[found.verdict]],
        _matches(request, task, fits, found),
        _further(found),
        h.details(id="others")[
            h.summary[f"The nearest beside: {len(others)}"], _matches(request, task, others, found)
        ]
        if others
        else None,
        h.details(id="stages")[h.summary["How the search came to it"], h.ol[stages]],
        h.details(id="correct")[
            h.summary["This should have been another one"], _correction(request, task, found)
        ],
        _draw_learned(site, found),
    ]


def _matches(
    request: PageRequest, task: str, matches: "Sequence[Match]", found: FoundSkills
) -> Node:
    return (
        h.ul(".rows")[[_match(request, task, match, found) for match in matches]]
        if matches
        else None
    )


def _match(request: PageRequest, task: str, match: "Match", found: FoundSkills) -> Node:
    best = _best(found)
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


def _best(found: FoundSkills) -> str:
    """Return the ref of the match that an agent is told to use, '' where there is none."""
    return found.matches[0].ref if found.verdict is Verdict.SURE else ""


def _further(found: FoundSkills) -> Node:
    if found.verdict is not Verdict.CHOOSE or not found.further:
        return None
    choices = [h.li[resource_link(choice.ref)] for choice in found.further]
    return h.section[h.h2["What else an agent may choose"], h.ul[choices]]


def _correction(request: PageRequest, task: str, found: FoundSkills) -> Node:
    best = _best(found)
    return h.section[
        h.p(".none")[
            with_code(
                "The task is stored as a label of yours. Lookup learns it at once; one of four "
                "labels is held out instead, and `evolvable learn tasks --measure` asks it."
            )
        ],
        form(
            request.session.csrf,
            action_path("learned"),
            h.label[
                "Resource ",
                h.input(type="text", name="right", required=True, placeholder="skill:pdf"),
            ],
            h.button(type="submit")["Store the correction"],
            fields={"task": task, "wrong": best},
            class_="line",
            **swapping(),
        ),
    ]


def _draw_learned(site: Site, found: FoundSkills) -> Node:
    refs = [Ref.parse(match.ref) for match in found.matches[:3]]
    tasks = [learned for ref in refs for learned in list_learned(site.library, site.caller, ref)]
    rows = [
        h.li[
            resource_link(learned.ref),
            ": ",
            "not " if learned.against else "",
            make_visible(learned.task),
            f" ({learned.source})",
        ]
        for learned in [task for task in tasks if task.task][:12]
    ]
    return h.details[h.summary["Learned tasks of the first matches"], h.ul[rows]] if rows else None


def _correct(site: Site, request: PageRequest) -> str:
    task, right, wrong = (
        request.get("task")[:MAX_TASK],
        Ref.parse(request.get("right")),
        request.get("wrong"),
    )
    against = Ref.parse(wrong) if wrong and Ref.parse(wrong) != right else None
    correct_task(site.library, site.caller, task, right, against)
    return f"/search?task={quote_part(task)}&kind={right.kind}"


VIEWS = (PageView("/search", _search),)

ACTIONS = (PageAction("learned", _correct),)
