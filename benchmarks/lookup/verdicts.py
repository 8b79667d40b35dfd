"""What a client reads of an answer: how often it is sure, a choice or none, how often right, and in
how many bytes.

Every task whose right skill is in the library is asked over MCP as an agent asks it; then the tasks
whose right skills and their copies were really taken out. `shown`: the right skill is among the
refs and names of the answer.
"""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from support import Row, progress

from evolvable_store.store import Store
from lookup.copies import Copies
from lookup.data import Library, Record, answerable, drawn, take_in
from lookup.none_fits import percent, right_ids, without_the_right
from lookup.sessions import Served, Setting, closing

LIBRARIES = {60: 6, 300: 3, 1000: 2, 10000: 1}
"""How many libraries of each size are drawn."""

MOST_TASKS = 260
"""Tasks of one library."""

_NAME = re.compile(r"[\w./-]+")


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """One answer as a client reads it.

    first: the right skill is the first one. out: no skill was right.
    """

    verdict: str
    first: bool
    shown: bool
    size: int
    out: bool


def read_answer(answer: Mapping[str, Any], right: Iterable[str], *, out: bool) -> ReadAnswer:
    """Return what an answer says. right: the names of the skills that are right."""
    texts = [
        answer.get("use", {}).get("ref", ""),
        *(one["ref"] for one in answer.get("choices", ())),
    ]
    texts += [
        line.partition(": ")[0] for line in answer.get("others", {}).get("text", "").splitlines()
    ]
    also = answer.get("also", [])
    texts += also if isinstance(also, list) else also.split(", ")
    names = [_NAME.findall(text)[-1] for text in texts if text]
    wanted = set(right)
    size = len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())
    return ReadAnswer(
        answer["verdict"],
        bool(names) and names[0] in wanted,
        not wanted.isdisjoint(names),
        size,
        out,
    )


def answers(setting: Setting, library: Library, queries: Sequence[Record]) -> list[ReadAnswer]:
    """Return every answer of a server over this library, to each task before and after its skill
    was taken out.
    """
    copies = Copies(library)
    there = answerable(queries, library.ids)
    asked = [
        copies.marked(query)
        for query in random.Random(0).sample(there, min(MOST_TASKS, len(there)))
    ]
    names = {record["id"]: name for name, record in library.skills.items()}
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with closing(Served(setting, home, library)) as served, Store.open(home) as store:

            def ask(query: Record, out: bool) -> ReadAnswer:
                answer = served.server.call("find_skill", task=query["text"])
                right = () if out else (names[id_] for id_ in right_ids(query) if id_ in names)
                return read_answer(answer or {}, right, out=out)

            found = [ask(query, False) for query in asked]
            for its, _ in without_the_right(store, library, asked, copies):
                found += [ask(query, True) for query in its]
    return found


def rows(
    setting: Setting, corpus: Sequence[Record], queries: Sequence[Record], sizes: Mapping[int, int]
) -> list[Row]:
    """Return the shares of the verdicts, what they are worth, and the bytes, in libraries of each
    size.
    """
    made: list[Row] = []
    for size, count in sizes.items():
        progress(f"{setting.name}: answers, {count} libraries of {size:,}")
        found = [
            one
            for seed in range(count)
            for one in answers(setting, drawn(size, seed, corpus, queries), queries)
        ]
        made += _rows_of(f"{setting.name}, {size:,} skills", found)
    return made


def _rows_of(name: str, found: Sequence[ReadAnswer]) -> list[Row]:
    there, out = [one for one in found if not one.out], [one for one in found if one.out]
    sure = [one for one in there if one.verdict == "sure"]
    kept = [one for one in there if one.verdict != "none"]
    return [
        Row(f"{name}: sure / choose / none, tasks that have a skill", _shares(there)),
        Row(f"{name}: sure / choose / none, the same without it", _shares(out)),
        Row(f"{name}: right where it is sure", percent(mean(one.first for one in sure))),
        Row(
            f"{name}: the right one among what is shown, none left out",
            f"{mean(one.shown for one in kept):.3f}",
        ),
        Row(f"{name}: bytes of an answer, mean", f"{mean(one.size for one in there):,.0f}"),
        *(
            Row(f"  of {verdict}", f"{mean(sizes):,.0f}, at most {max(sizes):,}")
            for verdict in ("sure", "choose", "none")
            if (sizes := [one.size for one in found if one.verdict == verdict])
        ),
    ]


def _shares(answers: Sequence[ReadAnswer]) -> str:
    verdicts = [one.verdict for one in answers]
    return " / ".join(
        percent(verdicts.count(name) / len(verdicts)) for name in ("sure", "choose", "none")
    )
