"""Measures lookup on real skills and real tasks: how often it is right, how sure it is, how long it takes.

    python benchmarks/lookup.py CORPUS QUERIES [--mode auto] [--run RUN.jsonl]

CORPUS (.jsonl or .jsonl.gz): one skill a line, {"id", "name", "description", "body", "path", "repo"}.
QUERIES (.jsonl): one task a line, {"qid", "text", "kind", "gold": [id], "also_ok": [id], "source", "source_repo"}.

hit@1: the first match is right. R@5: share of the right skills among the first five. Both are means over families of
tasks (the first word of `source`) with at least 20 tasks, the smaller ones taken together. Of `none_fits` it tells the
share of right answers that are given, and the share of tasks that get an answer when their skill and its whole
repository are taken out.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from evolvable_store.index import Index
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.store import Store
from evolvable_tools.lookup.cascade import MODES, Found, find
from evolvable_tools.lookup.text import FITS

Record = dict[str, Any]
DEPTH = 50
"""Matches asked for: with a repository taken out, there must be some left."""

_SMALL_FAMILY = 20


def lines(path: Path) -> Iterator[Record]:
    """Returns the records of a file of JSON lines, packed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return (json.loads(line) for line in text.splitlines() if line)


@dataclass
class Corpus:
    """The library's names for the corpus's skills, and the repository of each."""

    id_of: dict[str, str]
    repository_of: dict[str, str]


def take_in(store: Store, skills: Sequence[Record]) -> Corpus:
    """Writes every skill of a corpus into the library; names that occur twice get a number."""
    corpus = Corpus({}, {skill["id"]: skill["repo"] for skill in skills})
    for start in range(0, len(skills), 500):
        with store.transaction(Actor.IMPORT, "benchmark") as tx:
            for skill in skills[start : start + 500]:
                name = _free_name(skill, corpus.id_of)
                corpus.id_of[name] = skill["id"]
                tx.put(Ref(Kind.SKILL, name), {"SKILL.md": File(_document(skill).encode("utf-8"))})
    return corpus


def _free_name(skill: Record, taken: dict[str, str]) -> str:
    folders = [skill["repo"], *Path(skill["path"]).parts[:-1]]
    name = base = slugify(skill["name"]) or slugify(folders[-1]) or "skill"
    number = 1
    while name in taken:
        number += 1
        name = f"{base[:58].strip('-')}-{number}"
    return name


def _document(skill: Record) -> str:
    head = {"name": skill["name"], "description": skill["description"]}
    fields = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in head.items())
    return f"---\n{fields}---\n{skill['body']}"


@dataclass
class Asked:
    """One task, what came of it, and the milliseconds that the first few matches took."""

    query: Record
    found: Found
    ranked: list[str]
    wall: float
    cpu: float


def ask(index: Index, corpus: Corpus, queries: Sequence[Record], mode: str) -> list[Asked]:
    """Returns what the lookup says to every query."""
    find(index, "a first task that opens the file", mode=mode)
    asked = []
    for query in queries:
        wall, cpu = time.perf_counter(), time.thread_time()
        find(index, query["text"], scopes=("user",), mode=mode)
        spent = (time.perf_counter() - wall) * 1e3, (time.thread_time() - cpu) * 1e3
        found = find(index, query["text"], scopes=("user",), limit=DEPTH, mode=mode)
        asked.append(Asked(query, found, [corpus.id_of[match.name] for match in found.matches], *spent))
    return asked


def quality(asked: Sequence[Asked], corpus: Corpus) -> Record:
    """Returns hit@1 and R@5 over families, and how often `none_fits` is right."""
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sizes = Counter(family(one.query) for one in asked)
    right, wrong = [], []
    for one in asked:
        gold, near = set(one.query["gold"]), set(one.query.get("also_ok", ()))
        hit, recall = _scores(one.ranked, gold, near)
        families[family(one.query) if sizes[family(one.query)] >= _SMALL_FAMILY else "misc"].append((hit, recall))
        if hit:
            right.append(not one.found.none_fits)
        wrong.append(_best_of_others(one, gold | near, corpus) >= FITS)
    means = {name: [mean(column) for column in zip(*rows, strict=True)] for name, rows in families.items()}
    hits, recalls = (mean(column) for column in zip(*means.values(), strict=True))
    shares = {"kept": mean(right), "false": mean(wrong)}
    return {"hit@1": hits, "R@5": recalls, **shares, "families": dict(sorted(means.items()))}


def family(query: Record) -> str:
    """Returns the family that a task belongs to."""
    return str(query["source"]).partition("-")[0]


def _scores(ranked: Sequence[str], gold: set[str], near: set[str]) -> tuple[float, float]:
    """Returns hit@1 and R@5; a near copy counts as its only gold skill, once."""
    only = next(iter(gold)) if len(gold) == 1 else None
    seen: set[str] = set()
    first = 0.0
    rank = 0
    for name in ranked:
        target = name if name in gold else (only or name) if name in near else None
        if target in seen:
            continue
        rank += 1
        if rank > 5:
            break
        if target is not None:
            seen.add(target)
            first = first or float(rank == 1)
    return first, min(1.0, len(seen) / len(gold))


def _best_of_others(one: Asked, gold: set[str], corpus: Corpus) -> float:
    gone = {corpus.repository_of[name] for name in gold if name in corpus.repository_of} | {one.query["source_repo"]}
    pairs = zip(one.ranked, one.found.matches, strict=True)
    left = (m.confidence for name, m in pairs if name not in gold and corpus.repository_of[name] not in gone)
    return next(left, 0.0)


def percentiles(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return ", ".join(f"p{part} {ordered[len(ordered) * part // 100]:.1f}" for part in (50, 95, 99))


def answerable(queries: Sequence[Record], corpus: Corpus) -> list[Record]:
    """Returns the tasks whose right skill is in the corpus, with only those of them that are."""
    there = set(corpus.id_of.values())
    positive = ({**q, "gold": [id_ for id_ in q["gold"] if id_ in there]} for q in queries if q["kind"] == "positive")
    return [query for query in positive if query["gold"]]


def show(asked: Sequence[Asked], corpus: Corpus) -> None:
    result = quality(asked, corpus)
    print(f"hit@1 {result['hit@1']:.3f}, R@5 {result['R@5']:.3f} over {len(result['families'])} families")
    print(
        f"none fits: {result['kept']:.0%} of right answers kept, {result['false']:.0%} false without their repository"
    )
    print(f"milliseconds a query: {percentiles([one.wall for one in asked])}")
    print(f"of a processor:       {percentiles([one.cpu for one in asked])}")
    for family, (hit, recall) in result["families"].items():
        print(f"  {family:24} {hit:.3f} {recall:.3f}")


def show_negatives(index: Index, corpus: Corpus, queries: Sequence[Record], mode: str) -> None:
    """Says how often tasks that are for none get an answer: for a named skill, or for any."""
    named = ask(index, corpus, [q for q in queries if q["kind"] == "neg_skill"], mode)
    fired = [
        bool(one.ranked) and not one.found.none_fits and one.ranked[0] in one.query.get("not_skill", ())
        for one in named
    ]
    nothing = ask(index, corpus, [q for q in queries if q["kind"] == "neg_library"], mode)
    answered = [not one.found.none_fits for one in nothing]
    print(f"a skill that must not come first does: {mean(fired):.0%} of {len(fired)}")
    print(f"answered although nothing in the task's own library fits: {mean(answered):.0%} of {len(answered)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--mode", choices=MODES, default="auto")
    parser.add_argument("--run", type=Path, help="write {qid, ranked, none_fits} of every task here")
    options = parser.parse_args()
    queries = list(lines(options.queries))
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "home", create=True) as store:
        corpus = take_in(store, list(lines(options.corpus)))
        begun = time.perf_counter()
        with Index.open(store) as index:
            index.catch_up()
            print(f"{len(corpus.id_of)} skills searchable after {time.perf_counter() - begun:.1f} s", end=", ")
            print(f"{sum(file.stat().st_size for file in index.path.parent.glob('index.db*')) / 1e6:.0f} MB")
            asked = ask(index, corpus, answerable(queries, corpus), options.mode)
            show(asked, corpus)
            show_negatives(index, corpus, queries, options.mode)
    if options.run:
        rows = ({"qid": o.query["qid"], "ranked": o.ranked[:10], "none_fits": o.found.none_fits} for o in asked)
        options.run.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
