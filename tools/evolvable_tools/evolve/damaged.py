"""Turn records and files of a run that say something impossible into an error with a hint."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from evolvable_tools.evolve.ledger import LedgerDamaged

P = ParamSpec("P")
T = TypeVar("T")

WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading a value of another type, or none, ends with."""


def reads_run(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which raises LedgerDamaged where a value of a run is missing or of another type.

    The hashes of a ledger show what was changed by accident; whoever writes in the home can compute them again.
    """

    @functools.wraps(function)
    def read(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except WRONG as error:
            raise LedgerDamaged(
                f"The run's folder holds what no run writes ({type(error).__name__}: {ascii(str(error)[:80])}).",
                "Restore the folder from a backup, or start a new run.",
            ) from error

    return read
