"""Policy cards: a skill in a few lines, as a model is shown it for comparison.

Deterministic and bounded.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evolvable_store import Head, parse_document, seed_folder
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, main_file
from evolvable_store.storage import SuccessCounts
from evolvable_tools import Library, wilson_lower_bound
from evolvable_tools.review import jaccard
from evolvable_tools.verbs import content_terms

MAX_LINE, MAX_STEPS, MAX_DONTS = 160, 3, 3
"""Characters of one line of a card, steps and don'ts of one card."""

SHOWN = 3
"""Cards that a model is shown with one trace."""

# Low on purpose: a description has about twenty words, and a task has few of them.
MIN_LIKENESS = 0.05
"""Share of words that a task and the description of a skill of the program must have in common,
before the model is shown its card.
"""

# Items of Markdown lists, with at most three spaces before them: with four a line is code.
_ITEM = re.compile(r"^\s{0,3}(?:[-*+]|\d{1,2}[.)])\s+(.+)$")
_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
# Words of warning and of checking, as skills in English write them; other languages give a card
# without them.
_DONT = re.compile(r"\b(?:never|do not|don't|avoid|must not|without asking)\b", re.IGNORECASE)
_CHECK = re.compile(r"\b(?:check|verify|test|confirm|compare|make sure)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """A skill in short.

    when: its description. reasoning: the first line of its text. check: how its result is checked.
    kept_because: its verified uses, or where it comes from.
    """

    ref: str
    when: str
    reasoning: str
    steps: tuple[str, ...]
    donts: tuple[str, ...]
    check: str
    kept_because: str


def make_card(ref: str, document: bytes, proof: SuccessCounts, origin: str = "") -> PolicyCard:
    """Return the card of a skill's document.

    origin: why it is there, where it has no verified use yet.
    """
    parsed = parse_document(document)
    plain = _drop_code(parsed.body.splitlines())
    items = [match[1].strip() for line in plain if (match := _ITEM.match(line))]
    stripped = [line.strip() for line in plain]
    sentences = [line for line in stripped if line and not line.startswith("#")]
    reasoning = next((line for line in sentences if not _ITEM.match(line)), "")
    texts = (*items, *sentences)
    donts = [text for text in texts if _DONT.search(text)]
    checks = [text for text in texts if _CHECK.search(text) and not _DONT.search(text)]
    steps = [item for item in items if item not in donts]
    kept_because = origin
    if proof.verified:
        kept_because = f"{proof.verified_successes} of {proof.verified} verified uses went well"
    return PolicyCard(
        ref,
        _shorten_line(str(parsed.fields.get("description", ""))),
        _shorten_line(reasoning),
        tuple(dict.fromkeys(map(_shorten_line, steps[:MAX_STEPS]))),
        # An item is in `items` and in `sentences`: without its mark both are the same.
        tuple(dict.fromkeys(_shorten_line(_ITEM.sub(r"\1", line)) for line in donts))[:MAX_DONTS],
        _shorten_line(_ITEM.sub(r"\1", checks[0])) if checks else "",
        kept_because or "not used yet",
    )


def _drop_code(lines: Iterable[str]) -> list[str]:
    """Return the lines outside of code blocks."""
    plain, inside = [], False
    for line in lines:
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            plain.append(line)
    return plain


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


def card_index(library: Library, promoted: Iterable[int], seeds: Iterable[str]) -> list[Head]:
    """Return the skills that have a card: promoted ones, seeds, and those whose verified uses went
    well.

    promoted: resources whose trial was won. seeds: names of the skills that come with the product.
    """
    heads = [head for head in library.store.heads(Kind.SKILL) if head.version is not None]
    untrusted = library.store.backend.authorship.untrusted_resources([head.id for head in heads])
    proofs = library.evidence.count_successes([head.id for head in heads])
    won, own = set(promoted), set(seeds)
    # By the lower bound, because a skill with one good end of one is no example yet.
    good = {
        resource
        for resource, counts in proofs.items()
        if wilson_lower_bound(counts.verified_successes, counts.verified) >= 0.5
    }
    return [
        head
        for head in heads
        if head.id not in untrusted and (head.id in won | good or head.name in own)
    ]


def nearest_cards(
    library: Library, heads: Iterable[Head], order: Mapping[str, float], origins: Mapping[int, str]
) -> list[PolicyCard]:
    """Return the cards of the skills that a search ranked best. order: ref -> how well it fits."""
    ranked = [head for head in heads if str(head.ref) in order]
    chosen = sorted(ranked, key=lambda head: -order[str(head.ref)])[:SHOWN]
    proofs = library.evidence.count_successes([head.id for head in chosen])
    cards = []
    for head in chosen:
        try:
            document = library.store.file(head, main_file(head.kind, head.name)).data
        except EvolvableError:
            continue
        proof, origin = proofs.get(head.id, SuccessCounts()), origins.get(head.id, "")
        cards.append(make_card(str(head.ref), document, proof, origin))
    return cards


def program_cards(names: Iterable[str], task: str) -> list[PolicyCard]:
    """Return the cards of skills that come with the program, read from its own files, the nearest
    to a task first.

    They are for a library that does not hold these skills: its rounds compare with them too. A
    skill below MIN_LIKENESS has none.
    """
    task_terms = content_terms(task)
    origin = "comes with Evolvable, and is not in the library"
    ranked = list[tuple[float, PolicyCard]]()
    for name in names:
        document = (seed_folder() / "skills" / name / "SKILL.md").read_bytes()
        card = make_card(f"skill:{name}", document, SuccessCounts(), origin)
        likeness = jaccard(task_terms, content_terms(card.when))
        if likeness >= MIN_LIKENESS:
            ranked.append((likeness, card))
    return [card for _, card in sorted(ranked, key=lambda pair: -pair[0])[:SHOWN]]
