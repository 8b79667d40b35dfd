"""The resources that ship with the product: each keeps the rules, and its scripts print what its
text says.
"""

import ast
import contextlib
import csv
import io
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.paths import seed_folder
from evolvable_store.resource import Kind
from evolvable_store.validation import find_problems
from evolvable_store.workingcopy.tree_reader import read_folder

pytestmark = pytest.mark.process

SKILLS = seed_folder() / "skills"
NAMES = sorted(path.name for path in SKILLS.iterdir() if path.is_dir())
SCRIPTS = sorted(SKILLS.glob("*/scripts/*.py"))

MAX_SEED = 120_000
"""Bytes of all seed resources together."""

GIT = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

ORDERS = (
    '{"orders": [{"id": 1, "customer": {"name": "Ada"}, "lines": [{"sku": "A", "qty": 2}]}], '
    '"page": 1}'
)


def main_text(name: str) -> str:
    return (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")


def fence(text: str, start: str, language: str = "text") -> str:
    """Returns the content of the first fenced block of this language whose text begins with
    `start`.
    """
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if block.startswith(start))


def environment() -> dict[str, str]:
    """Returns an environment in which git and pytest read nothing of this machine's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTEST_"))}
    who = {
        f"GIT_{role}_{key}": "t@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for key in ("NAME", "EMAIL")
    }
    quiet = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {
        **kept,
        **who,
        **quiet,
        "PYTHONIOENCODING": "utf-8",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def run(skill: str, script: str, *args: object, cwd: Path) -> tuple[int, str, str]:
    """Runs a script as an agent would; returns its status, output and error output."""
    command = [sys.executable, str(SKILLS / skill / "scripts" / script), *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode().replace("\r\n", "\n"), done.stderr.decode()


def git(folder: Path, *args: str) -> str:
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(
        command, env=environment(), check=True, capture_output=True, timeout=60
    ).stdout.decode()


def repository(folder: Path) -> Path:
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "core.autocrlf", "false")
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def test_there_are_ten_skills():
    assert len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_skill_has_no_problem_at_all(name):
    reading = read_folder(SKILLS / name)
    assert find_problems(Kind.SKILL, name, reading.files) == []
    assert reading.left_out == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_seed_skill_is_short_and_complete(name):
    """Agent Skills specification: intent lives in metadata, as texts."""
    document = parse_document(main_text(name).encode())
    assert set(document.fields) == {"name", "description", "license", "metadata"}
    assert document.fields["name"] == name
    assert document.fields["license"] == "Apache-2.0"
    assert len(summarize(document).description) <= 400
    assert re.search(r"\bUse (when|for)\b", summarize(document).description)
    assert len(summarize(document).triggers) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_skill_is_of_a_readable_length(name):
    assert 60 <= main_text(name).count("\n") <= 180


def test_the_seed_is_small():
    sizes = [len(file.data) for name in NAMES for file in read_folder(SKILLS / name).files.values()]
    assert sum(sizes) < MAX_SEED


def test_no_two_skills_share_a_trigger():
    triggers = [
        trigger
        for name in NAMES
        for trigger in summarize(parse_document(main_text(name).encode())).triggers
    ]
    assert len(triggers) == len(set(triggers))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_needs_only_python_3_9(script, tmp_path):
    tree = ast.parse(script.read_bytes(), feature_version=(3, 9))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    assert script.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    if os.name == "posix":
        assert os.access(script, os.X_OK)
    status, output, _ = run(script.parts[-3], script.name, "--help", cwd=tmp_path)
    assert status == 0
    assert "Exit status:" in output


def test_the_checker_finds_every_seed_skill_good(tmp_path):
    # Where pip installed them it left its own compiled files beside the scripts.
    skills = shutil.copytree(
        SKILLS, tmp_path / "skills", ignore=shutil.ignore_patterns("__pycache__")
    )
    status, output, _ = run(
        "write-a-skill", "check.py", "--strict", *(skills / name for name in NAMES), cwd=tmp_path
    )
    assert [line.split(" (")[0] for line in output.splitlines()] == [
        f"{name}: ok" for name in NAMES
    ]
    assert status == 0


def test_the_checker_prints_what_the_skill_says(tmp_path):
    text = main_text("write-a-skill")
    example = fence(text, "---", "markdown")
    write(tmp_path / "resize-images/SKILL.md", example)
    good = run("write-a-skill", "check.py", "resize-images", cwd=tmp_path)
    assert good == (0, fence(text, "resize-images:"), "")
    write(tmp_path / "images/SKILL.md", example.replace("\nmetadata:", "\nversion: 1.0\nmetadata:"))
    bad = run("write-a-skill", "check.py", "images", cwd=tmp_path)
    assert bad == (1, fence(text, "images:"), "")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("name: x\ndescription: a: b", "has a colon in it"),
        ("name: x\ndescription: yes", "description is not a text"),
        ("name: x\nname: x\ndescription: d", "'name' is there twice"),
        ("name: x\ndescription: d\nmetadata:\n  v: 1.0", "metadata v is not a text"),
        ("name: x\ndescription: d\nallowed-tools:\n  - Bash", "allowed-tools is not a text"),
        ("name: x\ndescription: " + "d" * 1025, "description has 1,025 characters"),
        ("name: X\ndescription: d", "only a-z, 0-9 and single hyphens"),
        ("name: x\n\tdescription: d", "a tab indents this line"),
        ("name: x\ndescription: <b>d</b>", "description has a tag"),
        ("name: x", "description is missing"),
    ],
)
def test_the_checker_says_what_is_wrong_with_a_head(tmp_path, head, said):
    write(tmp_path / "x/SKILL.md", f"---\n{head}\n---\nDo x.\n")
    status, output, _ = run("write-a-skill", "check.py", "x", cwd=tmp_path)
    assert status == 1
    assert said in output


def test_the_checker_finds_missing_files_and_broken_scripts(tmp_path):
    body = "Run `scripts/gone.py`, read [this](references/gone.md) and [that](../out.md).\n"
    write(tmp_path / "x/SKILL.md", f"---\nname: x\ndescription: d\n---\n{body}")
    write(tmp_path / "x/scripts/broken.py", "def f(:\n")
    status, output, _ = run("write-a-skill", "check.py", "x", cwd=tmp_path)
    assert status == 1
    for name in ("scripts/gone.py", "references/gone.md"):
        assert any(name in line and "not there" in line for line in output.splitlines())
    assert "../out.md points outside" in output
    assert "scripts/broken.py:1: " in output


def test_the_profiler_prints_what_the_skill_says(tmp_path):
    text = main_text("summarize-data-files")
    write(tmp_path / "orders.csv", fence(text, "id,", "csv"))
    printed = run("summarize-data-files", "profile_data.py", "orders.csv", cwd=tmp_path)
    assert printed == (0, fence(text, "orders.csv:"), "")


def test_the_profiler_reads_json_and_json_lines(tmp_path):
    write(tmp_path / "o.json", ORDERS)
    _, output, _ = run("summarize-data-files", "profile_data.py", "o.json", cwd=tmp_path)
    assert output.startswith("o.json: JSON, 1 row, 3 columns, utf-8, records at orders\n")
    assert "customer.name  text" in output
    write(tmp_path / "l.jsonl", '{"a": 1}\n{"a": "2"}\nnot json\n')
    _, output, _ = run("summarize-data-files", "profile_data.py", "l.jsonl", cwd=tmp_path)
    assert "not JSON: 1, first line 3" in output
    assert re.search(r"^- a: .*written as text: 1$", output, re.MULTILINE)


def test_the_profiler_can_keep_every_value_to_itself(tmp_path):
    write(tmp_path / "p.csv", "name,born\nAda,1815-12-10\nGrace,1906-12-09\nGrace,unclear\n")
    for option in ("--no-values", "--json"):
        _, output, _ = run(
            "summarize-data-files", "profile_data.py", "--no-values", option, "p.csv", cwd=tmp_path
        )
        assert "born" in output
        assert not re.search("Ada|Grace|1815|unclear", output)


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b'{"a": '], ids=["empty", "binary", "cut off"])
def test_the_profiler_says_in_one_line_that_a_file_is_no_data(tmp_path, data):
    (tmp_path / "x.json").write_bytes(data)
    status, output, error = run("summarize-data-files", "profile_data.py", "x.json", cwd=tmp_path)
    assert (status, output) == (1, "")
    assert error.startswith("x.json: ")
    assert error.count("\n") == 1


def test_the_code_in_the_data_skill_prints_what_it_says(tmp_path, monkeypatch):
    text = main_text("summarize-data-files")
    write(tmp_path / "orders.csv", fence(text, "id,", "csv"))
    write(tmp_path / "orders.json", fence(text, "{", "json"))
    monkeypatch.chdir(tmp_path)
    totals, table = (
        fence(text, "import csv, decimal", "python"),
        fence(text, "import csv, json", "python"),
    )
    with contextlib.redirect_stdout(io.StringIO(newline="")) as printed:
        exec(totals, {})
    assert printed.getvalue().strip() == totals.rpartition("# ")[2].strip()
    with contextlib.redirect_stdout(io.StringIO(newline="")) as printed:
        exec(table, {})
    expected = fence(text, "order_id,")
    assert list(csv.reader(io.StringIO(printed.getvalue()))) == list(
        csv.reader(io.StringIO(expected))
    )


def without_hashes(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{7}\b", "#######", text)


@GIT
def test_the_list_of_commits_is_what_the_skill_says(tmp_path):
    repo = repository(tmp_path)
    subjects = [
        "store: first",
        "store: keep a deleted folder's history",
        "feat(api)!: page the list",
        "cli: print JSON",
    ]
    for number, subject in enumerate(subjects):
        write(repo / f"{number}.txt", subject)
        git(repo, "add", "--all")
        body = ["-m", "BREAKING CHANGE: the list has a cursor"] if "!" in subject else []
        git(repo, "commit", "-q", "-m", subject, *body)
        if number == 0:
            git(repo, "tag", "v1.0.0")
    git(repo, "commit", "-q", "--allow-empty", "-m", "fix typo")
    git(repo, "revert", "--no-edit", "HEAD~1")
    status, output, error = run("write-a-changelog", "commits_since_tag.py", cwd=repo)
    assert (status, error) == (0, "")
    assert without_hashes(output) == without_hashes(
        fence(main_text("write-a-changelog"), "5 commits")
    )


@GIT
def test_the_list_of_commits_starts_at_the_beginning_without_a_tag(tmp_path):
    repo = repository(tmp_path)
    git(repo, "commit", "-q", "--allow-empty", "-m", "Begin")
    status, output, _ = run("write-a-changelog", "commits_since_tag.py", "--repo", repo, cwd=SKILLS)
    assert status == 0
    assert output.startswith("1 commit since the beginning")
    status, _, error = run("write-a-changelog", "commits_since_tag.py", "--since", "v9", cwd=repo)
    assert (status, error.count("\n")) == (1, 1)


def changed_repository(folder: Path) -> Path:
    """Returns a repository with the work tree that the commit skill shows."""
    repo = repository(folder)
    lines = [
        "LIMIT = 10",
        *(f"# {n}" for n in range(2, 32)),
        "    return nmae",
        *(f"# {n}" for n in range(33, 40)),
    ]
    write(repo / "app.py", "\n".join(lines) + "\n")
    git(repo, "add", "--all")
    git(repo, "commit", "-q", "-m", "first")
    lines[0], lines[31] = "LIMIT = 20", "    return name"
    write(repo / "app.py", "\n".join(lines) + "\n")
    write(repo / "notes.md", "new\n")
    return repo


@GIT
def test_hunks_are_listed_and_staged_as_the_skill_says(tmp_path):
    repo = changed_repository(tmp_path)
    text = main_text("write-commit-messages")
    listed = run("write-commit-messages", "hunks.py", "list", cwd=repo)
    assert listed == (0, fence(text, "1 app.py"), "")
    staged = run("write-commit-messages", "hunks.py", "stage", 1, 3, cwd=repo)
    assert staged == (0, "staged 2 hunks; 1 left unstaged\n", "")
    assert staged[1].strip() in text
    assert "+LIMIT = 20" in git(repo, "diff", "--cached")
    assert "return name" not in git(repo, "diff", "--cached")
    assert "+    return name" in git(repo, "diff")
    assert git(repo, "diff", "--cached", "--name-only").split() == ["app.py", "notes.md"]


@GIT
def test_fine_hunks_are_staged_at_their_place_in_any_order(tmp_path):
    """Neighbouring insertions, and a last line without an end: where a patch without context goes
    wrong.
    """
    repo = repository(tmp_path)
    write(repo / "f", "".join(f"{n}\n" for n in range(9)))
    git(repo, "add", "--all")
    git(repo, "commit", "-q", "-m", "first")
    write(repo / "f", "0\na\n1\nb\n2\n3\nc\n5\n6\n7\n8")
    status, _, error = run("write-commit-messages", "hunks.py", "stage", "--fine", 2, 4, cwd=repo)
    assert (status, error) == (0, "")
    assert git(repo, "show", ":f") == "0\n1\nb\n2\n3\n4\n5\n6\n7\n8"
    assert run("write-commit-messages", "hunks.py", "stage", "--fine", 2, 1, cwd=repo)[0] == 0
    assert git(repo, "diff") == ""


@GIT
def test_a_hunk_that_is_not_there_is_refused(tmp_path):
    repo = changed_repository(tmp_path)
    status, output, error = run("write-commit-messages", "hunks.py", "stage", 1, 9, cwd=repo)
    assert (status, output) == (1, "")
    assert "no hunk 9" in error and "there are 3" in error and error.count("\n") == 1
    assert git(repo, "diff", "--cached") == ""


def test_repeat_counts_as_the_skill_says(tmp_path):
    count = "import pathlib,sys; p=pathlib.Path('n'); n=len(p.read_bytes()) if p.exists() else 0; "
    command = count + "p.write_bytes(b'x'*(n+1)); print('run', n); sys.exit(n % 10 == 3)"
    options = ["-n", 50, "--save", "first-failure.txt", "--", sys.executable, "-S", "-c", command]
    status, output, _ = run("debug-a-failing-test", "repeat.py", *options, cwd=tmp_path)
    expected = fence(main_text("debug-a-failing-test"), "50 runs").replace("/tmp/", "")
    assert status == 1
    assert re.sub(r"\d+\.\d\d", "_", output) == re.sub(r"\d+\.\d\d", "_", expected)
    assert (tmp_path / "first-failure.txt").read_text().strip() == "run 3"


def test_repeat_ends_a_run_that_takes_too_long(tmp_path):
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    status, output, _ = run(
        "debug-a-failing-test", "repeat.py", "-n", 1, "--timeout", 0.3, "--", *sleep, cwd=tmp_path
    )
    assert status == 1
    assert "  longer than 0.3 s: 1\n" in output


def suite(folder: Path) -> None:
    """Writes the tests that the debugging skill shows: twelve before the victim, one of which
    spoils it.
    """
    write(folder / "state.py", "seen = set()\n")
    for number in range(1, 6):
        write(folder / f"tests/test_{number}.py", "def test_one(): pass\ndef test_two(): pass\n")
    write(folder / "tests/test_2b.py", "import state\ndef test_sets(): state.seen.add(1)\n")
    write(folder / "tests/test_3b.py", "def test_one(): pass\n")
    write(folder / "tests/test_z.py", "import state\ndef test_one(): assert not state.seen\n")
    write(folder / "pytest.ini", "[pytest]\naddopts = -q -p no:cacheprovider\n")


def test_the_polluter_is_found_as_the_skill_says(tmp_path):
    suite(tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly"]
    options = ["--victim", "tests/test_z.py::test_one", "--", *command]
    status, output, error = run("debug-a-failing-test", "find_polluter.py", *options, cwd=tmp_path)
    expected = fence(main_text("debug-a-failing-test"), "12 tests run before")
    assert (status, error) == (0, "")
    assert output.replace(sys.executable, "python3") == expected


def test_a_victim_that_fails_alone_has_no_polluter(tmp_path):
    write(tmp_path / "test_a.py", "def test_a(): assert False\n")
    options = [
        "--victim",
        "test_a.py::test_a",
        "--",
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
    ]
    status, output, _ = run("debug-a-failing-test", "find_polluter.py", *options, cwd=tmp_path)
    assert status == 1
    assert "it fails alone too" in output


def test_the_sqlite_example_rebuilds_a_table_that_others_refer_to():
    text = (SKILLS / "plan-a-migration/references/mysql-and-sqlite.md").read_text(encoding="utf-8")
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.executescript(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, email); INSERT INTO customers "
            "VALUES (1, 'a@b');CREATE TABLE orders (id INTEGER PRIMARY KEY, customer REFERENCES "
            "customers (id));INSERT INTO orders VALUES (1, 1); PRAGMA foreign_keys = ON;"
            + fence(text, "PRAGMA", "sql")
        )
        assert database.execute("SELECT * FROM customers").fetchall() == [(1, "a@b")]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("INSERT INTO orders VALUES (2, 99)")
