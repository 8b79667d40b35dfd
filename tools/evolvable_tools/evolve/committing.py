"""The operator Commit of a run: what Evaluate found is offered to the frontier, and what came of it is written down."""

from evolvable_tools.evolve.evaluating import Measured, best_of
from evolvable_tools.evolve.frontier.frontier import Admission, Entry, Frontier, Member
from evolvable_tools.evolve.operators import Committed, Evaluated, commit_if_better
from evolvable_tools.evolve.run import Run
from evolvable_tools.evolve.run_state import Candidate, Decision

_WHY = {
    Entry.NOT_BETTER: "not better than its parent",
    Entry.BEHIND: "better than its parent, but behind all of a full frontier",
    Entry.DUPLICATE: "the frontier has it already",
}


class FrontierCommit:
    """Commit of EvoSkill: a place in the frontier, which is provisional until the sealed test."""

    def __init__(self, run: Run, capacity: int, admission: Admission) -> None:
        self._run, self._capacity, self._admission = run, capacity, admission

    def __call__(self, evaluated: Evaluated) -> Committed:
        """Returns whether the candidate was admitted, and writes down why."""
        run, state = self._run, self._run.state
        digest = evaluated.candidate.digest
        said = evaluated.decision if isinstance(evaluated, Measured) else None
        if said is not None or not evaluated.safe or evaluated.delta is None:
            decide(run, said or Decision.REFUSED, evaluated.why, digest)
            return Committed(evaluated.against, False, evaluated.why)
        child, parent = member(state.candidates[digest]), member(state.candidates[evaluated.against.digest])
        frontier = Frontier(tuple(map(member, state.members)), self._capacity, self._admission)
        offer = frontier.offer(child, gain=evaluated.delta, parent=parent)
        why = evaluated.why if offer.admitted else f"{_WHY[offer.entry]} ({evaluated.why})"
        decision = Decision.ADMITTED if offer.admitted else Decision.REJECTED
        decide(run, decision, why, digest, tuple(one.program for one in offer.frontier.members))
        return Committed(evaluated.candidate if offer.admitted else evaluated.against, offer.admitted, why)


class SingleCommit:
    """Commit of the reflection optimizer: one program, replaced by what is better."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, evaluated: Evaluated) -> Committed:
        """Returns the better one, and writes down why."""
        committed = commit_if_better(evaluated)
        said = evaluated.decision if isinstance(evaluated, Measured) else None
        decision = Decision.ADMITTED if committed.accepted else said or Decision.REJECTED
        decide(self._run, decision, committed.why, evaluated.candidate.digest, (committed.program.digest,))
        return committed


def decide(
    run: Run, decision: Decision, why: str, candidate: str = "", frontier: tuple[str, ...] | None = None
) -> None:
    """Ends an iteration: what became of it, the frontier after it, the best, and how long there was no new one."""
    state = run.state
    members = state.frontier if frontier is None else frontier
    now = best_of([state.candidates[digest] for digest in {*members, state.best}])
    best = now.digest if now else state.best
    stalls = 0 if best != state.best else state.stalls + (decision is not Decision.INDECISIVE)
    run.journal.note(
        "decided",
        iteration=state.iteration,
        candidate=candidate,
        decision=decision,
        why=why,
        frontier=list(members),
        best=best,
        stalls=stalls,
    )


def member(candidate: Candidate) -> Member:
    """Returns a candidate as the frontier has it."""
    return Member(
        candidate.name, candidate.digest, candidate.mean or 0.0, candidate.size, scores=dict(candidate.scores)
    )
