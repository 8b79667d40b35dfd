"""What a resource says, field by field, as the terms that an index keeps of it and how much each one weighs."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from evolvable_store import packing
from evolvable_store.words import neighbours, terms, words

MAX_BODY = 200_000
"""Characters of a main file's body that are searched."""

MAX_FILES = 200
"""Files whose names are searched."""

_MOST_TERMS = 5_000  # of one field; a text with more different words is data

K1 = 1.4
"""How soon saying a word again stops to count, as in BM25."""

HEAVIEST = K1 + 1
"""No term weighs more in a field; a stored weight is a part of it, in 255 steps."""


@dataclass(frozen=True, slots=True)
class Field:
    """One kind of text. `weight`: what its words count. `length`: words of a usual one; how far a longer one counts
    less is `slope`, b of BM25.
    """

    weight: float
    length: float
    slope: float


FIELDS: Mapping[str, Field] = {
    "name": Field(0.4, 3, 0.3),
    "description": Field(0.7, 44, 0.5),
    "triggers": Field(0.7, 12, 0.5),
    "pairs": Field(0.4, 37, 0.5),
    "files": Field(0.1, 8, 0.3),
    "body": Field(1.0, 750, 0.75),
}
"""What of a resource is searched. `pairs`: words side by side in name and description.

The usual lengths are those of 10,000 real skills. They are constants, so that what a text weighs depends on itself
alone and never has to be weighed again.
"""

NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(FIELDS)}
"""The number that a field has in the index."""

Weights = dict[str, dict[str, int]]
"""Field -> term -> weight, 1 to 255."""


Said = tuple[list[str], str, Sequence[str], str, list[str]]
"""What `weigh` takes of one resource."""


def weigh(names: Iterable[str], description: str, triggers: Sequence[str], body: str, paths: Iterable[str]) -> Weights:
    """Returns the terms of a resource's texts with their weights, without empty fields.

    names: what it is called. paths: its files besides the main one.
    """
    called = [words(name) for name in names]
    own = words(description)
    beside = [" ".join(terms(pair)) for its in (*called, own) for pair in neighbours(its)]
    files = [PurePosixPath(path).with_suffix("").as_posix() for path, _ in zip(paths, range(MAX_FILES), strict=False)]
    said = {
        "name": _by_term(word for its in called for word in its),
        "description": _by_term(own),
        "triggers": _by_term(words("\n".join(triggers))),
        "pairs": Counter(beside),
        "files": _by_term(words("\n".join(files))),
        "body": _by_term(words(body[:MAX_BODY])),
    }
    return {name: _weights(FIELDS[name], its) for name, its in said.items() if its}


def weighed(said: Said) -> bytes:
    """Returns the weights of one resource's texts, packed."""
    return packed(weigh(*said))


def _by_term(said: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    its = Counter(said)
    for key, count in zip(terms(its), its.values(), strict=True):
        counts[key] += count
    return counts


def _weights(field: Field, counts: Mapping[str, int]) -> dict[str, int]:
    """Returns k1-saturated, length-normalised frequencies: BM25 (Robertson and Zaragoza, 2009) without the idf."""
    usual = K1 * (1 - field.slope + field.slope * sum(counts.values()) / field.length)
    step = (K1 + 1) * 255 / HEAVIEST
    weights = {count: max(1, round(step * count / (count + usual))) for count in set(counts.values())}
    most = counts.items() if len(counts) <= _MOST_TERMS else Counter(counts).most_common(_MOST_TERMS)
    return {key: weights[count] for key, count in most}


def packed(weights: Weights) -> bytes:
    """Returns the weights as bytes."""
    fields = [[NUMBERS[name], "\n".join(its), bytes(its.values()).hex()] for name, its in weights.items()]
    return packing.pack(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))[0]


def unpacked(data: bytes) -> list[tuple[int, list[str], bytes]]:
    """Returns what `packed` took: for each field its number, its terms and their weights."""
    text = data if data[:1] == b"[" else packing.unpack(data, "zlib")
    return [(number, its.split("\n"), bytes.fromhex(weights)) for number, its, weights in json.loads(text)]
