"""The operators Reflect, Select and Improve, with whoever thinks behind them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evolvable_tools.evolve import programs
from evolvable_tools.evolve.edits import applied
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.roles import builder, proposer
from evolvable_tools.evolve.roles.plan import Intent, Plan
from evolvable_tools.evolve.roles.showing import Evidence
from evolvable_tools.evolve.run import Run
from evolvable_tools.evolve.static_gate.leaks import Corpus


class Reflection:
    """Reflect: the proposer reads the evidence, and says what is wrong and what it intends."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, traces: Sequence[Evidence], program: Program) -> Sequence[Plan]:
        """Returns one plan. Raises BadPlan, and as Run.ask."""
        run, most, kinds = self._run, edits_allowed(self._run), self._run.mask.kinds
        asked = proposer.question(
            program, traces, redactor=run.redactor, history=list(history(run)), kinds=kinds, max_edits=most
        )
        answer = await run.ask(asked)
        corpus = Corpus([*run.train, *run.val], run.judge_texts)
        plan = proposer.plan_of(answer, program, asked, kinds=kinds, max_edits=most, corpus=corpus)
        if "proposed" not in run.state.step:
            kept = run.folder.keep_json({"summary": plan.summary, "why": plan.why, "dropped": list(plan.dropped)})
            run.note("proposed", iteration=run.state.iteration, artifact=kept, summary=plan.summary)
        return [plan]


class Selection:
    """Select: of what is intended, a bounded number, and nothing that was turned down in the same words."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, program: Program, hypotheses: Sequence[Plan]) -> Sequence[Plan]:
        """Returns the plans with what is worth building; none when nothing is left."""
        tried = {one for candidate in self._run.state.rejected for one in candidate.operations}
        kept = []
        for plan in hypotheses:
            fresh = tuple(intent for intent in plan.intents if spoken(intent) not in tried)
            if fresh:
                kept.append(replace(plan, intents=fresh[: edits_allowed(self._run)]))
        return kept


class Writing:
    """The builder behind Improve: writes what is intended, and applies it as bounded edits."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, program: Program, changes: Sequence[Plan]) -> Program:
        """Returns the changed program, kept in the run's folder. Raises BadEdit, and as Run.ask."""
        run = self._run
        if (done := run.state.step.get("built")) is not None:
            return run.program(done["candidate"])
        after, operations = program, list[str]()
        for plan in changes:
            kinds = run.mask.kinds
            answer = await run.ask(builder.question(after, plan, redactor=run.redactor, kinds=kinds))
            edits = builder.edits_of(answer, plan, edits_allowed(run))
            after = applied(after, edits, kinds=kinds, max_edits=edits_allowed(run))
            operations += [spoken(intent) for intent in plan.intents]
        run.mask.check(program, after)  # before anything of it is kept; Improve looks again
        built(run, [program], after, operations, "; ".join(plan.summary for plan in changes))
        return after


def built(run: Run, parents: Sequence[Program], after: Program, operations: Sequence[str], summary: str) -> None:
    """Keeps a candidate and writes down where it comes from."""
    run.folder.keep_program(after)
    state = run.state
    run.note(
        "built",
        iteration=state.iteration,
        candidate=after.digest,
        name=f"c{state.iteration}",
        parents=[parent.digest for parent in parents],
        operations=list(operations),
        summary=summary,
        changed=programs.changed(parents[0], after),
        size=programs.size_of(after),
        diff=run.folder.keep(programs.diff(parents[0], after)),
    )


def spoken(intent: Intent) -> str:
    """Returns an intent on one line, for people and for telling two apart."""
    said = intent.modification or intent.capability or intent.problem
    other = f" and {intent.other}" if intent.other else ""
    return f"{intent.op} {intent.ref}{other}: {said}"


def edits_allowed(run: Run) -> int:
    """Returns how many edits this iteration may make: many at first, few at the end."""
    most, least = run.settings.edits
    share = (run.state.iteration - 1) / max(1, run.settings.iterations - 1)
    return max(1, round(most - (most - min(least, most)) * min(1.0, max(0.0, share))))


def history(run: Run) -> Iterator[proposer.Past]:
    """Yields what the iterations before this one tried and what came of it, the rejected ones included."""
    state = run.state
    for record in state.iterations:
        candidate = state.candidates.get(record["candidate"])
        tried = "; ".join(candidate.operations) or candidate.summary if candidate else record.get("summary", "")
        yield proposer.Past(
            record["iteration"],
            tried,
            record["decision"],
            candidate.delta if candidate else None,
            candidate.fixed if candidate else (),
            candidate.broken if candidate else (),
            record["why"],
        )
