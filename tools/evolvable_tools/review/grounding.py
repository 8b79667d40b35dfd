"""Whether a candidate's change follows from what it quotes: words and names that both have."""

import re

from evolvable_store.search.analyzer import tokenize
from evolvable_tools.memory import content
from evolvable_tools.review.candidates import Candidate

FEW = 3
"""Content words of a quote at most, so that one shared word is enough."""

_ENTITY = re.compile(
    r"[A-Za-z0-9_]*[./_:@-][\w./:@-]*\w|\b[A-Z]{2,}\w*|\b\w*[a-z][A-Z]\w*|\b\d[\d.,]*\d|\b\d+\b|`[^`\n]{2,60}`"
)
_EMPTY = (
    "use run make need want thing way work try let add change update keep put set get go time always never please now"
    " step file code skill user agent task before after every"
)
"""Words that so many sentences have that they say nothing of what a change is about."""


def shared(quotes: str, candidate: Candidate) -> tuple[set[str], set[str]]:
    """Return the names and the content words that the quotes and the change have in common."""
    change = changed_text(candidate)
    return entities(quotes) & entities(change), meant(quotes) & meant(change)


def follows(quotes: str, candidate: Candidate) -> bool:
    """Return whether a change shares enough with the words that it rests on.

    A shared name, number or path is enough, as are two shared content words; one is enough for a short quote.
    """
    names, terms = shared(quotes, candidate)
    return bool(names) or len(terms) >= (1 if len(meant(quotes)) <= FEW else 2)


def changed_text(candidate: Candidate) -> str:
    """Return what a candidate puts in or takes out, without its claim: a model says of that what it likes."""
    edits = (f"{e.old}\n{e.new}\n{e.after}\n{e.description}\n{e.triggers}" for e in candidate.edits)
    return "\n".join(
        (
            candidate.name,
            candidate.target.partition(":")[2],
            candidate.text,
            candidate.check,
            *edits,
            *(candidate.files or {}).values(),
        )
    )


def entities(text: str) -> set[str]:
    """Return the identifiers, paths, numbers and quoted names of a text."""
    return {match.strip("`.,:").casefold() for match in _ENTITY.findall(text)} - {""}


def meant(text: str) -> set[str]:
    """Return the stems of the words that a text is about."""
    return content(text) - content(_EMPTY) - {word for word in tokenize(text) if len(word) < 2}
