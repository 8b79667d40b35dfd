"""What of a review's candidates is admitted: rules in code, each with a name and a sentence, in one order.

No model takes part. A candidate that breaks a rule is refused with its code and a sentence that says what would have to
be otherwise.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from evolvable_store.errors import EvolvableError
from evolvable_store.objects import Files
from evolvable_store.problems import problems, refused
from evolvable_store.proposals import OPEN, Draft
from evolvable_store.resource import Kind, Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.memory import content, facts, same_fact, says_already
from evolvable_tools.review.candidates import (
    MAX_CANDIDATES,
    MAX_EDIT,
    MAX_EDITS,
    MAX_FACT,
    MAX_FILES,
    Candidate,
    Op,
    What,
    parsed,
)
from evolvable_tools.review.classes import never_kept
from evolvable_tools.review.doubles import Double, fingerprint, proposed_before, there_already
from evolvable_tools.review.drafting import Drafted, drafted
from evolvable_tools.review.evidence import Kept, shingles
from evolvable_tools.review.origins import ECHOED, TYPED, UNTRUSTED
from evolvable_tools.review.packet import Packet
from evolvable_tools.review.results import Refusal
from evolvable_tools.scan.door import kept as kept_scan
from evolvable_tools.scan.scanning import scan
from evolvable_tools.sessions.redact import Redactor

EPISODES = 3
"""Episodes that a new skill needs, in SESSIONS sessions."""

SESSIONS = 2

MIN_QUOTE = 8
"""Characters of a quote, unless the whole piece of evidence is shorter."""

STATED = 0.6
"""Share of a fact's words that must stand in the words that the user typed."""

MAX_CLAIM = 400

_STRAIGHT = str.maketrans("’‘“”\u00a0", "''\"\" ")
_MEMORY = (What.FACT, What.PREFERENCE)
_SKILLS = (What.SKILL_EDIT, What.SKILL_NEW)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A candidate that keeps every rule. near: what it is like; findings: what the scan says; asks: it must wait."""

    number: int
    candidate: Candidate
    drafted: Drafted
    draft: Draft
    asks: bool


@dataclass(frozen=True, slots=True)
class Bench:
    """What candidates are judged by. boot: texts that a client reads anyway, such as CLAUDE.md."""

    library: Library
    caller: Caller
    packet: Packet
    redactor: Redactor
    today: date
    expires: str
    boot: tuple[str, ...] = ()
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate before the rules, with the pieces of evidence that it cites, in the order of its quotes."""

    bench: Bench
    candidate: Candidate
    cited: tuple[Kept, ...]

    @property
    def typed(self) -> list[str]:
        """The quoted words that the user typed."""
        pairs = zip(self.candidate.evidence, self.cited, strict=True)
        return [cited.quote for cited, kept in pairs if kept.origin == TYPED]


class _Refused(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def admit(bench: Bench, given: list[Mapping[str, Any]]) -> tuple[list[Admitted], list[Refusal]]:
    """Returns the candidates that keep every rule, and those that do not, each with the first rule it breaks."""
    admitted: list[Admitted] = []
    refusals: list[Refusal] = []
    for number, one in enumerate(given, 1):
        claim = str(one.get("claim", ""))[:MAX_CLAIM] if isinstance(one, Mapping) else ""
        claim = bench.redactor.redact(claim)[0]
        try:
            if number > MAX_CANDIDATES:
                raise _Refused("too_many", f"At most {MAX_CANDIDATES} candidates are looked at.")
            admitted.append(_admitted(bench, number, one, admitted))
        except _Refused as refusal:
            refusals.append(Refusal(number, claim, refusal.code, refusal.reason))
        except EvolvableError as error:
            refusals.append(Refusal(number, claim, "cannot_be_made", bench.redactor.redact(error.text)[0]))
    return admitted, refusals


def _admitted(bench: Bench, number: int, given: Mapping[str, Any], before: list[Admitted]) -> Admitted:
    # What a model says is redacted before anything looks at it: a secret that it made up or kept is none of ours.
    cleaned = bench.redactor.redact_value(given)[0]
    try:
        candidate = parsed(cleaned)
    except (ValueError, TypeError, KeyError) as error:
        raise _Refused("schema", f"It does not fit the schema: {error}.") from None
    case = Case(bench, candidate, tuple(_cited(bench, candidate)))
    for rule in RULES:
        rule(case)
    try:
        made = drafted(bench.library, bench.caller, candidate, bench.packet.session, bench.today)
    except UnicodeDecodeError:
        raise _Refused("cannot_be_made", "The file to change is no text.") from None
    return _checked(case, number, made, before)


def _cited(bench: Bench, candidate: Candidate) -> list[Kept]:
    known = {kept.id: kept for kept in bench.packet.evidence}
    missing = [cited.span for cited in candidate.evidence if cited.span not in known]
    if missing:
        raise _Refused("no_such_span", f"There is no evidence {', '.join(missing[:5])}.")
    return [known[cited.span] for cited in candidate.evidence]


def within_bounds(case: Case) -> None:
    """A candidate is small: one claim, a few edits, a short fact."""
    c = case.candidate
    if not c.claim or len(c.claim) > MAX_CLAIM:
        raise _Refused("bounds", f"A claim has 1 to {MAX_CLAIM} characters.")
    if c.what is What.SKILL_EDIT and not 1 <= len(c.edits) <= MAX_EDITS:
        raise _Refused("bounds", f"A skill is changed by 1 to {MAX_EDITS} edits, not {len(c.edits)}.")
    if any(len(e.new) > MAX_EDIT or len(e.old) > MAX_EDIT * 2 for e in c.edits):
        raise _Refused("bounds", f"An edit brings at most {MAX_EDIT:,} characters.")
    if c.what in _MEMORY and not 1 <= len(c.text) <= MAX_FACT:
        raise _Refused("bounds", f"A fact has 1 to {MAX_FACT} characters.")
    if c.what in (What.SKILL_NEW, What.PROMPT, What.AGENT) and not 1 <= len(c.files or {}) <= MAX_FILES:
        raise _Refused("bounds", f"A new resource has 1 to {MAX_FILES} files.")
    if c.what is What.TASK and not (c.text and c.check):
        raise _Refused("bounds", "A task has a prompt (text) and a way to check its result (check).")
    if any(e.op is Op.ADD_GUARD and not e.new.strip() for e in c.edits):
        raise _Refused("bounds", "A guard that is added has a text.")


def quotes_are_there(case: Case) -> None:
    """Every claim cites evidence, and the quoted words stand in it."""
    if not case.candidate.evidence:
        raise _Refused("no_evidence", "It cites nothing.")
    for cited, kept in zip(case.candidate.evidence, case.cited, strict=True):
        quote, text = _flat(cited.quote), _flat(kept.text)
        if len(quote) < min(MIN_QUOTE, len(text)) or quote not in text:
            raise _Refused("quote_not_there", f"The words quoted from {cited.span} do not stand in it.")


def somebody_vouches(case: Case) -> None:
    """It rests on words that the user typed, or on a verified outcome; never on untrusted text alone."""
    if any(kept.origin in UNTRUSTED or kept.origin in ECHOED for kept in case.cited):
        raise _Refused("untrusted", "It rests on text of a third party or of the library itself.")
    for cited in case.candidate.evidence:
        marks = set(shingles(cited.quote))
        if marks and len(marks & case.bench.packet.foreign) * 2 > len(marks):
            raise _Refused("untrusted", f"The words quoted from {cited.span} are a third party's, repeated.")
    if not case.typed and not any(kept.id in case.bench.packet.verified for kept in case.cited):
        raise _Refused("nobody_vouches", "Neither did the user say so, nor did a check that failed pass later.")


def nothing_foreign(case: Case) -> None:
    """What would be kept was not copied from third parties."""
    if any(mark in case.bench.packet.foreign for mark in shingles(case.candidate.content)):
        raise _Refused("copied", "It has words of a third party's text, which never become an instruction.")


def not_of_a_class(case: Case) -> None:
    """It belongs to no class of things that are never kept."""
    c = case.candidate
    heads = [text.partition("\n---")[0] for text in (c.files or {}).values()]
    short = "\n".join([c.claim, c.text if c.what in _MEMORY else "", *(e.description for e in c.edits), *heads])
    found = never_kept(short, c.content)
    if found is not None:
        raise _Refused(found.code, found.said)


def facts_were_stated(case: Case) -> None:
    """A fact of the profile repeats what the user typed."""
    c, packet = case.candidate, case.bench.packet
    if c.what not in _MEMORY:
        return
    target = Ref.parse(c.target or "memory:USER", Kind.MEMORY)
    if target.kind is not Kind.MEMORY or target.name not in ("USER", "MEMORY"):
        raise _Refused("target", "Facts go to memory:USER or memory:MEMORY; SOUL is a person's alone.")
    wanted, said = content(c.text), content(" ".join(case.typed))
    if not case.typed or not wanted or len(wanted & said) / len(wanted) < STATED:
        raise _Refused("not_stated", "The user did not type this; what is inferred is not kept.")
    if any(mark in packet.echoed for mark in shingles(c.text)):
        raise _Refused("echo", "The library itself put these words into the session.")
    if says_already(c.text, case.bench.boot):
        raise _Refused("known_at_start", "A file that the client reads at its start says so already.")


def outcome_is_settled(case: Case) -> None:
    """What a skill is to learn from came out well, and was not taken back."""
    if case.candidate.what in _MEMORY:
        return
    open_turns = sorted({kept.turn for kept in case.cited if not kept.settled})
    if open_turns:
        turns = ", ".join(map(str, open_turns))
        raise _Refused("not_settled", f"How turn {turns} ended is not known: no check passed, and no day has gone by.")


def a_new_skill_was_earned(case: Case) -> None:
    """A new skill rests on several episodes in several sessions, unless the user asked for it."""
    if case.candidate.what is not What.SKILL_NEW or case.bench.packet.asked_for_skill:
        return
    episodes = {(kept.session, kept.turn) for kept in case.cited}
    sessions = {kept.session for kept in case.cited}
    if len(episodes) < EPISODES or len(sessions) < SESSIONS:
        needed = f"A new skill needs {EPISODES} episodes in {SESSIONS} sessions"
        raise _Refused("too_few_episodes", f"{needed}; it cites {len(episodes)} in {len(sessions)}. An edit needs one.")


Rule = Callable[[Case], None]

RULES: tuple[Rule, ...] = (
    within_bounds,
    quotes_are_there,
    somebody_vouches,
    not_of_a_class,
    nothing_foreign,
    facts_were_stated,
    outcome_is_settled,
    a_new_skill_was_earned,
)
"""In the order in which they are asked."""


def _checked(case: Case, number: int, made: Drafted, before: list[Admitted]) -> Admitted:
    """Looks at the change itself: that it changes something, is sound, is new, and what the scan says of it."""
    bench, candidate = case.bench, case.candidate
    if made.files == made.before:
        raise _Refused("no_change", "It is there already.")
    head = bench.library.store.head_or_none(made.ref)
    if head is not None and head.frozen:
        raise _Refused("frozen", f"{made.ref} is frozen; only a person changes it.")
    wrong = refused(problems(made.ref.kind, made.ref.name, made.files), strict=True)
    if wrong and not refused(problems(made.ref.kind, made.ref.name, made.before), strict=True):
        raise _Refused("unsound", f"It would not be a sound {made.ref.kind}: {wrong[0]}.")
    near = _new_to_us(case, made, before)
    found = scan(_bytes(made.before) or None, _bytes(made.files), made.ref.kind)
    if found.blocks:
        raise _Refused("scan", f"The scan refuses it: {next(f.why for f in found.findings if f.severity == 'high')}")
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
        raise _Refused("double", "An earlier candidate says the same.")
    if candidate.what in _MEMORY:
        known = (
            facts(made.before[path].data.decode("utf-8", "replace"))
            if (path := f"{made.ref.name}.md") in made.before
            else []
        )
        if any(same_fact(fact, candidate.text) for fact in known):
            raise _Refused("double", f"{made.ref} says so already.")
    sessions = {kept.session for kept in case.cited}
    found = proposed_before(bench.library, made.ref, says)
    for double in found:
        if double.state == OPEN:
            raise _Refused("double", f"{double.what} waits for a decision and says the same.")
        if sessions <= double.sessions:
            raise _Refused("rejected_before", f"{double.what} said the same and was {double.state}; nothing is new.")
    if not made.base and made.ref.kind is not Kind.MEMORY and candidate.what is not What.TASK:
        live = there_already(bench.library, made.ref, says, made.files)
        if live:
            raise _Refused("double", f"{live[0].what} is {live[0].likeness:.0%} the same; propose an edit of it.")
    return found


def _says(candidate: Candidate) -> str:
    """Returns the words by which a change is known again."""
    if candidate.what in _MEMORY or candidate.what is What.TASK:
        return candidate.text
    heads = (re.search(r"^description:(.*)$", text, re.MULTILINE) for text in (candidate.files or {}).values())
    described = " ".join(match[1] for match in heads if match)
    return f"{candidate.name} {described or candidate.claim}" if candidate.files else candidate.claim


def _evidence(quote: str, kept: Kept) -> dict[str, Any]:
    return {"session": kept.session, "turn": kept.turn, "span": kept.id, "origin": kept.origin, "quote": _flat(quote)}


def _flat(text: str) -> str:
    return " ".join(text.translate(_STRAIGHT).split())


def _bytes(files: Files) -> dict[str, bytes]:
    return {path: file.data for path, file in files.items()}
