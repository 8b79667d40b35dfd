"""The last look at a candidate that keeps every rule: that its change is sound, is new, and what a scan says of it."""

import json
import re
from dataclasses import dataclass
from typing import Any

from evolvable_store.objects import Files
from evolvable_store.resource import Kind
from evolvable_store.storage.proposals import OPEN, Draft
from evolvable_store.validation import blocking_problems, find_problems
from evolvable_tools.memory import facts, same_fact
from evolvable_tools.review.candidates import Candidate, What
from evolvable_tools.review.doubles import Double, fingerprint, proposed_before, there_already
from evolvable_tools.review.drafting import Drafted
from evolvable_tools.review.evidence import Kept
from evolvable_tools.review.rules import MEMORY, Breach, Case, flat
from evolvable_tools.scan.door import kept as kept_scan
from evolvable_tools.scan.scanning import scan


@dataclass(frozen=True, slots=True)
class Admitted:
    """A candidate that keeps every rule. near: what it is like; findings: what the scan says; asks: it must wait."""

    number: int
    candidate: Candidate
    drafted: Drafted
    draft: Draft
    asks: bool


def checked(case: Case, number: int, made: Drafted, before: list[Admitted]) -> Admitted:
    """Returns a candidate with its change, which is sound, new, and refused by no scan. Raises Breach."""
    bench, candidate = case.bench, case.candidate
    if made.files == made.before:
        raise Breach("no_change", "It is there already.")
    head = bench.library.store.head_or_none(made.ref)
    if head is not None and head.frozen:
        raise Breach("frozen", f"{made.ref} is frozen; only a person changes it.")
    wrong = blocking_problems(find_problems(made.ref.kind, made.ref.name, made.files), strict=True)
    if wrong and not blocking_problems(find_problems(made.ref.kind, made.ref.name, made.before), strict=True):
        raise Breach("unsound", f"It would not be a sound {made.ref.kind}: {wrong[0]}.")
    near = _new_to_us(case, made, before)
    found = scan(_bytes(made.before) or None, _bytes(made.files), made.ref.kind)
    if found.blocks:
        raise Breach("scan", f"The scan refuses it: {next(f.why for f in found.findings if f.severity == 'high')}")
    grounds = {
        "what": candidate.what,
        "says": _says(candidate),
        "evidence": [_evidence(cited.quote, kept) for cited, kept in zip(candidate.evidence, case.cited, strict=True)],
        "near": [f"{double.what} ({double.state}, {double.likeness:.0%} alike)" for double in near],
        "adds": dict(made.adds) if made.adds else None,
        "cost": dict(bench.cost) if bench.cost else None,
        "counter_evidence": candidate.counter_evidence or None,
        "expected_signal": candidate.expected_signal or None,
        "risk": candidate.risk or None,
    }
    mark = fingerprint(made.ref, _says(candidate))
    grounds_json = json.dumps(grounds, ensure_ascii=False)
    draft = Draft(made.ref, made.base, made.files, candidate.claim, grounds_json, mark, bench.expires, kept_scan(found))
    return Admitted(number, candidate, made, draft, found.asks)


def _new_to_us(case: Case, made: Drafted, before: list[Admitted]) -> list[Double]:
    """Returns what the change is like without being the same. Raises when it is there, waits or was turned down."""
    bench, candidate, says = case.bench, case.candidate, _says(case.candidate)
    if any(fingerprint(one.drafted.ref, _says(one.candidate)) == fingerprint(made.ref, says) for one in before):
        raise Breach("double", "An earlier candidate says the same.")
    if candidate.what in MEMORY:
        known = (
            facts(made.before[path].data.decode("utf-8", "replace"))
            if (path := f"{made.ref.name}.md") in made.before
            else []
        )
        if any(same_fact(fact, candidate.text) for fact in known):
            raise Breach("double", f"{made.ref} says so already.")
    sessions = {kept.session for kept in case.cited}
    found = proposed_before(bench.library, made.ref, says)
    for double in found:
        if double.state == OPEN:
            raise Breach("double", f"{double.what} waits for a decision and says the same.")
        if sessions <= double.sessions:
            raise Breach("rejected_before", f"{double.what} said the same and was {double.state}; nothing is new.")
    if not made.base and made.ref.kind is not Kind.MEMORY and candidate.what is not What.TASK:
        live = there_already(bench.library, made.ref, says, made.files)
        if live:
            raise Breach("double", f"{live[0].what} is {live[0].likeness:.0%} the same; propose an edit of it.")
    return found


def _says(candidate: Candidate) -> str:
    """Returns the words by which a change is known again."""
    if candidate.what in MEMORY or candidate.what is What.TASK:
        return candidate.text
    heads = (re.search(r"^description:(.*)$", text, re.MULTILINE) for text in (candidate.files or {}).values())
    described = " ".join(match[1] for match in heads if match)
    return f"{candidate.name} {described or candidate.claim}" if candidate.files else candidate.claim


def _evidence(quote: str, kept: Kept) -> dict[str, Any]:
    return {"session": kept.session, "turn": kept.turn, "span": kept.id, "origin": kept.origin, "quote": flat(quote)}


def _bytes(files: Files) -> dict[str, bytes]:
    return {path: file.data for path, file in files.items()}
