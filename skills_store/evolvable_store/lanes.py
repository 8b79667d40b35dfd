"""Arithmetic on many numbers at once: each has a lane of 64 bits in one large integer.

One product or sum of Python's integers is one for every lane, in a loop that Python does not see, and no package is
needed for it. No lane may reach 2**64, or it would run into the next.
"""

import struct
from collections.abc import Iterable

_BYTES = 8
_ANY = bytes([0] + [1] * 255)

FRACTION = 1 << 40
"""What a lane holds for 1: sums are exact to eleven places after the point, and may reach sixteen million."""


def spread(numbers: bytes | bytearray) -> int:
    """Returns these numbers, each a byte, in lanes; the first is the lowest."""
    lanes = bytearray(_BYTES * len(numbers))
    lanes[::_BYTES] = numbers
    return int.from_bytes(lanes, "little")


def any_of(rows: Iterable[bytes | bytearray], length: int) -> int:
    """Returns lanes with 1 where one of the rows, each of `length` bytes, has any number, and 0 elsewhere."""
    together = 0
    for row in rows:
        together |= int.from_bytes(row, "little")
    return spread(together.to_bytes(length, "little").translate(_ANY))


def gathered(lanes: int, count: int) -> list[float]:
    """Returns what the lanes hold, in parts of FRACTION, the lowest first."""
    numbers = struct.unpack(f"<{count}Q", lanes.to_bytes(_BYTES * count, "little"))
    return [number / FRACTION for number in numbers]
