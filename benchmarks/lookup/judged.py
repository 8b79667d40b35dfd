"""The upper bound of a judge: the whole search with a scripted one that is always right, where the
search asks one.

Where the search is sure, its first match counts. Where it asks, the right skill has to be among the
choices.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from support import Row, at_least, progress

from evolvable_store.search.index import Index
from evolvable_store.store import Store
from evolvable_tools.retrieval.cascade import search_cascade
from evolvable_tools.retrieval.search_types import Verdict
from lookup.data import Library, Record, answerable, take_in
from lookup.scoring import GATHERED, SMALL_FAMILY, family

LEAST = 0.75
"""Share of the tasks, as a mean over families, that a perfect judge has to answer right."""


def rows(library: Library, queries: Sequence[Record]) -> list[Row]:
    """Return hit@1 with the scripted judge, words alone, and how many tasks it is asked for."""
    asked, names = 0, {record["id"]: name for name, record in library.skills.items()}
    by_family: dict[str, list[bool]] = defaultdict(list)
    progress(f"scripted perfect judge: {len(library.skills):,} skills")
    tasks = answerable(queries, library.ids)
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with Store.open(home) as store, Index.open(store) as index:
            for query in tasks:
                right = {f"skill:{names[id_]}" for id_ in query["gold"]}
                found = search_cascade(index, query["text"])
                refs = [match.ref for match in found.matches[:1]]
                if found.verdict is Verdict.CHOOSE:
                    asked += 1
                    refs = [match.ref for match in found.matches] + [
                        str(entry.ref) for entry in found.further
                    ]
                by_family[family(query)].append(not right.isdisjoint(refs))
    whole = [
        mean(some)
        for name, some in by_family.items()
        if len(some) >= SMALL_FAMILY or name == GATHERED
    ]
    where = f"scripted perfect judge, {len(tasks):,} tasks among {len(library.skills):,} skills"
    return [
        at_least(f"{where}: hit@1, mean over families", mean(whole), LEAST, "{:.3f}".format),
        Row(f"{where}: asked for", f"{asked:,} tasks"),
    ]
