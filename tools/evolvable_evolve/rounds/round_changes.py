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
from evolvable_store import Actor, Files, format_time
from evolvable_store.errors import (
    Conflict,
    EvolvableError,
    InvalidArgument,
    Refused,
    TryAgain,
    Unsafe,
)
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.storage import OPEN, Draft, PooledVersion, PoolState, Proposal, SuccessCounts
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
"""Verified sessions without any skill from which their mean is compared with."""

# Jaccard index of the words: two skills that differ in a tenth of them may still be about different
# things, so the better one must also have better ends.
SAME = 0.9
"""Likeness of two skills' texts from which one of them is too many."""


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
    old, new = _lines(before), _lines(after)
    # autojunk would leave lines that are frequent in a long text out of the comparison.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1 - same / max(len(old), len(new), 1)


def _lines(files: Files) -> list[str]:
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

    proofs: verified ends of each skill by its ref; texts: their texts. base: how verified sessions
    end without a skill.
    """
    found: dict[str, str] = {}
    mean = base.successes / base.ends if base.ends >= BASE_ENDS else None
    ends = {ref: (counts.verified_successes, counts.verified) for ref, counts in proofs.items()}
    for ref, (good, n) in ends.items():
        # The upper bound, so that a skill is blamed only where chance is no explanation.
        if mean is not None and n >= PRUNE_ENDS and wilson_upper_bound(good, n) < mean:
            found[ref] = (
                f"{good} of {n} verified uses went well, {mean:.0%} of {base.ends} sessions "
                "without a skill"
            )
    terms = {
        ref: content_terms(texts[ref])
        for ref, (_, n) in ends.items()
        if n >= PRUNE_ENDS and ref in texts
    }
    for ref, words in terms.items():
        for other, theirs in terms.items():
            better = wilson_lower_bound(*ends[other]) > wilson_lower_bound(*ends[ref])
            # `other not in found`: of three that say the same the best stays.
            if (
                ref not in found
                and better
                and other not in found
                and jaccard(words, theirs) >= SAME
            ):
                found[ref] = f"{other} says the same and does better"
    return sorted(
        found.items(),
        key=lambda item: (wilson_upper_bound(*ends[item[0]]), item[0]),
    )


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
    found: TraceDiagnosis,
    cluster: str,
    cost: Mapping[str, Any],
) -> tuple[AdmittedCandidate | None, str]:
    """Return a candidate that follows from its diagnosis and keeps the rules of reviews, or why
    there is none.

    Why is the code of a rule, `misfit` for what does not follow from the diagnosis: no text of a
    session.
    """
    try:
        candidate = parse_candidate(settings.redactor.redact_value(candidate_fields)[0])
    except (ValueError, TypeError, KeyError):
        return None, "schema"
    if misfit(candidate, sign, found.tag, cluster):
        return None, "misfit"
    now = library.store.clock()
    day = datetime.fromisoformat(packet.started).date() if packet.started else now.date()
    about = (
        library,
        caller,
        packet,
        settings.redactor,
        day,
        format_time(now + WAITS),
        settings.boot(packet.project),
        cost,
    )
    admitted, refused = admit(RuleContext(*about, short=False), [candidate_fields])
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
    """Do what the rules say about one cluster, once: another call of the same round finds what was
    done.
    """
    action, why = action_for(admitted, cards)
    if admitted is None or action is EvolveAction.NO_OP:
        return RoundChange(cluster, EvolveAction.NO_OP.value, why_none or why)
    draft, ref = admitted.draft, str(admitted.draft.ref)
    # Looked for before the trial: the same change must not spend a second share of the skill's
    # alpha.
    if (lost := _retired_alike(library, draft)) is not None:
        return RoundChange(
            cluster,
            EvolveAction.NO_OP.value,
            f"trial {lost.id} of the same change was retired",
            ref,
        )
    if action is EvolveAction.REFINE:
        try:
            trial = put_on_trial(
                library, caller, draft.ref, draft.files, draft.reason, since_round=number
            )
        except Unsafe:
            return RoundChange(cluster, EvolveAction.NO_OP.value, "the scan refuses it", ref)
        except TooManyTrials:
            return RoundChange(
                cluster, EvolveAction.NO_OP.value, "it, or as many as may be, is on trial", ref
            )
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


def _retired_alike(library: Library, draft: Draft) -> PooledVersion | None:
    """Return a trial of the same change of this skill that was retired, None without one."""
    head = library.store.head_or_none(draft.ref)
    reason_terms = content_terms(draft.reason)
    for pooled_version in library.store.backend.pool.all() if head else []:
        decided = pooled_version.state is PoolState.RETIRED and any(
            look["decision"] == "retire" for look in pooled_version.looks
        )
        by_person = pooled_version.state is PoolState.RETIRED and (
            pooled_version.why or ""
        ).startswith(BY_PERSON)
        alike = (
            head is not None
            and pooled_version.resource == head.id
            and jaccard(content_terms(pooled_version.reason), reason_terms) >= ALIKE
        )
        if alike and (decided or by_person):
            return pooled_version
    return None


def change_made(library: Library, number: int, cluster: str) -> RoundChange | None:
    """Return what this round did about a cluster before it was killed, None where it did nothing
    yet.
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
    trials = library.store.backend.pool.all() if head else []
    return next(
        (
            trial
            for trial in trials
            if head and trial.since_round == number and trial.resource == head.id
        ),
        None,
    )


def tried_why(library: Library, trial: PooledVersion) -> str:
    """Return why a trial was begun, as the rule said it then."""
    head = library.store.backend.heads_by_id([trial.resource])[trial.resource]
    share = changed_share(
        *(library.store.files(head, number) for number in (trial.incumbent, trial.version))
    )
    return f"{share:.0%} of the lines change"


def propose_prunes(
    library: Library, caller: Caller, changed_refs: Iterable[str], before: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Propose the removal of skills that do worse than none, or say what a better one says.

    As an agent's: what the policy holds waits in the inbox. changed_refs: skills that the round
    changed. before: with how many verified uses each skill was proposed to go by an earlier round.
    """
    heads = {str(head.ref): head for head in library.store.heads(Kind.SKILL) if not head.frozen}
    by_id = {head.id: ref for ref, head in heads.items()}
    proofs = {by_id[id_]: proof for id_, proof in library.evidence.count_successes(by_id).items()}
    texts = {ref: _main_text(library, heads[ref]) for ref in proofs}
    changed, proposed = set(changed_refs), list[dict[str, Any]]()
    for ref, why in prunable(proofs, texts, library.evidence.baseline_successes()):
        verified = proofs[ref].verified
        if ref in changed or verified < MORE_EVIDENCE * before.get(ref, 0):
            continue
        waiting = next(
            (removal for removal in _removals(library, ref) if removal.state == OPEN), None
        )
        try:
            done = (
                None
                if waiting
                else remove_resource(library, caller, heads[ref].ref, f"pruned: {why}")
            )
        except EvolvableError as error:
            proposed.append({"ref": ref, "why": error.text, "verified": verified, "proposal": None})
            continue
        identity = waiting.id if waiting else done.proposal_id if done else None
        proposed.append({"ref": ref, "why": why, "verified": verified, "proposal": identity})
    return proposed


def _removals(library: Library, ref: str) -> list[Proposal]:
    return [
        proposal
        for proposal in library.store.backend.proposals.waiting(10_000)
        if proposal.removes and str(proposal.ref) == ref
    ]


def _main_text(library: Library, head: Any) -> str:
    try:
        return library.store.file(head, main_file(head.kind, head.name)).data.decode(
            "utf-8", "replace"
        )
    except TryAgain:
        raise
    except EvolvableError:
        return ""


def expire_proposals(library: Library) -> None:
    """Close the proposals whose time is over, so that what they proposed can be proposed again."""
    verbs.expire(library)
