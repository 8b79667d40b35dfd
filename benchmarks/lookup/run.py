"""Measures lookup on real skills and real tasks, beside other ways to find them.

    python benchmarks/lookup CORPUS QUERIES [--embedder FOLDER] [--write RESULT.md]
                             [--picture RESULT.svg]

CORPUS (.jsonl or .jsonl.gz): one skill a line, {"id", "name", "description", "body", "path",
"repo", "small"}. QUERIES (.jsonl): one task a line, {"qid", "text", "kind", "gold": [id],
"also_ok": [id], "not_skill": [id], "source", "source_repo"}.

hit@1: the first match is right. R@5: share of the right skills among the first five. Both are means
over families of tasks. Everything of Evolvable goes through its MCP server on stdio. Linux, for
what it says of memory.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import Row, conclude, progress

from lookup import judged, languages, learned, none_fits, past, report, speed, verdicts, weights
from lookup.comparison import Measured, Tools, compare, ways
from lookup.data import SEEDS, Library, Record, answerable, hundreds, lines, take_in, tiled
from lookup.picture import draw
from lookup.sessions import Served, Setting, closing

PARTS = (
    *(
        "quality",
        "weights",
        "learned",
        "past",
        "languages",
        "judge",
        "none",
        "verdicts",
        "speed",
        "intake",
    ),
    "eight",
)
_QUICK_TASKS = 300
_TIMED_TASKS = 500
_MANY = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured on: the corpus, its smaller part, the tasks, and every way to
    run Evolvable.
    """

    corpus: Sequence[Record]
    small: Sequence[Record]
    queries: Sequence[Record]
    settings: Sequence[Setting]
    tools: Tools
    quick: bool
    keep_copies: bool

    @property
    def whole(self) -> Library:
        return Library.of(self.corpus)

    def tasks(self) -> list[str]:
        """Return the tasks that latency is measured with, the same for every size."""
        every = [query["text"] for query in self.queries if query["kind"] == "positive"]
        return random.Random(0).sample(every, min(_TIMED_TASKS, len(every)))


def side_by_side(plan: Plan, seeds: int, sizes: Sequence[int]) -> list[Measured]:
    """Return every way in libraries of 100, of the smaller part, and of all, as far as `sizes`
    names them.
    """
    small, whole = len(plan.small), len(plan.corpus)
    queries = {100: plan.queries, small: plan.queries, whole: plan.queries}
    if plan.quick:
        there = answerable(plan.queries, {record["id"] for record in plan.small})
        queries[small] = random.Random(0).sample(there, min(_QUICK_TASKS, len(there)))
    wanted = [size for size in queries if size in sizes or not sizes]
    made = {
        100: lambda: hundreds(plan.corpus, plan.queries, seeds),
        small: lambda: [Library.of(plan.small)],
    }
    every = {size: made.get(size, lambda: [plan.whole])() for size in wanted}
    return compare(ways(plan.settings, plan.tools), every, queries, plan.tools)


def nothing_fits(plan: Plan) -> list[Row]:
    """Return the rows on what is kept, what is false, and how far the confidence can be
    believed.
    """
    rows: list[Row] = []
    sizes = none_fits.QUICK if plan.quick else none_fits.LIBRARIES
    for setting in plan.settings:
        found = none_fits.by_size(
            setting, plan.corpus, plan.queries, sizes, keep_copies=plan.keep_copies
        )
        rows += report.none_fits_rows(setting.name, found)
        rows += report.reliability_rows(
            setting.name, [one for some in found.values() for one in some]
        )
        with tempfile.TemporaryDirectory() as place:
            library = plan.whole
            take_in(Path(place) / "home", library)
            with closing(Served(setting, Path(place) / "home", library)) as served:
                rows += report.negative_rows(
                    setting.name, none_fits.negatives(served, plan.queries)
                )
    return rows


def speeds(plan: Plan) -> tuple[list[Row], float]:
    """Return the rows on latency and memory, and the seconds of a trivial call."""
    rows: list[Row] = []
    trivial = 0.0
    sizes = (len(plan.corpus),) if plan.quick else (len(plan.corpus), _MANY)
    for setting in plan.settings:
        empty = speed.empty_server_mb(setting, plan.tasks())
        for size in sizes:
            progress(f"{setting.name}: latency and memory, {size:,} skills")
            library = plan.whole if size == len(plan.corpus) else tiled(plan.corpus, size)
            held, times = speed.measured(setting, library, plan.tasks())
            rows += report.time_rows(setting.name, setting.embedder is not None, size, times)
            rows.append(
                report.memory_row(setting.name, setting.embedder is not None, size, held - empty)
            )
            trivial = trivial or times.trivial
    return rows, trivial


def settings(embedder: Path | None, cache: Path, only_embedder: bool) -> list[Setting]:
    """Return the ways to run Evolvable: without an embedder, and with the one in a folder."""
    plain = [Setting("Evolvable, text only", {"EVOLVABLE_EMBEDDER": "off"})]
    if embedder is None:
        return plain
    warm = Setting(
        "Evolvable, with embedder",
        {"EVOLVABLE_EMBEDDER": f"onnx:{embedder.resolve()}"},
        (embedder, cache),
    )
    return [warm] if only_embedder else [*plain, warm]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="1,000 skills, 300 tasks; for a look, not for the record",
    )
    parser.add_argument(
        "--embedder",
        type=Path,
        help="also run with this: a folder of model.onnx and tokenizer.json",
    )
    parser.add_argument("--only-embedder", action="store_true", help="leave out the run without it")
    parser.add_argument(
        "--peer-model", type=Path, help="such a folder for the peers; default: that of --embedder"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where vectors of peers are kept",
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    parser.add_argument(
        "--keep-copies",
        action="store_true",
        help="none: copies of the right skill stay and are wrong",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        help="libraries of 100 that are drawn; default %(default)s",
    )
    parser.add_argument(
        "--sizes", default="", help="compare only in libraries of these sizes, such as 1000,10000"
    )
    parser.add_argument(
        "--runs", type=Path, help="write the rankings of every way into this folder"
    )
    parser.add_argument("--write", type=Path, help="write both tables here, as Markdown")
    parser.add_argument(
        "--picture", type=Path, help="write quality over latency here, as SVG; needs matplotlib"
    )
    return parser.parse_args()


def planned(given: argparse.Namespace) -> Plan:
    """Return the plan for a command line."""
    corpus = list(lines(given.corpus))
    small = [record for record in corpus if record.get("small")] or corpus[:1000]
    tools = Tools(given.peer_model or given.embedder, given.cache, given.runs)
    ours = settings(given.embedder, given.cache, given.only_embedder)
    queries = list(lines(given.queries))
    return Plan(
        small if given.quick else corpus,
        small,
        queries,
        ours,
        tools,
        given.quick,
        given.keep_copies,
    )


def main() -> None:
    given = options()
    plan, parts = planned(given), given.parts.split(",")
    rows: list[Row] = []
    table, trivial = "", None
    seeds, sizes = (
        (2 if plan.quick else given.seeds),
        [int(size) for size in given.sizes.split(",") if size],
    )
    measured = side_by_side(plan, seeds, sizes) if "quality" in parts else []
    rows += report.quality_rows(
        measured, {setting.name: setting.embedder is not None for setting in plan.settings}
    )
    if "weights" in parts:
        rows += weights.rows(plan.whole, plan.queries)
    if "learned" in parts:
        rows += learned.rows(plan.whole, plan.queries)
    if "past" in parts:
        rows += past.rows(Library.of(plan.small), plan.queries)
    if "languages" in parts:
        rows += languages.rows(plan.small) + languages.translated_rows(plan.queries)
    if "judge" in parts:
        rows += judged.rows(plan.whole, plan.queries)
    if "none" in parts:
        rows += nothing_fits(plan)
    if "verdicts" in parts:
        for setting in plan.settings:
            wanted = {60: 2, 300: 1, 1000: 1} if plan.quick else verdicts.LIBRARIES
            some = {size: count for size, count in wanted.items() if size in sizes or not sizes}
            rows += verdicts.rows(setting, plan.corpus, plan.queries, some)
    if "speed" in parts:
        of_speed, trivial = speeds(plan)
        rows += of_speed
    if "intake" in parts:
        rows += report.intake_rows(speed.intake(plan.whole))
    if "eight" in parts:
        for setting in plan.settings:
            rows.append(
                report.eight_row(
                    setting.name, speed.eight_servers_mb(setting, plan.whole, plan.tasks())
                )
            )
    if measured:
        table = report.comparison_table(measured, trivial)
        print(f"\n{table}")
        if given.picture:
            draw(measured, given.picture)
    if given.write:
        report.write(given.write, table, rows)
    conclude("Lookup", rows)
