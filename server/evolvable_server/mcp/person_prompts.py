"""The prompts of the person: `inbox`, what waits for a decision, and `why`, how a resource came to
be as it is.

Their texts go to a model as words of the person. What others wrote stands between marks in them.
"""

from collections import Counter
from dataclasses import replace

from evolvable_store import Actor
from evolvable_store.errors import InvalidRef
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, author_words, authorships, outcomes, retrieval, verbs

MAX_WAITING = 20
"""Proposals that the prompt names."""

MAX_VERSIONS, MAX_EVIDENCE = 5, 3
"""Versions of a resource that the prompt tells of, and lines of evidence of each."""


class PersonPrompts:
    """The two prompts over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller) -> None:
        # The texts go to a model, so they are marked as for an agent.
        self._library, self._caller = library, replace(caller, actor=Actor.AGENT)

    def inbox(self) -> str:
        """Return the question for what waits for a decision."""
        waiting = verbs.list_waiting(self._library, MAX_WAITING)
        if not waiting:
            return "Tell me that nothing waits for my decision in the inbox of Evolvable."
        lines = ["These changes of my Evolvable library wait for my decision:", ""]
        notices = []
        for proposal in verbs.as_read(waiting, Actor.AGENT):
            counts = Counter(str(finding.severity) for finding in proposal.findings)
            severities = ", ".join(f"{count} {severity}" for severity, count in counts.items())
            scan = severities or "nothing"
            change = _name_change(proposal)
            lines.append(
                f"{proposal.proposal_id}. {proposal.ref}, {change}, by {proposal.actor}. "
                f"{proposal.reason} Scan: {scan}."
            )
            notices.append(proposal.notice)
        # A full page means that more may wait.
        if len(waiting) == MAX_WAITING:
            lines.append(f"There may be more: these are the oldest {MAX_WAITING}.")
        lines += [
            "",
            "For each, call review_inbox with action=show and its proposal_id. Tell me in two "
            "lines what it changes and what speaks against it. Decide nothing: when I tell you to "
            "approve or reject, the call asks me again.",
            *dict.fromkeys(filter(None, notices)),
        ]
        return "\n".join(lines)

    def why(self, ref: str, task: str = "") -> str:
        """Return the question why a resource is as it is.

        With a task, also why a search for it finds the resource or does not.

        Raise NoSuchResource, InvalidRef.
        """
        parsed_ref = Ref.parse(ref).at(None)
        history = verbs.resource_history(
            self._library, self._caller, parsed_ref, limit=MAX_VERSIONS
        )
        lines = [
            f"Tell me in a few lines why {history.ref} is as it is. "
            "This is what Evolvable recorded:",
            "",
        ]
        if history.head is None:
            lines.append("It is removed; its versions stay.")
        else:
            head = self._library.store.head(parsed_ref, self._caller.scopes)
            authorship = authorships(self._library, [head.id], self._caller)[head.id]
            (used,) = outcomes.stats(self._library, self._caller, parsed_ref).resources
            lines.append(
                f"It is at version {history.head}: its author is "
                f"{author_words(authorship.kind, authorship.by)}."
            )
            lines.append(
                f"Shown {used.shown} times, opened {used.loaded}, used {used.used}; {used.why}"
            )
        for version in history.versions:
            by = author_words(version.author, version.by)
            lines.append(f"Version {version.version}, {version.at[:10]}, by {by}: {version.reason}")
            lines += [f"  {text}" for text in version.evidence[:MAX_EVIDENCE]]
        if history.notice:
            lines.append(history.notice)
        if task:
            lines += ["", *self._describe_search(parsed_ref, task)]
        return "\n".join(lines)

    def _describe_search(self, ref: Ref, task: str) -> list[str]:
        """Return the result of a search for a task, as it concerns a resource.

        The search asks no model, and counts as no search of an agent.
        """
        dependencies = replace(self._library.dependencies, judge_model=None)
        result = verbs.find_skill(
            self._library,
            self._caller,
            task,
            limit=verbs.MAX_MATCHES,
            kind=ref.kind,
            dependencies=dependencies,
        )
        head = self._library.store.head_or_none(ref, self._caller.scopes)
        ref_text = str(head.ref) if head is not None else ""
        place = next(
            (place for place, match in enumerate(result.matches, 1) if match.ref == ref_text), None
        )
        lines = ["A search for the task that I gave says:"]
        lines += [f"  {stage.stage}: {stage.said}" for stage in result.stages]
        if place is None:
            entry = self._library.index.entry(head) if head is not None else None
            why = ""
            if entry and entry.person_only:
                why = " No agent is offered it, as it says disable-model-invocation."
            return [*lines, f"It is not among the first {verbs.MAX_MATCHES} matches.{why}"]
        match = result.matches[place - 1]
        lines.append(
            f"It is match {place}, confidence {match.confidence:.2f}, by {match.stage}: "
            f"{match.why}."
        )
        lines.append(f"The verdict: {retrieval.VERDICTS[result.verdict]}")
        return [*lines, result.notice] if result.notice else lines

    def complete(self, argument: str, begun: str, most: int) -> list[str]:
        """Return at most `most` refs that begin with `begun`; without a kind, names of skills."""
        if argument != "ref":
            return []
        kind, colon, name = begun.partition(":")
        if not colon:
            return self._library.index.names(Kind.SKILL, begun, most, self._caller.scopes)
        if kind not in set(Kind):
            raise InvalidRef(f"{kind[:40]!r} is no kind.", f"There is {', '.join(Kind)}.")
        names = self._library.index.names(Kind(kind), name, most, self._caller.scopes)
        return [f"{kind}:{completion}" for completion in names]


def _name_change(proposal: "verbs.WaitingProposal") -> str:
    if proposal.removes:
        return "removes it"
    return f"changes version {proposal.base}" if proposal.base else "new"
