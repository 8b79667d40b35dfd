"""Corpora and tasks: read, drawn to libraries of any size, and written into a library
of Evolvable.
"""

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.search.index import Index
from evolvable_store.store import Store

Record = dict[str, Any]

SEEDS = 10
"""How many libraries of a hundred are drawn.

Over draws hit@1 of FTS5 has a standard deviation of .08.
"""

_BATCH = 500


def lines(path: Path) -> Iterator[Record]:
    """Yield the records of a file of JSON lines, packed or not."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as every
    ):
        yield from (json.loads(line) for line in every if line.strip())


@dataclass(frozen=True, slots=True)
class Library:
    """Skills under names that occur once, as a library needs them."""

    skills: dict[str, Record]
    """The records by their name in the library."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Library":
        skills: dict[str, Record] = {}
        for record in records:
            skills[_free_name(record, skills)] = record
        return cls(skills)

    @property
    def ids(self) -> set[str]:
        return {record["id"] for record in self.skills.values()}

    def in_repositories(self, repositories: Iterable[str]) -> list[str]:
        """Return the names of the skills that come from one of them."""
        wanted = set(repositories)
        return [name for name, record in self.skills.items() if record["repo"] in wanted]


def _free_name(record: Record, taken: dict[str, Record]) -> str:
    folders = [record["repo"], *Path(record["path"]).parts[:-1]]
    name = base = slugify(record["name"]) or slugify(folders[-1]) or "skill"
    number = 1
    while name in taken:
        number += 1
        name = f"{base[:56].strip('-')}-{number}"
    return name


def answerable(queries: Iterable[Record], ids: set[str]) -> list[Record]:
    """Return the positive tasks whose right skill is in the library, with only those of them that
    are.
    """
    positive = (
        {**q, "gold": [id_ for id_ in q["gold"] if id_ in ids]}
        for q in queries
        if q["kind"] == "positive"
    )
    return [query for query in positive if query["gold"]]


def hundreds(
    corpus: Sequence[Record], queries: Sequence[Record], seeds: int = SEEDS
) -> list[Library]:
    """Return libraries of 100 skills: half are called for by some task, half are any others of the
    smaller corpus.

    Of seven ways to draw them that were tried this one comes nearest to what is known of one such
    library: FTS5 over name and description .730 / .878 / .821 there, .775 / .889 / .850 over 20
    draws; one table with the body .841 / .941 / .902 there, .868 / .954 / .922 here.
    """
    by_id = {record["id"]: record for record in corpus}
    called = sorted({id_ for query in answerable(queries, set(by_id)) for id_ in query["gold"]})
    small = sorted(record["id"] for record in corpus if record.get("small")) or sorted(by_id)
    return [
        Library.of(by_id[id_] for id_ in _drawn(100, 50, called, small, seed))
        for seed in range(seeds)
    ]


def drawn(size: int, seed: int, corpus: Sequence[Record], queries: Sequence[Record]) -> Library:
    """Return a library of any size, a third of it called for by some task as far as there are so
    many.
    """
    by_id = {record["id"]: record for record in corpus}
    called = sorted({id_ for query in answerable(queries, set(by_id)) for id_ in query["gold"]})
    ids = (
        _drawn(size, max(1, size // 3), called, sorted(by_id), seed)
        if size < len(by_id)
        else sorted(by_id)
    )
    return Library.of(by_id[id_] for id_ in ids)


def _drawn(
    size: int, of_called: int, called: Sequence[str], others: Sequence[str], seed: int
) -> list[str]:
    chance = random.Random(seed)
    ids = chance.sample(called, min(of_called, len(called)))
    ids += chance.sample(others, min(size + of_called, len(others)))
    return list(dict.fromkeys(ids))[:size]


def tiled(corpus: Sequence[Record], size: int) -> Library:
    """Return a library of `size` skills, the corpus again and again under changed names: for
    latency only.

    A copy has the name of its original as `copy_of`.
    """
    return Library.of(_copy(corpus[at % len(corpus)], at // len(corpus), at) for at in range(size))


def _copy(record: Record, number: int, at: int) -> Record:
    if not number:
        return record
    name = f"{record['name'][:50]}-c{number}-{at}"
    return {
        **record,
        "id": f"{record['id']}#{at}",
        "name": name,
        "copy_of": slugify(record["name"]),
    }


def take_in(home: Path, library: Library, *, own: bool = False) -> None:
    """Make a library of Evolvable in `home` that holds the skills, with its index.

    own: they are the person's.
    """
    with Store.open(home, create=True) as store:
        put(store, library, list(library.skills), own=own)
        with Index.open(store) as index:
            index.catch_up()


def put(store: Store, library: Library, names: Sequence[str], *, own: bool = False) -> None:
    """Write these skills of the library. own: as the person's, else as an import."""
    made = Actor.HUMAN, Identity(Principal.PERSON, "terminal")
    actor, identity = made if own else (Actor.IMPORT, None)
    for start in range(0, len(names), _BATCH):
        with store.transaction(actor, "benchmark", identity=identity) as tx:
            for name in names[start : start + _BATCH]:
                tx.put(
                    Ref(Kind.SKILL, name),
                    {"SKILL.md": File(document(library.skills[name]).encode("utf-8"))},
                )


def take_out(store: Store, names: Sequence[str]) -> None:
    """Remove these skills."""
    with store.transaction(Actor.IMPORT, "benchmark") as tx:
        for name in names:
            tx.remove(Ref(Kind.SKILL, name))


def document(record: Record) -> str:
    """Return a SKILL.md with the name, description and body of the record."""
    head = {"name": record["name"], "description": record["description"]}
    fields = "".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in head.items()
    )
    return f"---\n{fields}---\n{record['body']}"
