"""What lookup is measured beside: four ways to find a skill, each written here from its
description.

They are not the programs of their authors. Each keeps what it prepared in a folder, and opens it in
a process of its own (`peer_process.py`), so that its start and its memory can be told.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lookup.vectors import Encoder, cached

Record = Mapping[str, Any]

DEPTH = 10
THRESHOLD = 0.6
"""From this cosine on the paper takes the best description."""

_MOST_WORDS = 24
_WORD = re.compile(r"\w+")
_STOP = frozenset(
    _WORD.findall(
        """
        a about all also am an and any are as at be been but by can could did do does for from get
        had has have
        how i if in into is it its just let like make may me more my need no not of on one only or
        other our out
        over please should so some such than that the their them then there these they this to too
        up us use
        using very want was we were what when where which while who why will with would you your
        """
    )
)

Ask = Callable[[str], list[str]]
"""From a task to the ids of skills, best first, at most DEPTH."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to find.

    `model` and `cache`: the folder of the encoder, and of vectors that are known already.
    """

    name: str
    needs_model: bool
    build: Callable[[Sequence[Record], Path, Path | None, Path], None]
    open: Callable[[Path, Path | None], Ask]


def build_fts(
    columns: Sequence[str], skills: Sequence[Record], place: Path, model: Path | None, cache: Path
) -> None:
    """Write one FTS5 table over these columns."""
    db = sqlite3.connect(place / "fts.db")
    with db:
        db.execute(
            f"CREATE VIRTUAL TABLE skill USING fts5({', '.join(columns)}, tokenize='porter "
            "unicode61')"
        )
        db.execute("CREATE TABLE id (number INTEGER PRIMARY KEY, id TEXT)")
        marks = ", ".join("?" * (len(columns) + 1))
        rows = (
            (number, *(record[column] for column in columns))
            for number, record in enumerate(skills)
        )
        db.executemany(f"INSERT INTO skill (rowid, {', '.join(columns)}) VALUES ({marks})", rows)
        db.executemany(
            "INSERT INTO id VALUES (?, ?)", ((at, record["id"]) for at, record in enumerate(skills))
        )
    db.close()


def open_fts(weights: Sequence[float], place: Path, model: Path | None) -> Ask:
    """Return a search for the rarest words of a task, any of them, in the order of BM25 with
    weighted columns.
    """
    db = sqlite3.connect(place / "fts.db")
    known: dict[str, int] = {}

    def count(word: str) -> int:
        if word not in known:
            row = db.execute(
                "SELECT count(*) FROM skill WHERE skill MATCH ?", (f'"{word}"',)
            ).fetchone()
            known[word] = row[0]
        return known[word]

    def ask(task: str) -> list[str]:
        words = dict.fromkeys(_WORD.findall(task.lower()))
        there = [word for word in words if word not in _STOP and count(word)]
        rarest = sorted(there, key=count)[:_MOST_WORDS]
        if not rarest:
            return []
        found = db.execute(
            f"""SELECT id.id FROM skill JOIN id ON id.number = skill.rowid WHERE skill MATCH ?
                ORDER BY bm25(skill, {", ".join(map(str, weights))}) LIMIT {DEPTH}""",
            (" OR ".join(f'"{word}"' for word in rarest),),
        )
        return [row[0] for row in found]

    return ask


def build_vectors(skills: Sequence[Record], place: Path, model: Path | None, cache: Path) -> None:
    """Write the vectors of the descriptions."""
    import numpy as np

    assert model is not None
    np.save(
        place / "vectors.npy", cached([record["description"] for record in skills], model, cache)
    )
    (place / "ids.json").write_text(
        json.dumps([record["id"] for record in skills]), encoding="utf-8"
    )


def build_paper(skills: Sequence[Record], place: Path, model: Path | None, cache: Path) -> None:
    """Write triggers and the vectors of the descriptions."""
    build_vectors(skills, place, model, cache)
    triggers = [
        [text.lower() for text in record.get("triggers", ()) if text.strip()] for record in skills
    ]
    (place / "triggers.json").write_text(json.dumps(triggers), encoding="utf-8")


def open_vectors(place: Path, model: Path | None) -> Ask:
    """Return a search for the nearest descriptions by cosine."""
    nearest = _nearest(place, model)
    return lambda task: [id_ for id_, _ in nearest(task)]


def open_paper(place: Path, model: Path | None) -> Ask:
    """Return the paper's cascade without its model: triggers that occur in the task, in the order
    of the library; where there are none, descriptions whose cosine reaches the threshold.
    """
    nearest = _nearest(place, model)
    ids: list[str] = json.loads((place / "ids.json").read_text(encoding="utf-8"))
    triggers: list[list[str]] = json.loads((place / "triggers.json").read_text(encoding="utf-8"))

    def ask(task: str) -> list[str]:
        text = task.lower()
        fired = [
            id_
            for id_, its in zip(ids, triggers, strict=True)
            if any(trigger in text for trigger in its)
        ]
        return fired[:DEPTH] or [id_ for id_, cosine in nearest(task) if cosine >= THRESHOLD]

    return ask


def _nearest(place: Path, model: Path | None) -> Callable[[str], list[tuple[str, float]]]:
    import numpy as np

    assert model is not None
    vectors: Any = np.load(place / "vectors.npy")
    ids: list[str] = json.loads((place / "ids.json").read_text(encoding="utf-8"))
    encode = Encoder(model)

    def nearest(task: str) -> list[tuple[str, float]]:
        cosines = vectors @ encode([task])[0]
        best = np.argsort(-cosines, kind="stable")[:DEPTH]
        return [(ids[at], float(cosines[at])) for at in best]

    return nearest


_NAMED = ("name", "description")

WHOLE = Peer(
    "FTS5, one table with the body",
    False,
    partial(build_fts, (*_NAMED, "body")),
    partial(open_fts, (8, 4, 1)),
)

PEERS = (
    Peer(
        "FTS5, name and description", False, partial(build_fts, _NAMED), partial(open_fts, (1, 1))
    ),
    WHOLE,
    Peer("MiniLM on the description", True, build_vectors, open_vectors),
    Peer("the paper's cascade, no LLM", True, build_paper, open_paper),
)
