"""An optimizer: its operators, how it is opened by its name, and the gate that it cannot replace.

Here is also the default, greedy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from evolvable_evolve.evolution import search_operators, structure_round
from evolvable_evolve.evolution.acceptance import SearchGate
from evolvable_evolve.evolution.operators import (
    STRUCTURE_MODE,
    Builder,
    Improve,
    OptimizerStep,
    Reflect,
    Select,
)
from evolvable_evolve.evolution.optimizer_registry import GATES, optimizer_kind
from evolvable_evolve.evolution.proposers import Evidence
from evolvable_evolve.evolution.run_config import ParentStrategy
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_store.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The operators of an optimizer up to a changed program, and how the parent of a round is
    chosen.

    reflect, select, build: bound to a run; `build` records its program with
    `search_operators.record_candidate`. fresh_only: the training batch changes only after an edit
    was accepted, because a rejected one changed nothing. converged: returns why the search ends
    here, '' while it goes on.
    """

    reflect: Reflect[Sequence[Evidence], Any]
    select: Select[Any, Any]
    build: Builder[Any]
    strategy: ParentStrategy = ParentStrategy.BEST
    fresh_only: bool = False
    converged: Callable[[], str] = str


def open_optimizer(run: RunContext) -> Optimizer:
    """Return the optimizer that the settings of a run name.

    Raises InvalidArgument for a target that is gone.
    """
    name = run.settings.optimizer
    make: Callable[[RunContext], Optimizer] = _load_target(name, optimizer_kind(name).target)
    return make(run)


def open_gate(run: RunContext) -> SearchGate:
    """Return the gate of the optimizer that the settings of a run name."""
    gate: SearchGate = _load_target(run.settings.optimizer, GATES[run.settings.gate])
    return gate


def _load_target(optimizer: str, target: str) -> Any:
    """Return the object of a target MODULE:NAME.

    It is imported by name, because a run needs only one optimizer and its gate.
    """
    module, _, name = target.partition(":")
    # Another package may register a target that it no longer has.
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        text = f"The optimizer {optimizer} cannot be opened: {error}."
        raise InvalidArgument(text, "Repair or remove the package that registers it.") from None


def compose_step(
    run: RunContext, optimizer: Optimizer, gate: SearchGate
) -> OptimizerStep[Sequence[Evidence], Any, Any]:
    """Return one round of an optimizer: its operators, the mask, and Evaluate and Commit of its
    gate.
    """
    return OptimizerStep(
        optimizer.reflect,
        optimizer.select,
        Improve(optimizer.build, run.mask),
        partial(gate.evaluate, run),
        partial(gate.commit, run),
    )


def greedy(run: RunContext) -> Optimizer:
    """Return the default: one program, the best so far, on which every accepted edit builds."""
    return plan_edits(run, ParentStrategy.BEST)


def plan_edits(run: RunContext, strategy: ParentStrategy, *, fresh_only: bool = False) -> Optimizer:
    """Return an optimizer that asks a proposer for a plan of edits, or of mode `structure`."""
    if run.settings.mode == STRUCTURE_MODE:
        return Optimizer(
            partial(structure_round.reflect, run),
            partial(structure_round.select, run),
            partial(structure_round.build, run),
            strategy,
            fresh_only,
        )
    return Optimizer(
        partial(search_operators.reflect, run),
        partial(search_operators.select_intents, run),
        partial(search_operators.build, run),
        strategy,
        fresh_only,
    )
