"""The rules of a round's changes: of each cluster at most one, in create, refine, prune, hold and no-op."""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum

from evolvable_store.objects import Files
from evolvable_store.storage.evidence import SuccessCounts
from evolvable_tools.metrics import wilson_lower_bound, wilson_upper_bound
from evolvable_tools.review.admission import ALIKE, AdmittedCandidate, jaccard
from evolvable_tools.rounds.policy_cards import PolicyCard
from evolvable_tools.verbs.memory_facts import content_terms

HEAVY = 0.4
"""Share of changed lines over which a change is a rewriting, which a person sees before any session does."""

PRUNE_ENDS = 5
"""Verified uses that a skill must have before it may be pruned."""

BASE_ENDS = 20
"""Verified sessions without any skill from which their mean is compared with."""

SAME = 0.9
"""Likeness of two skills' texts from which one of them is too many."""


class EvolveAction(StrEnum):
    """What a round does about one cluster."""

    CREATE = "create"
    REFINE = "refine"
    PRUNE = "prune"
    HOLD = "hold"
    NO_OP = "no-op"


def action_for(candidate: AdmittedCandidate | None, cards: Iterable[PolicyCard]) -> tuple[EvolveAction, str]:
    """Return what a round does with the candidate of a cluster, and why. cards: those that are nearest to it."""
    if candidate is None:
        return EvolveAction.NO_OP, "no change was admitted"
    draft = candidate.draft
    if not draft.base:
        said = content_terms(texts_of(draft.files))
        for card in cards:
            about = content_terms(" ".join((card.when, card.reasoning, *card.steps, *card.donts, card.check)))
            if jaccard(said, about) >= ALIKE:
                return EvolveAction.NO_OP, f"the policy card of {card.ref} says it already"
        return EvolveAction.CREATE, "a new skill has no incumbent to be tried against, so a person decides"
    share = changed_share(candidate.drafted.before, draft.files)
    if share > HEAVY:
        return EvolveAction.HOLD, f"{share:.0%} of the lines change, so a person decides"
    return EvolveAction.REFINE, f"{share:.0%} of the lines change"


def changed_share(before: Files, after: Files) -> float:
    """Return the share of lines that a change adds or takes away, of the longer of both texts."""
    old, new = _lines(before), _lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1 - same / max(len(old), len(new), 1)


def _lines(files: Files) -> list[str]:
    return [f"{path}\0{line}" for path in sorted(files) for line in _decoded(files[path].data).splitlines()]


def texts_of(files: Files) -> str:
    """Return the documents of a resource as one text."""
    return "\n".join(_decoded(files[path].data) for path in sorted(files) if path.endswith(".md"))


def _decoded(data: bytes) -> str:
    return data[:100_000].decode("utf-8", "replace")


def prunable(
    proofs: Mapping[str, SuccessCounts], texts: Mapping[str, str], base: SuccessCounts
) -> list[tuple[str, str]]:
    """Return the skills that are to go, each with the reason, the worst first.

    proofs: verified ends of each skill by its ref; texts: their texts. base: how verified sessions end without a skill.
    """
    found: dict[str, str] = {}
    mean = base.successes / base.ends if base.ends >= BASE_ENDS else None
    ends = {ref: (one.verified_successes, one.verified) for ref, one in proofs.items()}
    for ref, (good, n) in ends.items():
        if mean is not None and n >= PRUNE_ENDS and wilson_upper_bound(good, n) < mean:
            found[ref] = f"{good} of {n} verified uses went well, {mean:.0%} of {base.ends} sessions without a skill"
    terms = {ref: content_terms(texts[ref]) for ref, (_, n) in ends.items() if n >= PRUNE_ENDS and ref in texts}
    for ref, words in terms.items():
        for other, theirs in terms.items():
            better = wilson_lower_bound(*ends[other]) > wilson_lower_bound(*ends[ref])
            if ref not in found and better and other not in found and jaccard(words, theirs) >= SAME:
                found[ref] = f"{other} says the same and does better"
    return sorted(found.items(), key=lambda one: (wilson_upper_bound(*ends[one[0]]), one[0]))
