"""The readers of other benchmarks, on small files of their documented formats."""

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from lookup.data import answerable, lines
from lookup.datasets import FOREIGN, foreign, skillret, skillrouter, sra_bench
from lookup.example_prompts import example_prompts


def saved(path: Path, *records: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def told(found: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> list[tuple[str, list[str]]]:
    """The text of each task that its library can answer, with the names of the right skills."""
    skills, tasks = found
    names = {skill["id"]: skill["name"] for skill in skills}
    return [
        (task["text"], [names[id_] for id_ in task["gold"]])
        for task in answerable(tasks, set(names))
    ]


def test_skillret_has_its_labels_in_a_file_of_their_own(tmp_path: Path) -> None:
    skill = {
        "id": "s1",
        "name": "pdf",
        "description": "Fills forms",
        "body": "Steps",
        "repo": "a/b",
    }
    saved(tmp_path / "data/skills/test.jsonl", skill, skill | {"id": "s2", "name": "csv"})
    saved(
        tmp_path / "data/queries/test.jsonl",
        {"id": "q1", "query": "fill it in", "skill_ids": ["s1"], "k": 1},
    )
    labels = [
        {"query_id": "q1", "skill_id": "s1", "relevance": 1},
        {"query_id": "q1", "skill_id": "s2", "relevance": 0},
    ]
    saved(tmp_path / "data/qrels/test.jsonl", *labels)

    assert told(skillret(tmp_path)) == [("fill it in", ["pdf"])]


def test_sra_bench_has_one_corpus_and_a_file_for_each_family_of_tasks(tmp_path: Path) -> None:
    corpus = [{"skill_id": "t_0", "name": "Taylor", "description": "Series", "content": "Expand"}]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/corpus.json").write_text(json.dumps(corpus))
    (tmp_path / "instances").mkdir()
    rows = [
        {
            "instance_id": "i1",
            "dataset": "theoremqa",
            "question": "expand sin x",
            "skill_annotations": ["t_0"],
        }
    ]
    (tmp_path / "instances/theoremqa.json").write_text(json.dumps(rows))

    assert told(sra_bench(tmp_path)) == [("expand sin x", ["Taylor"])]


def test_skillrouter_leaves_out_tasks_that_no_one_skill_is_for(tmp_path: Path) -> None:
    saved(
        tmp_path / "easy/part-00000.jsonl.gz",
        {"skill_id": "a", "name": "pdf", "desc": "Forms", "body": "Steps"},
    )
    saved(
        tmp_path / "tasks.jsonl",
        *({"task_id": f"t{n}", "instruction_text": f"task {n}"} for n in (1, 2)),
    )
    known = {
        "t1": {"task_type": "single", "gt_skill_ids": ["a"]},
        "t2": {"task_type": "generic_only"},
    }
    (tmp_path / "relevance.json").write_text(json.dumps(known))

    skills, tasks = skillrouter(tmp_path)

    assert told((skills, tasks)) == [("task 1", ["pdf"])]
    assert len(tasks) == 1


@pytest.mark.process
def test_foreign_skills_are_read_at_the_commit_that_a_task_names(tmp_path: Path) -> None:
    clone = tmp_path / "acme+skills"
    git = ["git", "-C", str(clone), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    clone.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    for description in ("First.", "Second."):
        (clone / "SKILL.md").write_text(f"---\nname: pdf\ndescription: {description}\n---\nSteps\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", description], check=True)
    first = subprocess.run(
        [*git, "rev-parse", "HEAD~"], check=True, capture_output=True, text=True
    ).stdout.strip()
    row = {
        "qid": "1",
        "text": "fill it in",
        "gold": ["acme/skills:"],
        "repo": "acme/skills",
        "skill": "SKILL.md",
    }
    saved(tmp_path / "tasks.jsonl", row | {"commit": first})

    (skill,), tasks = foreign(tmp_path, tasks=tmp_path / "tasks.jsonl")

    assert (skill["description"], skill["body"].strip()) == ("First.", "Steps")
    assert told(([skill], tasks)) == [("fill it in", ["pdf"])]
    saved(tmp_path / "tasks.jsonl", row | {"commit": "0" * 40})
    with pytest.raises(FileNotFoundError, match="acme\\+skills has no SKILL.md"):
        foreign(tmp_path, tasks=tmp_path / "tasks.jsonl")


def test_every_foreign_task_names_its_origin_and_a_permissive_licence() -> None:
    rows = list(lines(FOREIGN))

    assert len({row["qid"] for row in rows}) == len(rows) == 518
    assert {row["licence"] for row in rows} <= {"MIT", "Apache-2.0", "BSD-3-Clause", "CC-BY-4.0"}
    assert all(
        len(row["commit"]) == 40 and row["path"] and row["repo"] and row["skill"] for row in rows
    )


def example(name: str, body: str, description: str = "Fills forms.") -> dict[str, Any]:
    return {"id": f"acme/{name}", "repo": "acme", "path": f"{name}/SKILL.md", "name": name} | {
        "description": description,
        "body": body,
    }


def test_example_prompts_become_tasks_and_their_sections_leave_the_body() -> None:
    body = """# PDF

Merge files.

## Examples

### Example prompts

- "Fill in the tax form that I was sent"
- "fills forms"

## Notes

Keep the original.
"""
    skills, tasks = example_prompts([example("pdf", body)])

    assert told((skills, tasks)) == [("Fill in the tax form that I was sent", ["pdf"])]
    assert skills[0]["body"] == "# PDF\n\nMerge files.\n\n## Notes\n\nKeep the original.\n"


def test_a_prompt_after_a_label_counts_and_code_does_not() -> None:
    body = "User: Merge these two reports into one\nUser: run --in={a} | tee <b>\n"

    _, tasks = example_prompts([example("pdf", body)])

    assert [task["text"] for task in tasks] == ["Merge these two reports into one"]


def test_prompts_that_two_skills_give_are_no_tasks() -> None:
    same = "User: Make me a nice report\n"
    named = "User: Please use {} for the report\n"
    skills = [example(name, same + named.format(name)) for name in ("pdf", "docx")]

    cleaned, tasks = example_prompts(skills)

    assert tasks == []
    assert all("report" not in skill["body"] for skill in cleaned)


def test_another_skill_whose_body_holds_the_prompt_is_right_too_and_loses_it() -> None:
    prompt = "Merge these two reports into one"
    skills = [example("pdf", f"User: {prompt}\n"), example("office", f"For {prompt} see pdf.\n")]

    cleaned, (task,) = example_prompts(skills)

    assert (task["gold"], task["also_ok"]) == (["acme/pdf"], ["acme/office"])
    assert all(prompt not in skill["body"] for skill in cleaned)


def test_the_right_skills_of_other_sets_give_no_example_prompts() -> None:
    skill = example("pdf", "User: Merge these two reports into one\n")

    assert example_prompts([skill], [{"gold": ["acme/pdf"]}])[1] == []
