"""What tokens cost, where somebody has said so. An unknown price is None and never 0."""

from dataclasses import dataclass

from evolvable_tools.evolve.rollout import Usage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars of a million tokens in and out."""

    input: float
    output: float

    def of(self, given: int, got: int) -> float:
        """Returns what so many tokens cost."""
        return (given * self.input + got * self.output) / _MILLION


def usage_of(given: int, got: int, calls: int, price: Price | None, told: float | None = None) -> Usage:
    """Returns a usage with its cost: as whoever was asked told it, else by the price, else unknown."""
    cost = told if told is not None else price.of(given, got) if price is not None else None
    return Usage(given, got, calls, cost)


def together(one: Usage, other: Usage) -> Usage:
    """Returns two usages as one. The cost is unknown as soon as one of two that asked somebody is."""
    if not other.calls and other.cost is None:
        return one
    if not one.calls and one.cost is None:
        return other
    cost = None if one.cost is None or other.cost is None else one.cost + other.cost
    return Usage(
        one.input_tokens + other.input_tokens, one.output_tokens + other.output_tokens, one.calls + other.calls, cost
    )
