"""The optimizers, each a composition of reflect, select and improve over the same gate, budget, ledger and test.

Begin with `open_optimizer`, which finds one by name, and `Optimizer`, what it can do.
"""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_evolve.evolution.optimizers.optimizer import Optimizer, compose_step, open_optimizer
else:
    __getattr__ = late_names(
        __name__,
        {
            "optimizer": "Optimizer compose_step open_optimizer",
        },
    )

__all__ = ["Optimizer", "compose_step", "open_optimizer"]
