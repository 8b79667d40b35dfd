"""Measures lookup on tasks of others, which took no part in the choice of any weight, beside FTS5.

    python benchmarks/lookup_datasets.py foreign CLONES --base CORPUS
    python benchmarks/lookup_datasets.py skillret FOLDER
    python benchmarks/lookup_datasets.py sra-bench FOLDER
    python benchmarks/lookup_datasets.py skillrouter FOLDER [--tier hard]
    python benchmarks/lookup_datasets.py examples CORPUS [--apart QUERIES ...]

foreign: 518 tasks that the authors of 103 skills wrote as tests of them
(`benchmarks/lookup/data/foreign_tasks.jsonl`: repository, commit, path and licence of each). CLONES
holds a clone of each repository as OWNER+NAME. CORPUS: the skills among which they are looked for,
as for `lookup`.

examples: the prompts that the skills of any corpus give as their own examples; the sections with
them are removed from the bodies. CORPUS has a record on each line: id, repo, path, name,
description and body. --apart: files of tasks whose right skills give no prompt, so that the set
shares no skill with another one.

The other three are on a model hub: `huggingface-cli download --repo-type dataset
ThakiCloud/SKILLRET` (or WeihangSu/SRA-Bench, pipizhao/SkillRouter-Eval-Core) `--local-dir FOLDER`.
They could not be downloaded where this was written: the readers are tested on small files of the
documented format, and there are no figures of ours for them.

--write DIR keeps the set as corpus.jsonl and queries.jsonl, for every other part of `python
benchmarks/lookup`.
"""

import argparse
import tempfile
from itertools import chain
from pathlib import Path

from lookup import judged, report
from lookup.comparison import Tools, compare, ways
from lookup.data import Library, answerable, lines
from lookup.datasets import LOADERS, Dataset, foreign, skillrouter, write
from lookup.example_prompts import example_prompts
from lookup.run import settings
from support import Row, conclude


def loaded(given: argparse.Namespace) -> Dataset:
    """Return the data set that a command line names."""
    if given.name == "foreign":
        return foreign(given.folder, given.base)
    if given.name == "skillrouter":
        return skillrouter(given.folder, given.tier)
    if given.name == "examples":
        return example_prompts(lines(given.folder), chain.from_iterable(map(lines, given.apart)))
    return LOADERS[given.name](given.folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=(*LOADERS, "examples"))
    parser.add_argument(
        "folder", type=Path, help="the folder of the set, or the corpus file of examples"
    )
    parser.add_argument(
        "--base", type=Path, metavar="CORPUS", help="foreign: the skills around them"
    )
    parser.add_argument(
        "--apart", type=Path, metavar="QUERIES", nargs="+", default=[], help="examples: other sets"
    )
    parser.add_argument(
        "--tier", default="easy", choices=("easy", "hard"), help="skillrouter: which pool"
    )
    parser.add_argument(
        "--embedder",
        type=Path,
        help="also run with this: a folder of model.onnx and tokenizer.json",
    )
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()), help="where vectors are kept"
    )
    parser.add_argument(
        "--runs", type=Path, help="write the rankings of every way into this folder"
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="keep the set here, and measure nothing"
    )
    given = parser.parse_args()
    corpus, queries = loaded(given)
    if given.write:
        given.write.mkdir(parents=True, exist_ok=True)
        sizes = [
            len(list(write(its, given.write / f"{name}.jsonl")))
            for name, its in zip(("corpus", "queries"), (corpus, queries), strict=True)
        ]
        print(f"{sizes[0]:,} skills and {sizes[1]:,} tasks in {given.write}")
        return
    library = Library.of(corpus)
    there, size = answerable(queries, library.ids), len(library.skills)
    ours = settings(given.embedder, given.cache, False)
    tools = Tools(given.embedder, given.cache, given.runs)
    measured = compare(ways(ours, tools), {size: [library]}, {size: queries}, tools)
    print(f"\n{report.comparison_table(measured, None)}")
    rows = [
        Row(f"{one.way}, {size:,} skills, {len(there):,} tasks", str(one.quality.macro))
        for one in measured
    ]
    for one in measured:
        rows += [
            Row(f"  {one.way}: {name}", str(score))
            for name, score in one.quality.families.items()
            if one.ours
        ]
    rows += judged.rows(library, queries)
    conclude(f"Lookup on tasks of others: {given.name}", rows)


if __name__ == "__main__":
    main()
