"""The file of a home that says which new descriptions to compare, and which near duplicates a
server found.

A server and the command line add lines, and `evolvable status` takes them all. The lines have
numbers of resources and no word of a text, so a purge has nothing to remove here. A lost line loses
a hint and nothing else.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from evolvable_store import NEAR_DUPLICATES, private_file, regular_file

MAX_BYTES = 64 * 1024
"""Of the file: a longer one gets no further line, and no more is read."""

FoundPairs = Sequence[tuple[int, int]]
"""Near duplicates of one resource: the number of each, and how alike it is in percent."""


def leave_for_status(home: Path, resources: Iterable[int]) -> None:
    """Have the next `evolvable status` compare these resources with the others."""
    _append_rows(home, [{"resource": resource} for resource in resources])


def note_pairs(home: Path, resource: int, pairs: FoundPairs) -> None:
    """Keep which near duplicates a resource has, for the next `evolvable status`.

    They replace those of earlier notes, also where there are none now.
    """
    _append_rows(home, [{"resource": resource, "pairs": pairs}])


def _append_rows(home: Path, rows: Sequence[object]) -> None:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    if not text:
        return
    place = home / NEAR_DUPLICATES
    with contextlib.suppress(OSError), open(place, "ab", buffering=0, opener=private_file) as file:
        # In the mode "a" the position is the end of the file.
        if file.tell() < MAX_BYTES:
            # In one step, so that lines of several processes do not mix.
            file.write(text.encode("ascii"))


def take_notes(home: Path) -> dict[int, list[tuple[int, int]] | None]:
    """Return the notes since the last call, by resource: its near duplicates, or None for one to
    compare.

    The last note of a resource counts, and the order is that of these. The file is gone afterwards.
    """
    place = home / NEAR_DUPLICATES
    if not place.exists():
        return {}
    # A name of its own, because two processes may take notes at the same time.
    taken_file = home / f"{NEAR_DUPLICATES}.{secrets.token_hex(6)}"
    try:
        os.replace(place, taken_file)  # in one step: no other process takes the same notes
        with open(taken_file, "rb", opener=regular_file) as file:
            data = file.read(MAX_BYTES)
    except OSError:
        return {}
    finally:
        with contextlib.suppress(OSError):
            taken_file.unlink()
    notes: dict[int, list[tuple[int, int]] | None] = {}
    for line in data.splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            resource, pairs = _read_row(line)
            # Removed first, so that the last note decides the place in the order.
            notes.pop(resource, None)
            notes[resource] = pairs
    return notes


def _read_row(line: bytes) -> tuple[int, list[tuple[int, int]] | None]:
    """Return one note. Raise ValueError, TypeError or KeyError for what is none."""
    row = json.loads(line)
    pairs = row.get("pairs") if isinstance(row, dict) else None
    resource = int(row["resource"])
    if pairs is None:
        return resource, None
    return resource, [(int(other), int(percent)) for other, percent in pairs]
