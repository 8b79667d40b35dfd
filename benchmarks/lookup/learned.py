"""What learned tasks are worth: half of each skill's tasks are taught, the other half asked, in one
process.

Two splits. `random`: each task is taught or asked by chance. `strict`: tasks that are near
duplicates stay in one half, and a task is taught only where its right skill is among the first five
without learned tasks, as the product does it. Beside them: tasks of skills without learned tasks,
and a hostile session that names one skill for everything.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from support import Row, progress

from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import Index
from evolvable_store.search.learned_texts import NEAR_DUPLICATE, content_terms, likeness
from evolvable_store.storage.learned import MAX_TASKS, LearnedTask, TaskSource
from evolvable_store.store import Store
from evolvable_tools.outcomes.learning import FOUND_AMONG, shorten_task
from lookup.data import Library, Record, answerable, take_in
from lookup.scoring import DEPTH, Quality, quality

_GAIN = {"random": 0.08, "strict": 0.05}
"""What hit@1 has to gain, macro over families."""

_LOST = 0.003


@dataclass(frozen=True, slots=True)
class Split:
    """The tasks that are taught, by skill, those asked of the same skills, and those of other
    skills.
    """

    taught: Mapping[str, Sequence[Record]]
    asked: Sequence[Record]
    others: Sequence[Record]


def split(
    queries: Sequence[Record], teachable: Mapping[str, bool], *, strict: bool, seed: int = 0
) -> Split:
    """Return a split of the tasks.

    teachable: by task, whether its right skill is among the first five.
    """
    chance, of_skill = random.Random(seed), defaultdict[str, list[Record]](list)
    for query in queries:
        for id_ in query["gold"]:
            of_skill[id_].append(query)
    taught, asked = dict[str, list[Record]](), set[str]()
    for id_, its in sorted(of_skill.items()):
        groups = _groups(its) if strict else [[query] for query in its]
        if len(groups) < 2:
            continue
        chance.shuffle(groups)
        half = len(groups) // 2
        taught[id_] = [
            q for group in groups[:half] for q in group if not strict or teachable[q["qid"]]
        ]
        asked |= {q["qid"] for group in groups[half:] for q in group}
    taught = {id_: its for id_, its in taught.items() if its}
    seen = {q["qid"] for its in taught.values() for q in its}
    fresh = [q for q in queries if q["qid"] not in seen]
    of_taught = [q["qid"] for q in fresh if not taught.keys().isdisjoint(q["gold"])]
    known = set(of_taught)
    return Split(
        taught,
        [q for q in fresh if q["qid"] in known and q["qid"] in asked],
        [q for q in fresh if q["qid"] not in known],
    )


def _groups(queries: Iterable[Record]) -> list[list[Record]]:
    """Return the tasks with near duplicates together."""
    groups: list[tuple[list[frozenset[str]], list[Record]]] = []
    for query in queries:
        terms = content_terms(query["text"])
        near = next(
            (g for g in groups if any(likeness(terms, other) >= NEAR_DUPLICATE for other in g[0])),
            None,
        )
        if near is None:
            groups.append(([terms], [query]))
        else:
            near[0].append(terms)
            near[1].append(query)
    return [its for _, its in groups]


def rows(library: Library, queries: Sequence[Record]) -> list[Row]:
    """Return what is gained and lost with learned tasks, words alone."""
    there = answerable(queries, library.ids)
    found: list[Row] = []
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with Store.open(home) as store, Index.open(store) as index:
            before = _rankings(index, library, there)
            teachable = {
                q["qid"]: not set(q["gold"]).isdisjoint(before[q["qid"]][:FOUND_AMONG])
                for q in there
            }
            for name in ("random", "strict"):
                progress(f"learned tasks: {name} split, {len(library.skills):,} skills")
                parts = split(there, teachable, strict=name == "strict")
                _teach(store, library, parts.taught)
                after = _rankings(index, library, [*parts.asked, *parts.others])
                found += _rows(name, parts, before, after)
                store.backend.learned.forget(store.backend.learned.resources())
            found += [
                _hostile_row(store, index, library, there, before, sessions)
                for sessions in (1, MAX_TASKS)
            ]
    return found


def _rankings(index: Index, library: Library, queries: Iterable[Record]) -> dict[str, list[str]]:
    hits = {q["qid"]: index.search(q["text"], kind=Kind.SKILL, limit=DEPTH).scored for q in queries}
    return {qid: [library.skills[hit.entry.name]["id"] for hit in its] for qid, its in hits.items()}


def _teach(store: Store, library: Library, taught: Mapping[str, Sequence[Record]]) -> None:
    names, at = (
        {record["id"]: name for name, record in library.skills.items()},
        datetime.now(UTC).isoformat(),
    )
    for id_, its in taught.items():
        resource = store.head(Ref(Kind.SKILL, names[id_])).id
        tasks = (shorten_task(query["text"]) for query in its[:MAX_TASKS])
        store.backend.learned.add(
            [LearnedTask(resource, task, at, False, TaskSource.SESSION) for task in tasks]
        )


def _rows(
    name: str, parts: Split, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> list[Row]:
    was, now = _quality(parts.asked, before), _quality(parts.asked, after)
    lost, kept = _quality(parts.others, before), _quality(parts.others, after)
    gain, loss = now.macro.hit1 - was.macro.hit1, lost.macro.hit1 - kept.macro.hit1
    count = sum(map(len, parts.taught.values()))
    return [
        Row(
            f"learned tasks, {name} split: {len(parts.taught)} skills taught {count} tasks, "
            f"{was.count} asked",
            f"{was.macro} -> {now.macro}",
            f"hit@1 at least +{_GAIN[name]:.2f}",
            gain >= _GAIN[name],
        ),
        Row(
            f"  tasks of skills without learned tasks, {lost.count} asked",
            f"{lost.macro} -> {kept.macro}",
            f"hit@1 at most -{_LOST}",
            loss <= _LOST,
        ),
    ]


def _quality(queries: Sequence[Record], ranked: Mapping[str, Sequence[str]]) -> Quality:
    return quality((query, ranked[query["qid"]]) for query in queries)


def _hostile_row(
    store: Store,
    index: Index,
    library: Library,
    queries: Sequence[Record],
    before: Mapping[str, Sequence[str]],
    sessions: int,
) -> Row:
    """Return what one skill gains from sessions that load it for everything: each teaches one task,
    if it fits.
    """
    # The skill that is most often among the first five for tasks of others has the most to gain.
    near = Counter(
        id_ for q in queries for id_ in before[q["qid"]][:FOUND_AMONG] if id_ not in q["gold"]
    )
    hostile, chance = near.most_common(1)[0][0], random.Random(0)
    plausible = [
        q for q in queries if hostile in before[q["qid"]][:FOUND_AMONG] and hostile not in q["gold"]
    ]
    taught = chance.sample(plausible, min(sessions, len(plausible)))
    _teach(store, library, {hostile: taught})
    known = {q["qid"] for q in taught}
    asked = [q for q in queries if q["qid"] not in known and hostile not in q["gold"]]
    after = _rankings(index, library, asked)
    store.backend.learned.forget(store.backend.learned.resources())
    first = [sum(ranked[q["qid"]][:1] == [hostile] for q in asked) for ranked in (before, after)]
    one = sessions == 1
    return Row(
        f"a hostile skill, loaded for everything by {sessions} session{'s' * (not one)} over as "
        "many connections",
        f"first for {first[0]} -> {first[1]} of {len(asked):,} tasks of others",
        "at most 5 more" if one else "",
        first[1] - first[0] <= 5 if one else None,
    )
