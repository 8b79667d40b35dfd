"""The changes of a round: admit a candidate by the rules of reviews, and try it, hold it, or
propose what is to go.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from evolvable_evolve.rounds.diagnosis import ProposalSign, TraceDiagnosis, misfit
from evolvable_evolve.rounds.policy_cards import PolicyCard
from evolvable_evolve.rounds.pool import BY_PERSON, TooManyTrials, put_on_trial
from evolvable_store import Actor, Files, Head, format_time
from evolvable_store.errors import (
    Conflict,
    EvolvableError,
    InvalidArgument,
    Refused,
    TryAgain,
    Unsafe,
)
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.storage import OPEN, Draft, PooledVersion, PoolState, SuccessCounts
from evolvable_tools import Caller, Library, verbs, wilson_lower_bound, wilson_upper_bound
from evolvable_tools.review import (
    ALIKE,
    WAITS,
    AdmittedCandidate,
    ReviewRequest,
    ReviewSettings,
    RuleContext,
    admit,
    jaccard,
    parse_candidate,
)
from evolvable_tools.verbs import content_terms, remove_resource

# Chosen, not measured: a smaller share sends more changes to the person, a larger one tries
# rewritings on sessions.
HEAVY = 0.4
"""Share of changed lines over which a change is a rewriting, which a person sees before any session
does.
"""

# Five failures of five have an upper bound of 35 % by Wilson, so only a skill that nearly always
# fails goes so early.
PRUNE_ENDS = 5
"""Verified uses that a skill must have before it may be pruned."""

# With fewer sessions the mean that skills are compared with is itself uncertain by more than 20
# points.
BASE_ENDS = 20
"""Verified sessions without any skill that there must be, before skills are compared with them."""

# Jaccard index of the words: two skills that differ in a tenth of them may still be about different
# things, so the better one must also have better ends.
SAME = 0.9
"""Likeness of two skills' texts from which the worse of them may be pruned."""


class EvolveAction(StrEnum):
    """What a round does about one cluster."""

    CREATE = "create"
    REFINE = "refine"
    PRUNE = "prune"
    HOLD = "hold"
    NO_OP = "no-op"


def action_for(
    candidate: AdmittedCandidate | None, cards: Iterable[PolicyCard]
) -> tuple[EvolveAction, str]:
    """Return what a round does with the candidate of a cluster, and why.

    cards: those that are nearest to it.
    """
    if candidate is None:
        return EvolveAction.NO_OP, "no change was admitted"
    draft = candidate.draft
    if not draft.base:
        draft_terms = content_terms(texts_of(draft.files))
        for card in cards:
            about = content_terms(
                " ".join((card.when, card.reasoning, *card.steps, *card.donts, card.check))
            )
            if jaccard(draft_terms, about) >= ALIKE:
                return EvolveAction.NO_OP, f"the policy card of {card.ref} says it already"
        return (
            EvolveAction.CREATE,
            "a new skill has no incumbent to be tried against, so a person decides",
        )
    share = changed_share(candidate.change.before, draft.files)
    if share > HEAVY:
        return EvolveAction.HOLD, f"{share:.0%} of the lines change, so a person decides"
    return EvolveAction.REFINE, f"{share:.0%} of the lines change"


def changed_share(before: Files, after: Files) -> float:
    """Return the share of lines that a change adds or takes away, of the longer of both texts."""
    old, new = _list_lines(before), _list_lines(after)
    # autojunk would leave lines that are frequent in a long text out of the comparison.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1 - same / max(len(old), len(new), 1)


def _list_lines(files: Files) -> list[str]:
    return [
        f"{path}\0{line}"
        for path in sorted(files)
        for line in _decode(files[path].data).splitlines()
    ]


def texts_of(files: Files) -> str:
    """Return the documents of a resource as one text."""
    return "\n".join(_decode(files[path].data) for path in sorted(files) if path.endswith(".md"))


def _decode(data: bytes) -> str:
    # Bounds the time of the comparison, which grows with the square of the lines.
    return data[:100_000].decode("utf-8", "replace")


def prunable(
    proofs: Mapping[str, SuccessCounts], texts: Mapping[str, str], base: SuccessCounts
) -> list[tuple[str, str]]:
    """Return the skills that are to go, each with the reason, the worst first.

    proofs: verified ends of each skill by its ref. texts: documents of each skill by its ref. base:
    how verified sessions without a skill end.
    """
    reasons: dict[str, str] = {}
    mean = base.successes / base.ends if base.ends >= BASE_ENDS else None
    ends = {ref: (counts.verified_successes, counts.verified) for ref, counts in proofs.items()}
    for ref, (good, n) in ends.items():
        # The upper bound, so that a skill is blamed only where chance is no explanation.
        if mean is not None and n >= PRUNE_ENDS and wilson_upper_bound(good, n) < mean:
            reasons[ref] = (
                f"{good} of {n} verified uses went well, {mean:.0%} of {base.ends} sessions "
                "without a skill"
            )
    terms = {
        ref: content_terms(texts[ref])
        for ref, (_, n) in ends.items()
        if n >= PRUNE_ENDS and ref in texts
    }
    for ref, words in terms.items():
        for other, other_words in terms.items():
            # Both must still stay: of three skills that say the same the best is not pruned.
            if ref in reasons or other in reasons:
                continue
            better = wilson_lower_bound(*ends[other]) > wilson_lower_bound(*ends[ref])
            if better and jaccard(words, other_words) >= SAME:
                reasons[ref] = f"{other} says the same and does better"
    return sorted(reasons.items(), key=lambda item: (wilson_upper_bound(*ends[item[0]]), item[0]))


# A person who rejected the removal is asked again only when there is something new to see.
MORE_EVIDENCE = 1.5
"""How many times the verified uses a skill must have again before its removal is proposed again."""


@dataclass(frozen=True, slots=True)
class RoundChange:
    """What a round did about one cluster. proposal_id: what waits; trial: what is on trial."""

    cluster: str
    action: str
    why: str
    ref: str = ""
    proposal_id: int | None = None
    trial: int | None = None


def admit_for(
    library: Library,
    caller: Caller,
    settings: ReviewSettings,
    packet: ReviewRequest,
    candidate_fields: Mapping[str, Any],
    sign: ProposalSign,
    diagnosis: TraceDiagnosis,
    cluster: str,
    cost: Mapping[str, Any],
) -> tuple[AdmittedCandidate | None, str]:
    """Return a candidate that follows from its diagnosis and keeps the rules of reviews, or why
    there is none.

    The reason is the code of a rule, or `misfit` for what does not follow from the diagnosis. It
    has no text of a session.
    """
    try:
        candidate = parse_candidate(settings.redactor.redact_value(candidate_fields)[0])
    except (ValueError, TypeError, KeyError):
        return None, "schema"
    if misfit(candidate, sign, diagnosis.tag, cluster):
        return None, "misfit"
    now = library.store.clock()
    day = datetime.fromisoformat(packet.started).date() if packet.started else now.date()
    context = RuleContext(
        library,
        caller,
        packet,
        settings.redactor,
        day,
        format_time(now + WAITS),
        settings.boot(packet.project),
        cost,
        short=False,
    )
    admitted, refused = admit(context, [candidate_fields])
    if admitted:
        return admitted[0], ""
    return None, refused[0].code if refused else "no candidate"


def evolve_cluster(
    library: Library,
    caller: Caller,
    number: int,
    cluster: str,
    admitted: AdmittedCandidate | None,
    why_none: str,
    cards: Iterable[PolicyCard],
) -> RoundChange:
    """Do what the rules say about one cluster.

    admitted: its candidate, None without one; why_none: why there is none. cards: those that are
    nearest to it.
    """
    action, why = action_for(admitted, cards)
    if admitted is None or action is EvolveAction.NO_OP:
        return RoundChange(cluster, EvolveAction.NO_OP.value, why_none or why)
    draft, ref = admitted.draft, str(admitted.draft.ref)
    # Looked for before the trial: the same change must not spend a second share of the skill's
    # alpha.
    if (lost := _find_retired_alike(library, draft)) is not None:
        why = f"trial {lost.id} of the same change was retired"
        return RoundChange(cluster, EvolveAction.NO_OP.value, why, ref)
    if action is EvolveAction.REFINE:
        try:
            trial = put_on_trial(
                library, caller, draft.ref, draft.files, draft.reason, since_round=number
            )
        except Unsafe:
            return RoundChange(cluster, EvolveAction.NO_OP.value, "the scan refuses it", ref)
        except TooManyTrials:
            why = "it, or as many as may be, is on trial"
            return RoundChange(cluster, EvolveAction.NO_OP.value, why, ref)
        except Conflict:
            return RoundChange(cluster, EvolveAction.NO_OP.value, "it was changed meanwhile", ref)
        # A person may still decide on it, so it becomes a proposal below.
        except (Refused, InvalidArgument):
            why = f"{why}; it may not be tried without a person"
        else:
            return RoundChange(cluster, action.value, why, ref, trial=trial.id)
    marks = {"round": number, "cluster": cluster, "action": action.value, "why": why}
    grounds = json.dumps({**json.loads(draft.grounds or "{}"), **marks}, ensure_ascii=False)
    proposals, marked = library.store.backend.proposals, replace(draft, grounds=grounds)
    identity = proposals.add(library.store.now(), Actor.REVIEW, caller.session, marked)
    return RoundChange(cluster, action.value, why, ref, proposal_id=identity)


def _find_retired_alike(library: Library, draft: Draft) -> PooledVersion | None:
    """Return a trial of the same change of this skill that a look or a person retired, None without
    one.
    """
    head = library.store.head_or_none(draft.ref)
    if head is None:
        return None
    reason_terms = content_terms(draft.reason)
    for trial in library.store.backend.pool.all():
        if trial.resource != head.id or trial.state is not PoolState.RETIRED:
            continue
        by_look = any(look["decision"] == "retire" for look in trial.looks)
        by_person = (trial.why or "").startswith(BY_PERSON)
        alike = jaccard(content_terms(trial.reason), reason_terms) >= ALIKE
        if alike and (by_look or by_person):
            return trial
    return None


def change_made(library: Library, number: int, cluster: str) -> RoundChange | None:
    """Return what this round proposed for a cluster before it was killed, None without a
    proposal.
    """
    # The record in the ledger is written after the proposal, so a process that died in between left
    # the proposal alone.
    for proposal in library.store.backend.proposals.in_state(OPEN, 10_000):
        grounds = json.loads(proposal.grounds or "{}")
        if grounds.get("round") == number and grounds.get("cluster") == cluster:
            about = (cluster, str(grounds["action"]), str(grounds["why"]))
            return RoundChange(*about, str(proposal.ref), proposal_id=proposal.id)
    return None


def trial_made(library: Library, number: int, ref: str) -> PooledVersion | None:
    """Return the trial that a round began of a skill, None without one."""
    head = library.store.head_or_none(Ref.parse(ref).at(None)) if ref else None
    if head is None:
        return None
    for trial in library.store.backend.pool.all():
        if trial.since_round == number and trial.resource == head.id:
            return trial
    return None


def tried_why(library: Library, trial: PooledVersion) -> str:
    """Return why a trial was begun, as the rule said it then."""
    head = library.store.backend.heads_by_id([trial.resource])[trial.resource]
    before = library.store.files(head, trial.incumbent)
    after = library.store.files(head, trial.version)
    share = changed_share(before, after)
    return f"{share:.0%} of the lines change"


def propose_prunes(
    library: Library, caller: Caller, changed_refs: Iterable[str], before: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Propose the removal of skills that do worse than none, or say what a better one says.

    The caller is an agent, so what the policy holds waits in the inbox. changed_refs: skills that
    the round changed. before: verified uses of each skill when an earlier round proposed its
    removal.
    """
    heads = {str(head.ref): head for head in library.store.heads(Kind.SKILL) if not head.frozen}
    by_id = {head.id: ref for ref, head in heads.items()}
    proofs = {by_id[id_]: proof for id_, proof in library.evidence.count_successes(by_id).items()}
    texts = {ref: _read_main_text(library, heads[ref]) for ref in proofs}
    changed, proposed = set(changed_refs), list[dict[str, Any]]()
    for ref, why in prunable(proofs, texts, library.evidence.baseline_successes()):
        verified = proofs[ref].verified
        if ref in changed or verified < MORE_EVIDENCE * before.get(ref, 0):
            continue
        identity = _find_open_removal(library, ref)
        try:
            if identity is None:
                removal = remove_resource(library, caller, heads[ref].ref, f"pruned: {why}")
                identity = removal.proposal_id
        except EvolvableError as error:
            proposed.append({"ref": ref, "why": error.text, "verified": verified, "proposal": None})
            continue
        proposed.append({"ref": ref, "why": why, "verified": verified, "proposal": identity})
    return proposed


def _find_open_removal(library: Library, ref: str) -> int | None:
    """Return the id of an open proposal to remove a skill, None without one."""
    for proposal in library.store.backend.proposals.waiting(10_000):
        if proposal.removes and str(proposal.ref) == ref:
            return proposal.id
    return None


def _read_main_text(library: Library, head: Head) -> str:
    """Return the main file of a skill, '' where it cannot be read."""
    try:
        data = library.store.file(head, main_file(head.kind, head.name)).data
    except TryAgain:
        raise
    except EvolvableError:
        return ""
    return data.decode("utf-8", "replace")


def expire_proposals(library: Library) -> None:
    """Close the proposals whose time is over, so that what they proposed can be proposed again."""
    verbs.expire(library)
