"""The rules that a review's candidates keep, each with a name and a sentence, in one order. No model takes part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from evolvable_store.resource import Kind, Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.memory import content, says_already
from evolvable_tools.review.candidates import MAX_EDIT, MAX_EDITS, MAX_FACT, MAX_FILES, Candidate, Op, What
from evolvable_tools.review.classes import never_kept
from evolvable_tools.review.evidence import Kept, shingles
from evolvable_tools.review.grounding import follows
from evolvable_tools.review.origins import ECHOED, TYPED, UNTRUSTED
from evolvable_tools.review.packet import Packet
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
MEMORY = (What.FACT, What.PREFERENCE)


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
    judge: Callable[[str, Candidate], bool] | None = None
    """A model that says whether a change follows from the quoted words; asked when they share too little."""


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


class Breach(Exception):
    """A rule is broken. code: which; reason: a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def within_bounds(case: Case) -> None:
    """A candidate is small: one claim, a few edits, a short fact."""
    c = case.candidate
    if not c.claim or len(c.claim) > MAX_CLAIM:
        raise Breach("bounds", f"A claim has 1 to {MAX_CLAIM} characters.")
    if c.what is What.SKILL_EDIT and not 1 <= len(c.edits) <= MAX_EDITS:
        raise Breach("bounds", f"A skill is changed by 1 to {MAX_EDITS} edits, not {len(c.edits)}.")
    if any(len(e.new) > MAX_EDIT or len(e.old) > MAX_EDIT * 2 for e in c.edits):
        raise Breach("bounds", f"An edit brings at most {MAX_EDIT:,} characters.")
    if c.what in MEMORY and not 1 <= len(c.text) <= MAX_FACT:
        raise Breach("bounds", f"A fact has 1 to {MAX_FACT} characters.")
    if c.what in (What.SKILL_NEW, What.PROMPT, What.AGENT) and not 1 <= len(c.files or {}) <= MAX_FILES:
        raise Breach("bounds", f"A new resource has 1 to {MAX_FILES} files.")
    if c.what is What.TASK and not (c.text and c.check):
        raise Breach("bounds", "A task has a prompt (text) and a way to check its result (check).")
    if any(e.op is Op.ADD_GUARD and not e.new.strip() for e in c.edits):
        raise Breach("bounds", "A guard that is added has a text.")


def quotes_are_there(case: Case) -> None:
    """Every claim cites evidence, and the quoted words stand in it."""
    if not case.candidate.evidence:
        raise Breach("no_evidence", "It cites nothing.")
    for cited, kept in zip(case.candidate.evidence, case.cited, strict=True):
        quote, text = flat(cited.quote), flat(kept.text)
        if len(quote) < min(MIN_QUOTE, len(text)) or quote not in text:
            raise Breach("quote_not_there", f"The words quoted from {cited.span} do not stand in it.")


def somebody_vouches(case: Case) -> None:
    """It rests on words that the user typed, or on a verified outcome; never on untrusted text alone."""
    if any(kept.origin in UNTRUSTED or kept.origin in ECHOED for kept in case.cited):
        raise Breach("untrusted", "It rests on text of a third party or of the library itself.")
    for cited in case.candidate.evidence:
        marks = set(shingles(cited.quote))
        if marks and len(marks & case.bench.packet.foreign) * 2 > len(marks):
            raise Breach("untrusted", f"The words quoted from {cited.span} are a third party's, repeated.")
    if not case.typed and not any(kept.id in case.bench.packet.verified for kept in case.cited):
        raise Breach("nobody_vouches", "Neither did the user say so, nor did a check that failed pass later.")


def change_follows(case: Case) -> None:
    """The change is about what the quoted words are about, or is the new skill that the user asked for."""
    if case.candidate.what is What.SKILL_NEW and case.bench.packet.asked_for_skill:
        return
    verified = [kept.text for kept in case.cited if kept.id in case.bench.packet.verified]
    quotes = "\n".join([*(cited.quote for cited in case.candidate.evidence), *verified])
    if follows(quotes, case.candidate):
        return
    if case.bench.judge is None or not case.bench.judge(quotes, case.candidate):
        raise Breach("does_not_follow", "The change shares too little with what it quotes; quote what it rests on.")


def nothing_foreign(case: Case) -> None:
    """What would be kept was not copied from third parties."""
    if any(mark in case.bench.packet.foreign for mark in shingles(case.candidate.content)):
        raise Breach("copied", "It has words of a third party's text, which never become an instruction.")


def not_of_a_class(case: Case) -> None:
    """It belongs to no class of things that are never kept."""
    c = case.candidate
    heads = [text.partition("\n---")[0] for text in (c.files or {}).values()]
    short = "\n".join([c.claim, c.text if c.what in MEMORY else "", *(e.description for e in c.edits), *heads])
    found = never_kept(short, c.content)
    if found is not None:
        raise Breach(found.code, found.said)


def facts_were_stated(case: Case) -> None:
    """A fact of the profile repeats what the user typed."""
    c, packet = case.candidate, case.bench.packet
    if c.what not in MEMORY:
        return
    target = Ref.parse(c.target or "memory:USER", Kind.MEMORY)
    if target.kind is not Kind.MEMORY or target.name not in ("USER", "MEMORY"):
        raise Breach("target", "Facts go to memory:USER or memory:MEMORY; SOUL is a person's alone.")
    wanted, said = content(c.text), content(" ".join(case.typed))
    if not case.typed or not wanted or len(wanted & said) / len(wanted) < STATED:
        raise Breach("not_stated", "The user did not type this; what is inferred is not kept.")
    if any(mark in packet.echoed for mark in shingles(c.text)):
        raise Breach("echo", "The library itself put these words into the session.")
    if says_already(c.text, case.bench.boot):
        raise Breach("known_at_start", "A file that the client reads at its start says so already.")


def outcome_is_settled(case: Case) -> None:
    """What a skill is to learn from came out well, and was not taken back."""
    if case.candidate.what in MEMORY:
        return
    open_turns = sorted({kept.turn for kept in case.cited if not kept.settled})
    if open_turns:
        turns = ", ".join(map(str, open_turns))
        raise Breach("not_settled", f"How turn {turns} ended is not known: no check passed, and no day has gone by.")


def a_new_skill_was_earned(case: Case) -> None:
    """A new skill rests on several episodes in several sessions, unless the user asked for it."""
    if case.candidate.what is not What.SKILL_NEW or case.bench.packet.asked_for_skill:
        return
    episodes = {(kept.session, kept.turn) for kept in case.cited}
    sessions = {kept.session for kept in case.cited}
    if len(episodes) < EPISODES or len(sessions) < SESSIONS:
        needed = f"A new skill needs {EPISODES} episodes in {SESSIONS} sessions"
        raise Breach("too_few_episodes", f"{needed}; it cites {len(episodes)} in {len(sessions)}. An edit needs one.")


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
    change_follows,
)
"""In the order in which they are asked."""


def flat(text: str) -> str:
    """Returns a text as quotes are compared: on one line, with plain quotation marks."""
    return " ".join(text.translate(_STRAIGHT).split())
