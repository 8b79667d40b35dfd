"""Ways to find a skill side by side: the same libraries, the same tasks, one after the other in one
run.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from support import median, percentile, progress

from lookup.data import Library, Record, answerable, take_in
from lookup.peers import PEERS, Peer
from lookup.scoring import Quality, averaged, quality
from lookup.sessions import PeerSession, Reply, Served, Session, Setting, closing


@dataclass(frozen=True, slots=True)
class Measured:
    """One way in libraries of one size. p50, p95, start, prepare: seconds. memory: MB above an
    empty process.

    start: from starting the process to its first answer, over a library that it knows. prepare:
    until it knows it, the vectors of texts that were met before excepted.
    """

    way: str
    ours: bool
    size: int
    quality: Quality
    p50: float
    p95: float
    start: float
    memory: float
    prepare: float


@dataclass(frozen=True, slots=True)
class Tools:
    """What the peers need: the folder of their encoder, and where vectors are kept.

    runs: where to write rankings.
    """

    model: Path | None
    cache: Path
    runs: Path | None = None


Way = Setting | Peer


def ways(settings: Sequence[Setting], tools: Tools) -> list[Way]:
    """Return all that can be measured here: peers that lack their encoder are left out."""
    return [*(peer for peer in PEERS if tools.model or not peer.needs_model), *settings]


def compare(
    ways: Sequence[Way],
    libraries: Mapping[int, Sequence[Library]],
    queries: Mapping[int, Sequence[Record]],
    tools: Tools,
) -> list[Measured]:
    """Return every way in libraries of every size; several of one size are averaged."""
    found = []
    for size, its in libraries.items():
        for way in ways:
            progress(f"{way.name}: {len(its)} libraries of {size:,}")
            found.append(
                _averaged([_measured(way, library, queries[size], tools) for library in its], size)
            )
    return found


def _averaged(several: Sequence[Measured], size: int) -> Measured:
    first = several[0]
    return Measured(
        first.way,
        first.ours,
        size,
        averaged([one.quality for one in several]) if len(several) > 1 else first.quality,
        median(one.p50 for one in several),
        median(one.p95 for one in several),
        median(one.start for one in several),
        mean(one.memory for one in several),
        median(one.prepare for one in several),
    )


def _measured(way: Way, library: Library, queries: Sequence[Record], tools: Tools) -> Measured:
    asked = answerable(queries, library.ids)
    with TemporaryDirectory() as folder:
        opened, prepare = _opened(way, library, Path(folder), tools)
        with closing(opened()) as session:
            replies = _replies(session, asked)
            memory = session.memory()
    if tools.runs:
        _write_run(tools.runs / f"{way.name} {len(library.skills)}.jsonl", asked, replies)
    seconds = [reply.seconds for reply in replies]
    pairs = zip(asked, (reply.ranked for reply in replies), strict=True)
    return Measured(
        way.name,
        isinstance(way, Setting),
        len(library.skills),
        quality(pairs),
        percentile(seconds, 50),
        percentile(seconds, 95),
        session.start,
        memory,
        prepare,
    )


def _opened(
    way: Way, library: Library, place: Path, tools: Tools
) -> tuple[Callable[[], Session], float]:
    """Return how to start the way over the library, and the seconds until it knew it."""
    started = time.perf_counter()
    if isinstance(way, Peer):
        way.build(list(library.skills.values()), place, tools.model, tools.cache)
        return lambda: PeerSession(way, place, tools.model), time.perf_counter() - started
    home = place / "home"
    take_in(home, library)
    return lambda: Served(way, home, library), time.perf_counter() - started


def _replies(session: Session, asked: Sequence[Record]) -> list[Reply]:
    for query in asked[:10]:  # the first pages are read
        session.ask(query["text"])
    return [session.ask(query["text"]) for query in asked]


def _write_run(file: Path, asked: Sequence[Record], replies: Sequence[Reply]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        {"qid": query["qid"], "ranked": reply.ranked, "none_fits": reply.none_fits}
        for query, reply in zip(asked, replies, strict=True)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
