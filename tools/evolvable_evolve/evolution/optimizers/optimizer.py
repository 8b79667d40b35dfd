"""What an optimizer brings to the loop, how one is opened by its name, and the gate that it cannot replace.

Here are also the three that ask a proposer for a plan of edits: greedy, evoskill, reflection. They differ in their
gate, in the parent that a round starts from, and in when the training batch changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from evolvable_evolve.evolution import acceptance, composition, search_operators, structure_round
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, Builder, Improve, OptimizerStep, Reflect, Select
from evolvable_evolve.evolution.optimizer_registry import AcceptanceGate, optimizer_kind
from evolvable_evolve.evolution.proposers import Evidence
from evolvable_evolve.evolution.run_config import ParentStrategy
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_store.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The operators of an optimizer up to a changed program, and where each round starts from.

    reflect, select, build: bound to a run; `build` records what it made with `search_operators.record_candidate`.
    fresh_only: the training batch changes only after something was accepted, as what was rejected changed nothing.
    converged: returns why no further round is worth it, '' while one is.
    """

    reflect: Reflect[Sequence[Evidence], Any]
    select: Select[Any, Any]
    build: Builder[Any]
    strategy: ParentStrategy = ParentStrategy.BEST
    fresh_only: bool = False
    converged: Callable[[], str] = str


def open_optimizer(run: RunContext) -> Optimizer:
    """Return the optimizer that the settings of a run name. Raises InvalidArgument for a target that is gone."""
    module, _, function = optimizer_kind(run.settings.optimizer).target.partition(":")
    try:
        # Imported by name: a run needs one of them.
        make: Callable[[RunContext], Optimizer] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        text = f"The optimizer {run.settings.optimizer} cannot be opened: {error}."
        raise InvalidArgument(text, "Repair or remove the package that registers it.") from None
    return make(run)


def compose_step(run: RunContext, optimizer: Optimizer) -> OptimizerStep[Sequence[Evidence], Any, Any]:
    """Return one round of an optimizer: its operators, the mask, and Evaluate and Commit of its gate."""
    match run.settings.gate:
        case AcceptanceGate.STAGED:
            evaluate, commit = composition.evaluate_in_stages, composition.commit_best
        case AcceptanceGate.FRONTIER:
            evaluate, commit = acceptance.evaluate, acceptance.commit_to_frontier
        case AcceptanceGate.SINGLE:
            evaluate, commit = acceptance.evaluate, acceptance.commit_single
    return OptimizerStep(
        optimizer.reflect,
        optimizer.select,
        Improve(optimizer.build, run.mask),
        partial(evaluate, run),
        partial(commit, run),
    )


def greedy(run: RunContext) -> Optimizer:
    """Return the default: one program, the best so far, on which every accepted edit builds."""
    return _planning(run, ParentStrategy.BEST)


def evoskill(run: RunContext) -> Optimizer:
    """Return the loop of EvoSkill: a frontier, parents as the settings say, and a new batch in every round."""
    return _planning(run, ParentStrategy(run.settings.parent))


def reflection(run: RunContext) -> Optimizer:
    """Return the reflection optimizer of Autogenesis: one program, executed again only after it changed."""
    return _planning(run, ParentStrategy.BEST, fresh_only=True)


def _planning(run: RunContext, strategy: ParentStrategy, *, fresh_only: bool = False) -> Optimizer:
    if run.settings.mode == STRUCTURE_MODE:
        operators = structure_round.reflect, structure_round.select, structure_round.build
    else:
        operators = search_operators.reflect, search_operators.select_intents, search_operators.build
    reflect, select, build = operators
    return Optimizer(partial(reflect, run), partial(select, run), partial(build, run), strategy, fresh_only)
