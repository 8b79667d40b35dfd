"""The rules that a review's candidates keep, each with a code, a sentence and a test. No model
takes part.

They cover what is never stored, and whether a change follows from the words and names that it
quotes.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from evolvable_store.resource import Kind, Ref
from evolvable_store.search import tokenize
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction import Redactor
from evolvable_tools.review import candidates
from evolvable_tools.review.review_request import (
    ECHOED,
    TYPED,
    UNTRUSTED,
    EvidenceSpan,
    ReviewRequest,
    shingles,
)
from evolvable_tools.verbs import content_terms, says_already


@dataclass(frozen=True, slots=True)
class NeverStoreRule:
    """A class of things that are never stored.

    everywhere: its words mean it in a whole skill too, not only in a claim or a fact.
    """

    code: str
    reason: str
    pattern: re.Pattern[str]
    everywhere: bool = False


_TABLE = tomllib.loads(Path(__file__).with_name("never_kept.toml").read_text("utf-8"))
NEVER_KEPT = tuple(
    NeverStoreRule(
        row.pop("code"),
        row.pop("said"),
        re.compile("|".join(row.pop("patterns")), re.IGNORECASE),
        **row,
    )
    for row in _TABLE["class"]
)
"""Every class of things that are never stored.

Those that are not `everywhere` are looked for in the claim, the fact and the description.
"""


def find_never_store_rule(short: str, whole: str) -> NeverStoreRule | None:
    """Return the first class that a change belongs to.

    short: its claim and fact. whole: all its text.
    """
    return next(
        (rule for rule in NEVER_KEPT if rule.pattern.search(whole if rule.everywhere else short)),
        None,
    )


# With so few words a second shared one cannot be expected.
FEW = 3
"""Content words of a quote at most, so that one shared word is enough."""

MOSTLY = 0.6
"""Share of the content words that an edit adds, from which quotes that have them say it."""

_ENTITY = re.compile("|".join(_TABLE["entity"]))
_EMPTY: str = _TABLE["empty"]
"""Words that so many sentences have that they say nothing of what a change is about."""


def shared_terms(quotes: str, candidate: candidates.ReviewCandidate) -> tuple[set[str], set[str]]:
    """Return the names and the content words that the quotes and the change have in common."""
    change = changed_text(candidate)
    return entities(quotes) & entities(change), content_stems(quotes) & content_stems(change)


def follows(quotes: str, candidate: candidates.ReviewCandidate) -> bool:
    """Return whether a change shares enough with the words that it rests on.

    A shared name, number or path is enough, as are two shared content words. One is enough for a
    short quote, and where most of what the change adds is in the quotes.
    """
    names, terms = shared_terms(quotes, candidate)
    if names or len(terms) >= (1 if len(content_stems(quotes)) <= FEW else 2):
        return True
    new = content_stems("\n".join(edit.new for edit in candidate.edits))
    old = content_stems("\n".join(edit.old for edit in candidate.edits))
    added = new - old
    return bool(terms & added) and len(terms & added) >= MOSTLY * len(added)


def changed_text(candidate: candidates.ReviewCandidate) -> str:
    """Return what a candidate puts in or takes out, without its claim: a model says of that what it
    likes.
    """
    edits = (f"{e.old}\n{e.new}\n{e.after}\n{e.description}\n{e.triggers}" for e in candidate.edits)
    fields = (candidate.name, candidate.target.partition(":")[2], candidate.text, candidate.check)
    return "\n".join((*fields, *edits, *candidate.files.values()))


def entities(text: str) -> set[str]:
    """Return the identifiers, paths, numbers and quoted names of a text."""
    return {match.strip("`.,:").casefold() for match in _ENTITY.findall(text)} - {""}


def content_stems(text: str) -> set[str]:
    """Return the stems of the words that a text is about."""
    letters = {word for word in tokenize(text) if len(word) < 2}
    return content_terms(text) - content_terms(_EMPTY) - letters


EPISODES = 3
"""Episodes that a new skill needs, in SESSIONS sessions."""
SESSIONS = 2

MIN_QUOTE = 8
"""Characters of a quote, unless the whole piece of evidence is shorter."""

STATED = 0.6
"""Share of a fact's words that must be among the words that the user typed."""
MAX_CLAIM = 400  # characters
# Models answer with typographic quotation marks and no-break spaces where the text has plain ones.
_STRAIGHT = str.maketrans("’‘“”\u00a0", "''\"\" ")
OF_PERSON = re.compile(_TABLE["person"], re.IGNORECASE)
"""Words of a line that is about the person."""

MEMORY = (candidates.CandidateKind.FACT, candidates.CandidateKind.PREFERENCE)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What candidates are judged by. boot: texts that a client reads anyway, such as CLAUDE.md."""

    library: Library
    caller: Caller
    packet: ReviewRequest
    redactor: Redactor
    today: date
    expires: str
    boot: tuple[str, ...] = ()
    cost: Mapping[str, Any] | None = None
    judge: Callable[[str, candidates.ReviewCandidate], bool] | None = None
    """A model that says whether a change follows from the quoted words; asked when they share too
    little.
    """
    short: bool = True
    """Whether a lesson is at most a few lines, which a person decides at a glance. A round holds
    longer changes.
    """


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One candidate before the rules, with the pieces of evidence that it cites, in the order of
    its quotes.
    """

    context: RuleContext
    candidate: candidates.ReviewCandidate
    cited: tuple[EvidenceSpan, ...]

    @property
    def typed_quotes(self) -> list[str]:
        """The quoted words that the user typed."""
        pairs = zip(self.candidate.evidence, self.cited, strict=True)
        return [cited.quote for cited, span in pairs if span.origin == TYPED]


class RuleViolation(Exception):
    """A rule is broken. code: which. reason: a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def within_bounds(case: RuleCase) -> None:
    """Refuse a candidate that passes a limit: on its claim, its edits, its fact or its files."""
    c = case.candidate
    if not c.claim or len(c.claim) > MAX_CLAIM:
        raise RuleViolation("bounds", f"A claim has 1 to {MAX_CLAIM} characters.")
    is_edit = c.what is candidates.CandidateKind.SKILL_EDIT
    if is_edit and not 1 <= len(c.edits) <= candidates.MAX_EDITS:
        raise RuleViolation(
            "bounds",
            f"A skill is changed by 1 to {candidates.MAX_EDITS} edits, not {len(c.edits)}.",
        )
    longest_new = max((len(edit.new) for edit in c.edits), default=0)
    longest_old = max((len(edit.old) for edit in c.edits), default=0)
    if longest_new > candidates.MAX_EDIT or longest_old > candidates.MAX_EDIT * 2:
        raise RuleViolation("bounds", f"An edit brings at most {candidates.MAX_EDIT:,} characters.")
    if c.what in MEMORY and not 1 <= len(c.text) <= candidates.MAX_FACT:
        raise RuleViolation("bounds", f"A fact has 1 to {candidates.MAX_FACT} characters.")
    if c.what in candidates.NEW_KINDS and not 1 <= len(c.files) <= candidates.MAX_FILES:
        raise RuleViolation("bounds", f"A new resource has 1 to {candidates.MAX_FILES} files.")
    if c.what is candidates.CandidateKind.TASK and not (c.text and c.check):
        raise RuleViolation(
            "bounds", "A task has a prompt (text) and a way to check its result (check)."
        )
    if any(e.op is candidates.SkillEditOp.ADD_GUARD and not e.new.strip() for e in c.edits):
        raise RuleViolation("bounds", "A guard that is added has a text.")


def quotes_are_there(case: RuleCase) -> None:
    """Refuse a candidate without evidence, or with a quote that does not stand in what it cites."""
    if not case.candidate.evidence:
        raise RuleViolation("no_evidence", "It cites nothing.")
    for cited, span in zip(case.candidate.evidence, case.cited, strict=True):
        quote, text = flatten_quote(cited.quote), flatten_quote(span.text)
        # A very short quote stands in nearly every text and proves nothing.
        if len(quote) < min(MIN_QUOTE, len(text)) or quote not in text:
            raise RuleViolation(
                "quote_not_there", f"The words quoted from {cited.span} do not stand in it."
            )


def somebody_vouches(case: RuleCase) -> None:
    """Refuse what cites text of third parties, and what neither the user typed nor a check
    verified.
    """
    if any(span.origin in UNTRUSTED or span.origin in ECHOED for span in case.cited):
        raise RuleViolation(
            "untrusted", "It rests on text of a third party or of the library itself."
        )
    for cited in case.candidate.evidence:
        marks = set(shingles(cited.quote))
        # A person may paste text of a third party: a quote is foreign when most of its runs of
        # words are.
        if marks and len(marks & case.context.packet.foreign) * 2 > len(marks):
            raise RuleViolation(
                "untrusted", f"The words quoted from {cited.span} are a third party's, repeated."
            )
    is_verified = any(span.id in case.context.packet.verified for span in case.cited)
    if not case.typed_quotes and not is_verified:
        raise RuleViolation(
            "nobody_vouches", "Neither did the user say so, nor did a check that failed pass later."
        )


def change_follows(case: RuleCase) -> None:
    """Refuse a change about something else than its quotes, unless the user asked for a
    new skill.
    """
    is_new_skill = case.candidate.what is candidates.CandidateKind.SKILL_NEW
    if is_new_skill and case.context.packet.asked_for_skill:
        return
    verified = [span.text for span in case.cited if span.id in case.context.packet.verified]
    quotes = "\n".join([*(cited.quote for cited in case.candidate.evidence), *verified])
    if follows(quotes, case.candidate):
        return
    if case.context.judge is None or not case.context.judge(quotes, case.candidate):
        reason = "The change shares too little with what it quotes; quote what it rests on."
        raise RuleViolation("does_not_follow", reason)


def nothing_foreign(case: RuleCase) -> None:
    """Refuse text that was copied from third parties."""
    if any(mark in case.context.packet.foreign for mark in shingles(case.candidate.content)):
        raise RuleViolation(
            "copied", "It has words of a third party's text, which never become an instruction."
        )


def not_of_a_class(case: RuleCase) -> None:
    """Refuse what belongs to a class of things that are never stored."""
    c = case.candidate
    heads = [text.partition("\n---")[0] for text in c.files.values()]
    short = "\n".join(
        [c.claim, c.text if c.what in MEMORY else "", *(e.description for e in c.edits), *heads]
    )
    rule = find_never_store_rule(short, c.content)
    if rule is not None:
        raise RuleViolation(rule.code, rule.reason)


def belongs_into_a_skill(case: RuleCase) -> None:
    """Refuse an edit that says who the person is or what they like, and not how work is done."""
    c = case.candidate
    if c.what is not candidates.CandidateKind.SKILL_EDIT:
        return
    added = "\n".join(edit.new for edit in c.edits)
    before = "\n".join(edit.old for edit in c.edits)
    if OF_PERSON.search(added) and not OF_PERSON.search(before):
        reason = (
            "It says who the person is or what they like: propose it as a preference for "
            "memory:USER."
        )
        raise RuleViolation("wrong_place", reason)


def facts_were_stated(case: RuleCase) -> None:
    """Refuse a fact that the user did not type, that the library put in, or that is
    known anyway.
    """
    c, packet = case.candidate, case.context.packet
    if c.what not in MEMORY:
        return
    target = Ref.parse(c.target or "memory:USER", Kind.MEMORY)
    if target.kind is not Kind.MEMORY or target.name not in ("USER", "MEMORY"):
        raise RuleViolation(
            "target", "Facts go to memory:USER or memory:MEMORY; SOUL is a person's alone."
        )
    fact_terms, typed_terms = content_terms(c.text), content_terms(" ".join(case.typed_quotes))
    stated = len(fact_terms & typed_terms) / len(fact_terms) if fact_terms else 0.0
    if not case.typed_quotes or stated < STATED:
        raise RuleViolation(
            "not_stated", "The user did not type this; what is inferred is not kept."
        )
    if any(mark in packet.echoed for mark in shingles(c.text)):
        raise RuleViolation("echo", "The library itself put these words into the session.")
    if says_already(c.text, case.context.boot):
        raise RuleViolation(
            "known_at_start", "A file that the client reads at its start says so already."
        )


def outcome_is_settled(case: RuleCase) -> None:
    """Refuse a lesson from work whose outcome is not known yet."""
    if case.candidate.what in MEMORY:
        return
    open_turns = sorted({span.turn for span in case.cited if not span.settled})
    if open_turns:
        turns = ", ".join(map(str, open_turns))
        reason = f"How turn {turns} ended is not known: no check passed, and no day has gone by."
        raise RuleViolation("not_settled", reason)


def a_new_skill_was_earned(case: RuleCase) -> None:
    """Refuse a new skill from too few episodes or sessions, unless the user asked for it."""
    is_new_skill = case.candidate.what is candidates.CandidateKind.SKILL_NEW
    if not is_new_skill or case.context.packet.asked_for_skill:
        return
    episodes = {(span.session, span.turn) for span in case.cited}
    sessions = {span.session for span in case.cited}
    if len(episodes) < EPISODES or len(sessions) < SESSIONS:
        needed = f"A new skill needs {EPISODES} episodes in {SESSIONS} sessions"
        reason = f"{needed}; it cites {len(episodes)} in {len(sessions)}. An edit needs one."
        raise RuleViolation("too_few_episodes", reason)


RULES: tuple[Callable[[RuleCase], None], ...] = (
    # Cheap checks first; `change_follows` is last because it may ask a model.
    within_bounds,
    quotes_are_there,
    somebody_vouches,
    not_of_a_class,
    nothing_foreign,
    belongs_into_a_skill,
    facts_were_stated,
    outcome_is_settled,
    a_new_skill_was_earned,
    change_follows,
)
"""The rules, in the order in which they are applied."""


def flatten_quote(text: str) -> str:
    """Return a text as quotes are compared: on one line, with plain quotation marks."""
    return " ".join(text.translate(_STRAIGHT).split())
