"""EvoSkill's split as its authors' code has it, for comparison: by category, shuffled by a fixed
seed, no test split.

The shuffle is that of numpy's legacy generator, from the Mersenne Twister that the standard library
has too.
"""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from evolvable_store.errors import InvalidArgument

_SEED = 42
_WORDS = 624

_Example = TypeVar("_Example")


def stratified_split(
    examples: Mapping[str, Sequence[_Example]], train_ratio: float = 0.18, val_ratio: float = 0.12
) -> tuple[dict[str, list[_Example]], dict[str, list[_Example]]]:
    """Return training and validation examples by category; raises InvalidArgument when the ratios
    exceed 1.

    Each category gives the whole part of its share, at least one, to training first.
    """
    if train_ratio + val_ratio > 1.0:
        raise InvalidArgument(
            f"train_ratio ({train_ratio}) + val_ratio ({val_ratio}) cannot exceed 1.0"
        )
    train: dict[str, list[_Example]] = {}
    val: dict[str, list[_Example]] = {}
    for name, pool in examples.items():
        order = [pool[place] for place in _permutation(len(pool))]
        first = max(1, int(len(pool) * train_ratio))
        second = max(1, int(len(pool) * val_ratio))
        train[name], val[name] = order[:first], order[first : first + second]
    return train, val


def _permutation(count: int) -> list[int]:
    words = [_SEED]
    for place in range(1, _WORDS):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + place) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*words, _WORDS), None))
    order = list(range(count))
    for place in range(count - 1, 0, -1):
        other = _at_most(place, generator)
        order[place], order[other] = order[other], order[place]
    return order


def _at_most(limit: int, generator: random.Random) -> int:
    mask = (1 << limit.bit_length()) - 1
    while (drawn := generator.getrandbits(32) & mask) > limit:
        pass
    return drawn
