"""How well Evolvable tells that nothing fits, in libraries of many sizes, as a client sees it.

Each task whose right skill is in the library is asked twice: as it is, and after the repositories
of all that is right for it were really taken out of the library, with the copies of their skills in
other repositories. An answer with a copy of the right skill is right.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support import progress

from evolvable_store.store import Store
from lookup.copies import Copies
from lookup.data import Library, Record, answerable, drawn, put, take_in, take_out
from lookup.scoring import Verdict, family
from lookup.sessions import Reply, Served, Setting, closing

LIBRARIES = {30: 20, 100: 8, 300: 4, 1000: 2, 3000: 1, 10000: 1}
"""How many libraries of each size are drawn."""

QUICK = {30: 4, 100: 2, 300: 1, 1000: 1}


@dataclass(frozen=True, slots=True)
class Negatives:
    """Tasks that are for no skill of their library, or at least not for a named one.

    forbidden_first: how many of `named` tasks are answered with the skill that must not come first.
    answered: how many of `nothing` tasks, for which nothing in their own library fits, get an
    answer.
    """

    forbidden_first: int
    named: int
    answered: int
    nothing: int


def without_the_right(
    store: Store, library: Library, queries: Iterable[Record], copies: Copies | None
) -> Iterator[tuple[list[Record], Sequence[str]]]:
    """Yield tasks with the names that were taken out for them, while they are out; put them back
    afterwards.

    copies: those of the library, to take out as well; None leaves them in.
    """
    repository_of = {record["id"]: record["repo"] for record in library.skills.values()}
    groups: dict[frozenset[str], list[Record]] = defaultdict(list)
    for query in queries:
        right = (repository_of.get(id_) for id_ in (*query["gold"], *query.get("also_ok", ())))
        groups[frozenset({query["source_repo"], *filter(None, right)})].append(query)
    for repositories, its in groups.items():
        names = library.in_repositories(repositories)
        names += copies.names_of(names, library) if copies else ()
        take_out(store, names)
        yield its, names
        put(store, library, names)


def right_ids(query: Mapping[str, Any]) -> set[str]:
    """Return the ids that are a right answer to a task, copies included where they are marked."""
    return {*query["gold"], *query.get("also_ok", ()), *query.get("copies", ())}


def verdict(query: Mapping[str, Any], reply: Reply, out: bool) -> Verdict:
    """Return what one reply says of its first match."""
    right = not out and bool(reply.ranked) and reply.ranked[0] in right_ids(query)
    sure = reply.confidences[0] if reply.confidences else 0.0
    return Verdict(family(query), out, sure, not reply.none_fits, right)


def verdicts(
    setting: Setting, library: Library, queries: Sequence[Record], keep_copies: bool
) -> list[Verdict]:
    """Return the verdicts of a server over this library, on each task twice.

    keep_copies: copies of the right skills stay, and are wrong.
    """
    copies = None if keep_copies else Copies(library)
    asked = [
        copies.marked(query) if copies else query for query in answerable(queries, library.ids)
    ]
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with closing(Served(setting, home, library)) as served, Store.open(home) as store:
            found = [verdict(query, served.ask(query["text"]), out=False) for query in asked]
            for its, _ in without_the_right(store, library, asked, copies):
                found += [verdict(query, served.ask(query["text"]), out=True) for query in its]
    return found


def by_size(
    setting: Setting,
    corpus: Sequence[Record],
    queries: Sequence[Record],
    sizes: Mapping[int, int],
    *,
    keep_copies: bool = False,
) -> dict[int, list[Verdict]]:
    """Return the verdicts in the libraries of each size."""
    found: dict[int, list[Verdict]] = {}
    for size, count in sizes.items():
        progress(f"{setting.name}: does nothing fit, {count} libraries of {size:,}")
        libraries = (drawn(size, seed, corpus, queries) for seed in range(count))
        found[size] = [
            one for library in libraries for one in verdicts(setting, library, queries, keep_copies)
        ]
    return found


def negatives(served: Served, queries: Sequence[Record]) -> Negatives:
    """Return what the tasks that call for nothing get."""
    named = [query for query in queries if query["kind"] == "neg_skill"]
    nothing = [query for query in queries if query["kind"] == "neg_library"]
    forbidden = 0
    for query in named:
        reply = served.ask(query["text"])
        forbidden += (
            not reply.none_fits and bool(reply.ranked) and reply.ranked[0] in query["not_skill"]
        )
    answered = sum(not served.ask(query["text"]).none_fits for query in nothing)
    return Negatives(forbidden, len(named), answered, len(nothing))


def percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"
