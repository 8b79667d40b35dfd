"""The optimizers, each a composition of reflect, select and improve over the same gate, budget,
ledger and test.

Begin with `open_optimizer`, which opens one by its name, and `Optimizer`, its operators.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.optimizers.optimizer import (
        Optimizer,
        compose_step,
        open_gate,
        open_optimizer,
    )
else:
    __getattr__ = late_names(
        __name__,
        {"optimizer": "Optimizer compose_step open_gate open_optimizer"},
    )

__all__ = ["Optimizer", "compose_step", "open_gate", "open_optimizer"]
