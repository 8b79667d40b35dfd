"""Data sets of others as a corpus and tasks of this benchmark: what each file holds, and how its
fields are named.

Three are public on a model hub: SkillRet (ThakiCloud/SKILLRET), SRA-Bench (WeihangSu/SRA-Bench) and
SkillRouter's pool (pipizhao/SkillRouter-Eval-Core). They are read from a folder into which they
were downloaded. `foreign` is our own set: tasks of repositories that took no part in the choice of
any weight; the skills are read from clones.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_store import frontmatter
from lookup.data import Record, lines
from lookup.scoring import GATHERED, SMALL_FAMILY

FOREIGN = Path(__file__).with_name("data") / "foreign_tasks.jsonl"

_MOST_BODY = 8_000  # characters, as in the corpus that the weights were chosen on

Dataset = tuple[list[Record], list[Record]]
"""The skills and the tasks."""


def skillret(folder: Path) -> Dataset:
    """Return the test split: skills/test.jsonl, queries/test.jsonl and qrels/test.jsonl below
    data/.
    """
    data = folder / "data" if (folder / "data").is_dir() else folder
    right: dict[str, list[str]] = {}
    for row in lines(data / "qrels" / "test.jsonl"):
        if int(row.get("relevance", 1)) > 0:
            right.setdefault(str(row["query_id"]), []).append(str(row["skill_id"]))
    skills = [
        _skill(r["id"], r, r["body"], r.get("repo", ""))
        for r in lines(data / "skills" / "test.jsonl")
    ]
    queries = lines(data / "queries" / "test.jsonl")
    return skills, [
        _task(q["id"], q["query"], right.get(str(q["id"]), ()), "skillret") for q in queries
    ]


def sra_bench(folder: Path) -> Dataset:
    """Return the corpus (corpus.json, its fields skill_id, name, description, content) and
    instances/*.json.
    """
    data = folder / "data" / "bench" if (folder / "data" / "bench").is_dir() else folder
    places = (data / "corpus.json", data / "corpus" / "corpus.json")
    corpus = next((path for path in places if path.is_file()), places[0])
    skills = [
        _skill(r["skill_id"], r, r.get("content", ""), "")
        for r in json.loads(corpus.read_text("utf-8"))
    ]
    tasks = []
    for path in sorted((data / "instances").glob("*.json")):
        for number, row in enumerate(json.loads(path.read_text("utf-8"))):
            identity = str(row.get("instance_id", f"{path.stem}-{number}"))
            annotated = row.get("skill_annotations") or row.get("gold_skills") or ()
            tasks.append(_task(identity, str(row["question"]), _ids(annotated), f"sra-{path.stem}"))
    return skills, tasks


def _ids(values: Iterable[Any]) -> list[str]:
    return [str(value["skill_id"] if isinstance(value, dict) else value) for value in values]


def skillrouter(folder: Path, tier: str = "easy") -> Dataset:
    """Return the pool of a tier (TIER/*.jsonl.gz), tasks.jsonl, and relevance.json without tasks of
    no one skill.
    """
    skills = [
        _skill(
            r["skill_id"],
            {**r, "description": r.get("description", r.get("desc", ""))},
            r.get("body", ""),
            "",
        )
        for path in sorted((folder / tier).glob("*.jsonl*"))
        for r in lines(path)
    ]
    relevance = json.loads((folder / "relevance.json").read_text("utf-8"))
    tasks = []
    for row in lines(folder / "tasks.jsonl"):
        known = relevance.get(row["task_id"], {})
        if known.get("task_type") != "generic_only":
            right = known.get("core_gt_ids", known.get("gt_skill_ids", ()))
            tasks.append(_task(row["task_id"], row["instruction_text"], right, "skillrouter"))
    return skills, tasks


def foreign(clones: Path, base: Path | None = None, tasks: Path = FOREIGN) -> Dataset:
    """Return our foreign set: its skills from clones/OWNER+NAME, at the commit that each task
    names, among a corpus.

    base: a corpus of the usual kind, whose skills of the same ids are replaced.
    """
    rows = list(lines(tasks))
    skills = {record["id"]: record for record in (lines(base) if base is not None else ())}
    for row in rows:
        (id_,) = row["gold"]
        if id_ not in skills:
            text = _committed(clones / row["repo"].replace("/", "+"), row["commit"], row["skill"])
            document = frontmatter.parse_document(text)
            summary = frontmatter.summarize(document)
            named = {
                "name": summary.name or Path(row["skill"]).parent.name,
                "description": summary.description,
            }
            skills[id_] = {**_skill(id_, named, document.body, row["repo"]), "path": row["skill"]}
    count = Counter(row["repo"] for row in rows)
    small = {repo for repo, number in count.items() if number < SMALL_FAMILY}
    sources = {repo: GATHERED if repo in small else repo for repo in count}
    return list(skills.values()), [
        {
            **_task(row["qid"], row["text"], row["gold"], sources[row["repo"]]),
            "source_repo": row["repo"],
        }
        for row in rows
    ]


def _committed(clone: Path, commit: str, path: str) -> bytes:
    """Return a file of a commit. Raises FileNotFoundError when the clone lacks it."""
    folder = clone / "repo" if (clone / "repo").is_dir() else clone
    command = ["git", "-C", str(folder), "show", f"{commit}:{path}"]
    found = subprocess.run(command, capture_output=True, check=False)
    if found.returncode:
        raise FileNotFoundError(
            f"{clone} has no {path} at {commit[:12]}; clone the repository there with that commit."
        )
    return found.stdout


def _skill(id_: object, named: Mapping[str, Any], body: str, repo: str) -> Record:
    name = str(named.get("name") or id_)
    description = str(named.get("description") or "")
    return {
        "id": str(id_),
        "name": name,
        "description": description,
        "body": str(body)[:_MOST_BODY],
        "repo": repo,
        "path": f"{name}/SKILL.md",
    }


def _task(id_: object, text: str, gold: Sequence[str], source: str) -> Record:
    return {
        "qid": str(id_),
        "text": text,
        "kind": "positive",
        "gold": [str(one) for one in gold],
        "also_ok": [],
        "source": source,
        "source_repo": "",
    }


LOADERS: Mapping[str, Callable[[Path], Dataset]] = {
    "skillret": skillret,
    "sra-bench": sra_bench,
    "skillrouter": skillrouter,
    "foreign": foreign,
}


def write(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """Write records as JSON lines and yield them."""
    with path.open("w", encoding="utf-8") as stream:
        for record in records:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            yield record
