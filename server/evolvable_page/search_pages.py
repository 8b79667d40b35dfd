"""Search as an agent searches: what fits, the rest folded, what each stage said; a person corrects what it found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, author_tag, form, resource_link, swapping, tag, with_code
from evolvable_page.library_catalog import check_kind
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quoted
from evolvable_store.resource import Kind, Ref
from evolvable_tools.outcomes import correct_task, list_learned
from evolvable_tools.retrieval import MODES, VERDICTS, Verdict
from evolvable_tools.verbs import FoundSkills, find_skill

if TYPE_CHECKING:
    from evolvable_store.search import Match

MAX_TASK = 4_000
"""Characters of a task."""


def _search(site: Site, asked: PageRequest) -> PageBody:
    """Show the result of a search as an agent makes it, with the message of every stage."""
    task, mode, kind = asked.get("task")[:MAX_TASK], asked.get("mode") or "auto", asked.get("kind") or "skill"
    fields = [
        h.label["Task ", h.input(type="search", name="task", value=task, maxlength=str(MAX_TASK), required=True)],
        _choice("Mode", "mode", list(MODES), mode),
        _choice("Kind", "kind", [one.value for one in Kind], kind),
        h.button(type="submit")["Search"],
    ]
    main: list[Node] = [
        h.h1["Search"],
        h.form(".line", method="get", action="/search", role="search")[fields],
    ]
    if task.strip():
        found = find_skill(site.library, site.caller, task, kind=check_kind(kind) or Kind.SKILL, mode=mode, limit=10)
        main.append(_found(site, asked, task, found))
    else:
        main.append(h.p(".none")["Type a task as you would give it to an agent. Nothing of it is stored."])
    return PageBody("Search", main, "search")


def _choice(title: str, name: str, values: Sequence[str], chosen: str) -> Node:
    options = [h.option(value=value, selected=value == chosen)[value] for value in values]
    return h.label[f"{title} ", h.select(name=name)[options]]


def _found(site: Site, asked: PageRequest, task: str, found: FoundSkills) -> Node:
    """Return the skills that fit; the others and the stages of the search are folded."""
    fits = found.fitting or (found.lines if found.verdict is not Verdict.NONE else [])
    others = [one for one in found.lines if one not in fits]
    stages = [h.li[h.strong[one.stage], ": ", make_visible(one.said)] for one in found.stages]
    return [
        h.p(".lead")[VERDICTS[found.verdict]],
        _matches(asked, task, fits, found),
        _further(found),
        h.details(id="others")[h.summary[f"The nearest beside: {len(others)}"], _matches(asked, task, others, found)]
        if others
        else None,
        h.details(id="stages")[h.summary["How the search came to it"], h.ol[stages]],
        h.details(id="correct")[h.summary["This should have been another one"], _correction(asked, task, found)],
        _learned(site, found),
    ]


def _matches(asked: PageRequest, task: str, matches: "Sequence[Match]", found: FoundSkills) -> Node:
    return h.ul(".rows")[[_match(asked, task, one, found) for one in matches]] if matches else None


def _match(asked: PageRequest, task: str, one: "Match", found: FoundSkills) -> Node:
    best = _best(found)
    fields = {"task": task, "right": one.ref, "wrong": best if best != one.ref else ""}
    button = h.button(type="submit", aria_label=f"This is right: {one.ref}")["This is right"]
    sure = found.verdict is Verdict.SURE and one.ref == best
    return h.li[
        h.div(".grow")[
            resource_link(one.ref, f"{one.ref}@{one.version}"),
            " ",
            author_tag(one.author, one.by),
            h.div[one_line(one.description, 240)],
            h.div(".none")[f"{one.stage}: ", make_visible(one.why)],
        ],
        h.span(".number")[f"{one.confidence:.2f} ", tag("sure", "good") if sure else None],
        form(asked.session.csrf, action_path("learned"), button, fields=fields, **swapping()),
    ]


def _best(found: FoundSkills) -> str:
    """Return the ref of the match that an agent is told to use, '' where there is none."""
    return found.matches[0].ref if found.verdict is Verdict.SURE else ""


def _further(found: FoundSkills) -> Node:
    if found.verdict is not Verdict.CHOOSE or not found.further:
        return None
    choices = [h.li[resource_link(one.ref)] for one in found.further]
    return h.section[h.h2["What else an agent may choose"], h.ul[choices]]


def _correction(asked: PageRequest, task: str, found: FoundSkills) -> Node:
    best = _best(found)
    return h.section[
        h.p(".none")[
            with_code(
                "The task is stored as a label of yours. Lookup learns it at once; one of four labels is held out"
                " instead, and `evolvable learn tasks --measure` asks it."
            )
        ],
        form(
            asked.session.csrf,
            action_path("learned"),
            h.label["Resource ", h.input(type="text", name="right", required=True, placeholder="skill:pdf")],
            h.button(type="submit")["Store the correction"],
            fields={"task": task, "wrong": best},
            class_="line",
            **swapping(),
        ),
    ]


def _learned(site: Site, found: FoundSkills) -> Node:
    refs = [Ref.parse(one.ref) for one in found.matches[:3]]
    tasks = [one for ref in refs for one in list_learned(site.library, site.caller, ref)]
    rows = [
        h.li[resource_link(one.ref), ": ", "not " if one.against else "", make_visible(one.task), f" ({one.source})"]
        for one in [task for task in tasks if task.task][:12]
    ]
    return h.details[h.summary["Learned tasks of the first matches"], h.ul[rows]] if rows else None


def _correct(site: Site, asked: PageRequest) -> str:
    task, right, wrong = asked.get("task")[:MAX_TASK], Ref.parse(asked.get("right")), asked.get("wrong")
    against = Ref.parse(wrong) if wrong and Ref.parse(wrong) != right else None
    correct_task(site.library, site.caller, task, right, against)
    return f"/search?task={quoted(task)}&kind={right.kind}"


VIEWS = (PageView("/search", _search),)

ACTIONS = (PageAction("learned", _correct),)
