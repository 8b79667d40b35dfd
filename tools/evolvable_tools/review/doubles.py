"""Whether a change is proposed already, was rejected, or is there under another name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.objects import Files
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.analyzer import FUNCTION_WORDS, terms, tokenize
from evolvable_store.storage.proposals import EXPIRED, OPEN, REJECTED, Proposal, Proposals
from evolvable_tools.library import Library

ALIKE = 0.6
"""Share of terms in common from which two texts are taken for the same thing."""

LOOKED_AT = 500
"""Proposals of each state that are compared with."""


@dataclass(frozen=True, slots=True)
class Double:
    """What is like a change. state: open, rejected, expired, or live for a resource. likeness: 0 to 1."""

    what: str
    state: str
    likeness: float
    sessions: frozenset[str] = frozenset()


def fingerprint(ref: Ref, says: str) -> str:
    """Returns by what a change is known again: what it is of, and its words without order, case and forms."""
    said = " ".join(sorted(_terms(says)))
    return hashlib.sha256(f"{ref.kind}:{ref.name}\n{said}".encode()).hexdigest()[:32]


def proposed_before(library: Library, ref: Ref, says: str) -> list[Double]:
    """Returns the proposals that wait or were turned down and are like this change, the most alike first."""
    proposals, own = Proposals(library.store.backend), _terms(says)
    found = []
    for state in (OPEN, REJECTED, EXPIRED):
        for other in proposals.in_state(state, LOOKED_AT):
            grounds = json.loads(other.grounds or "{}")
            if other.kind is not ref.kind or not isinstance(grounds, dict) or "says" not in grounds:
                continue
            same = other.fingerprint == fingerprint(ref, says)
            # New skills are the same by what they are for, edits only of the same resource.
            if not same and other.name != ref.name and (ref.kind is not Kind.SKILL or other.base):
                continue
            likeness = 1.0 if same else jaccard(own, _terms(str(grounds["says"])))
            if likeness >= ALIKE:
                found.append(Double(f"proposal {other.id}", state, likeness, _sessions(other, grounds)))
    return sorted(found, key=lambda double: -double.likeness)


def there_already(library: Library, ref: Ref, says: str, files: Files) -> list[Double]:
    """Returns the living resources of this kind that a new one is like, by its description or by its text."""
    own, body = _terms(says), _terms(_text(files))
    found = []
    for head in library.store.heads(ref.kind):
        entry = library.index.entry(head)
        about = _terms(f"{head.name} {entry.description if entry else ''}")
        likeness = jaccard(own, about)
        if likeness < ALIKE and body and len(about & own) >= 2:
            likeness = max(likeness, jaccard(body, _terms(_text(library.store.files(head)))))
        if likeness >= ALIKE:
            found.append(Double(str(head.ref), "live", likeness))
    return sorted(found, key=lambda double: -double.likeness)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Returns the share of what two sets have in common, 0 to 1."""
    return len(one & other) / len(one | other) if one or other else 0.0


def _sessions(proposal: Proposal, grounds: Mapping[str, object]) -> frozenset[str]:
    cited = grounds.get("evidence")
    theirs = (
        {str(one.get("session")) for one in cited if isinstance(one, dict)} if isinstance(cited, list) else set[str]()
    )
    return frozenset(theirs | {str(proposal.session)})


def _text(files: Files) -> str:
    return "\n".join(
        file.data[:40_000].decode("utf-8", "replace") for path, file in files.items() if path.endswith(".md")
    )


def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(word for word in tokenize(text) if word not in FUNCTION_WORDS))
