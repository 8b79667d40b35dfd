"""What past transcripts are worth: two sessions a skill, written as Claude Code writes them, read
by the product.

A strict split: near duplicates of a task stay in one half, and the product itself decides what a
prompt teaches (its skill has to be among the first five without learned tasks). Beside them: tasks
of skills of which no session is there. Everything is asked over MCP, before and after.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from support import Row, progress

from evolvable_tools.library import Library as OpenLibrary
from evolvable_tools.outcomes.past_sessions import PastSessions, learn_from_past
from evolvable_tools.redaction.redactor import Redactor
from lookup.data import Library, Record, answerable, take_in
from lookup.learned import split
from lookup.scoring import quality
from lookup.sessions import Served, Setting, closing

TASKS = 2
"""Sessions of each skill."""

_GAIN, _LOST, _OF = 0.045, 1, 300


@dataclass(frozen=True, slots=True)
class _Asked:
    """Rankings of the same tasks before and after."""

    queries: Sequence[Record]
    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    def counts(self) -> tuple[int, int]:
        """Return how many tasks have the right skill first only after, and only before."""
        was, now = (
            {q["qid"]: self._first(ranked, q) for q in self.queries}
            for ranked in (self.before, self.after)
        )
        return sum(now[one] and not was[one] for one in was), sum(
            was[one] and not now[one] for one in was
        )

    def text(self) -> str:
        """Return the means over families before and after, and the tasks won and lost."""
        was, now = (
            quality((q, ranked[q["qid"]]) for q in self.queries)
            for ranked in (self.before, self.after)
        )
        won, lost = self.counts()
        return f"{was.macro} -> {now.macro}; {won} won, {lost} lost"

    def gain(self) -> float:
        """Return what hit@1 gains, as a mean over families."""
        was, now = (
            quality((q, ranked[q["qid"]]) for q in self.queries)
            for ranked in (self.before, self.after)
        )
        return now.macro.hit1 - was.macro.hit1

    @staticmethod
    def _first(ranked: Mapping[str, Sequence[str]], query: Record) -> bool:
        right = {*query["gold"], *query.get("also_ok", ())}
        return not right.isdisjoint(ranked[query["qid"]][:1])


def rows(library: Library, queries: Sequence[Record]) -> list[Row]:
    """Return what is gained and lost by reading two past sessions of each skill."""
    there = answerable(queries, library.ids)
    parts = split(there, {q["qid"]: True for q in there}, strict=True)
    taught = {id_: its[:TASKS] for id_, its in parts.taught.items() if len(its) >= TASKS}
    asked = [q for q in parts.asked if not taught.keys().isdisjoint(q["gold"])]
    with TemporaryDirectory() as place:
        home, transcripts = Path(place) / "home", Path(place) / "projects"
        progress(f"past sessions: {len(taught)} skills, {len(library.skills):,} in all")
        take_in(home, library, own=True)
        before = _rankings(home, library, [*asked, *parts.others])
        _write(transcripts, library, taught)
        done = _learn(home, transcripts)
        again = _learn(home, transcripts)
        after = _rankings(home, library, [*asked, *parts.others])
    return _rows(
        library,
        taught,
        _Asked(asked, before, after),
        _Asked(parts.others, before, after),
        (done, again),
    )


def _rows(
    library: Library,
    taught: Mapping[str, Sequence[Record]],
    own: _Asked,
    others: _Asked,
    runs: Sequence[PastSessions],
) -> list[Row]:
    done, again = runs
    lost = others.counts()[1]
    return [
        Row(
            f"past sessions, strict split, {len(library.skills):,} skills: {done.read} sessions "
            f"of {len(taught)} skills taught {done.learned} tasks, {len(own.queries)} other tasks "
            "of these skills asked over MCP",
            own.text(),
            f"hit@1 at least +{_GAIN:.3f}",
            own.gain() >= _GAIN,
        ),
        Row(
            f"  tasks of skills without past sessions, {len(others.queries)} asked",
            others.text(),
            f"at most {_LOST} lost in {_OF}",
            lost * _OF <= _LOST * max(_OF, len(others.queries)),
        ),
        Row(
            "  the same sessions read again",
            f"{again.learned} tasks more",
            "none",
            again.learned == again.read == 0,
        ),
    ]


def _rankings(home: Path, library: Library, queries: Iterable[Record]) -> dict[str, Sequence[str]]:
    with closing(Served(Setting("words", {"EVOLVABLE_EMBEDDER": "off"}), home, library)) as served:
        return {query["qid"]: served.ask(query["text"]).ranked for query in queries}


def _learn(home: Path, transcripts: Path) -> PastSessions:
    with OpenLibrary.open(home) as library:
        done = learn_from_past(library, [transcripts], redactor=Redactor())
        library.index.catch_up()
    return done


def _write(folder: Path, library: Library, taught: Mapping[str, Sequence[Record]]) -> None:
    """Write a transcript for each task: a person types it, and the client's tool opens
    the skill.
    """
    names, at = (
        {record["id"]: name for name, record in library.skills.items()},
        datetime.now(UTC) - timedelta(days=30),
    )
    place = folder / "-work-project"
    place.mkdir(parents=True)
    for id_, its in taught.items():
        for query in its:
            session = str(uuid.uuid5(uuid.NAMESPACE_URL, query["qid"] + id_))
            lines = _lines(session, query["text"], names[id_], at)
            (place / f"{session}.jsonl").write_text(
                "".join(json.dumps(one) + "\n" for one in lines), "utf-8"
            )


def _lines(session: str, task: str, skill: str, at: datetime) -> list[Record]:
    call = f"toolu_{session.replace('-', '')[:20]}"
    used = {"type": "tool_use", "id": call, "name": "Skill", "input": {"skill": skill}}
    gave = {"type": "tool_result", "tool_use_id": call, "content": f"Launching skill: {skill}"}
    messages = [
        {"type": "user", "message": {"role": "user", "content": task}},
        {
            "type": "assistant",
            "message": {"role": "assistant", "model": "claude-opus-5-5", "content": [used]},
        },
        {"type": "user", "message": {"role": "user", "content": [gave]}},
    ]
    return [
        {
            **message,
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session} {number}")),
            "timestamp": (at + timedelta(seconds=number)).isoformat(),
            "cwd": "/work/project",
            "sessionId": session,
            "isSidechain": False,
        }
        for number, message in enumerate(messages)
    ]
