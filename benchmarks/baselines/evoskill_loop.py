"""EvoSkill's loop as its authors' code has it, for comparison: what it admits, counts, writes down
and pays for.

The faults are kept: no duplicate is noticed, the cost of the last iteration is lost at an early
stop, an iteration without failures is neither paid for nor counted, and any admission starts the
count of the early stop anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from baselines.evoskill_frontier import CategoryTurns, EvoSkillFrontier

FAILS_BELOW = 0.8
_SHORTER = 3

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Proposed(Generic[P]):
    """What a proposer and a builder made: the child, and what the history says of it.

    `written` is the new skill.
    """

    child: P
    summary: str
    justification: str
    written: str | None = None
    action: str = "create"
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Agents(Generic[P]):
    """Who runs, proposes and validates. Every function also returns what it cost, in dollars.

    `run` scores the n-th example of a category; `propose` gets the parent, the failed categories
    and the iteration, and returns no proposal when it could not be read; `validate` is the mean
    score on validation; `skills` names what a program holds.
    """

    run: Callable[[P, str, int], tuple[float, float]]
    propose: Callable[[P, Sequence[str], int], tuple[Proposed[P] | None, float]]
    validate: Callable[[P], tuple[float, float]]
    skills: Callable[[P], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults are those of the authors' code."""

    iterations: int = 5
    frontier_size: int = 3
    no_improvement_limit: int = 5
    selection: str = "best"
    categories: int = 3
    per_category: int = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the loop remembers of its sampling after the last iteration that went to its end."""

    iteration: int
    category_offset: int
    offsets: Mapping[str, int]


Event = tuple[str, Mapping[str, object]]


@dataclass
class EvoSkillRun(Generic[P]):
    """What became of a run so far.

    `history` is the feedback as the proposer reads it, None before the first entry.
    """

    frontier: EvoSkillFrontier
    programs: dict[str, P]
    events: list[Event] = field(default_factory=list)
    history: str | None = None
    checkpoint: Checkpoint | None = None
    iterations: int = 0
    cost: float = 0.0
    stalled: int = 0
    spent: float = 0.0

    @property
    def best(self) -> tuple[str, float]:
        """The first of the ranking."""
        return self.frontier.ranked[0]

    def emit(self, event: str, **details: object) -> None:
        """Note what happened."""
        self.events.append((event, details))


def run(base: P, agents: Agents[P], pools: Mapping[str, int], settings: Settings) -> EvoSkillRun[P]:
    """Run the loop from `base` over train `pools` (category: number of examples) and return what
    became of it.
    """
    state = EvoSkillRun(EvoSkillFrontier(settings.frontier_size), {"base": base})
    score, state.cost = agents.validate(base)
    state.frontier, _ = state.frontier.offer("base", score)
    state.emit("baseline", score=score, n_skills=len(agents.skills(base)))
    turns = CategoryTurns(dict(pools), settings.categories, settings.per_category)
    for iteration in range(1, settings.iterations + 1):
        state.iterations = iteration
        parent = state.frontier.select(settings.selection, iteration)
        state.emit("iter_start", iteration=iteration, total=settings.iterations, parent=parent)
        failed = _sample(state, agents, turns, parent)
        if not failed:
            continue
        _improve(state, agents, parent, failed, iteration)
        if state.stalled >= settings.no_improvement_limit:
            break
        state.cost += state.spent
        state.checkpoint = Checkpoint(iteration, turns.category_offset, dict(turns.offsets))
    name, score = state.best
    state.emit("loop_done", best=name, best_score=score, iterations=state.iterations)
    return state


def _sample(
    state: EvoSkillRun[P], agents: Agents[P], turns: CategoryTurns, parent: str
) -> list[str]:
    """Run a batch under the parent and return the categories of what failed."""
    state.spent = 0.0
    failed = []
    for category, place in turns.next():
        score, cost = agents.run(state.programs[parent], category, place)
        state.spent += cost
        passed = score >= FAILS_BELOW
        state.emit(
            "sample", question=f"{category}:{place}", category=category, score=score, passed=passed
        )
        failed += [] if passed else [category]
    return failed


def _improve(
    state: EvoSkillRun[P], agents: Agents[P], parent: str, failed: Sequence[str], iteration: int
) -> None:
    """Propose, validates, and admits or discards the child."""
    parent_score = state.frontier.score(parent)
    proposed = _propose(state, agents, state.programs[parent], failed, iteration)
    if proposed is None:
        state.stalled += 1
        return
    name = f"iter-skill-{iteration}"
    summary = proposed.summary
    state.emit(
        "proposal", action=proposed.action, target_skill=proposed.target, summary=summary[:80]
    )
    state.emit(
        "skill_written", name=proposed.written, action=proposed.action, target=proposed.target
    )
    score, cost = agents.validate(proposed.child)
    state.spent += cost
    state.frontier, added = state.frontier.offer(name, score)
    if added:
        state.programs[name] = proposed.child
    state.stalled = 0 if added else state.stalled + 1
    active = list(agents.skills(proposed.child)) if added else []
    state.emit(
        "eval_result",
        child_name=name,
        score=score,
        parent_score=parent_score,
        added=added,
        frontier=state.frontier.ranked,
        n_skills=len(active),
    )
    outcome = "DISCARDED" if not added else "IMPROVED" if score > parent_score else "KEPT"
    state.history = (state.history or "") + (
        f"\n## {name}\n**Proposal**: {summary}\n**Justification**: {proposed.justification}"
        f"\n**Outcome**: {outcome} (score: {score:.4f} ({score - parent_score:+.4f}))"
        + (f"\n**Active Skills**: {', '.join(active)}" if active else "")
        + "\n\n"
    )


def _propose(
    state: EvoSkillRun[P], agents: Agents[P], parent: P, failed: Sequence[str], iteration: int
) -> Proposed[P] | None:
    """Ask with less and less of the failures until an answer can be read, at last with one of
    several alone.
    """
    for shown in [failed] * _SHORTER + ([failed[:1]] if len(failed) > 1 else []):
        proposed, cost = agents.propose(parent, shown, iteration)
        state.spent += cost
        if proposed is not None:
            return proposed
    return None
