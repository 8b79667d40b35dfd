"""Make the libraries of older versions with their own command line;
tests/flow/test_older_libraries.py opens them.

    git worktree add /tmp/tree COMMIT
    python -m venv /tmp/venv && /tmp/venv/bin/pip install -e /tmp/tree
    rm -rf /tmp/evolvable-older
    python tests/data/older/make.py make /tmp/tree /tmp/venv/bin/python COMMIT.tar.xz

Needs Linux or macOS. Each archive holds a person's whole machine below /tmp/evolvable-older: the
library with two runs of an evolution (one finished and adopted, one that waits for an answer),
configuration, clients, transcripts, exports and a backup; and answers.json, which is what that
version's own commands said about it.

    python tests/data/older/make.py record /tmp/tree /tmp/venv/bin/python ARCHIVE OUT

writes what another version says about an archive. tests/data/older/keys.json holds the keys
(older_machine.key_paths) of what 014e1ac said: the last commit before modules, classes and
functions got their present names.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path("/tmp/evolvable-older")
"""Where the machine lies while it is made; stored texts and rows name it."""

INSTALLED = "/opt/evolvable/bin"
"""Stands in stored texts for the folder of the programs that the version ran by."""

EXAMPLES = Path(__file__).parents[3] / "examples"

QUESTIONS: Mapping[str, Sequence[str]] = {
    "list": ["list"],
    "list prompts": ["list", "--kind", "prompt"],
    "list memories": ["list", "--kind", "memory"],
    "list environments": ["list", "--kind", "environment"],
    "history": ["history", "pdf"],
    "history of a removed skill": ["history", "old-one"],
    "difference": ["history", "pdf", "--diff", "1..2"],
    "get": ["get", "pdf"],
    "get the first version": ["get", "pdf@1"],
    "get a prompt": ["get", "prompt:greet"],
    "get a memory": ["get", "memory:USER"],
    "inbox": ["inbox"],
    "proposal": ["inbox", "show", "3"],
    "log": ["log", "--limit", "100"],
    "find": ["find", "merge two PDF files"],
    "stats": ["stats"],
    "stats of a skill": ["stats", "pdf"],
    "channel": ["channel"],
    "channel log": ["channel", "log"],
    "folders": ["folders"],
    "sessions": ["sessions"],
    "review status": ["review", "--status"],
    "tokens": ["token", "list"],
    "runs": ["evolve", "status"],
    "finished run": ["evolve", "status", "FINISHED"],
    "waiting run": ["evolve", "status", "WAITING"],
    "report": ["evolve", "report", "FINISHED"],
    "question": ["evolve", "pending", "WAITING"],
    "adoptions": ["evolve", "watch"],
    "taskset": ["taskset", "list"],
    "fsck": ["fsck"],
}

INVOICES = """\
- order: `PO-(\\d+)`
- date: `Invoice date (\\d\\d)\\.(\\d\\d)\\.(\\d{4})` -> `\\3-\\2-\\1`
- total: `Amount due: EUR (\\d+),(\\d{3}\\.\\d\\d)` -> `\\1\\2`
- total: `Amount due: EUR (\\d+\\.\\d\\d)`
"""


def questions(runs: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the commands that describe a library, each with --json.

    runs: the ids of its two runs.
    """
    return {
        name: [*(runs.get(word, word) for word in words), "--json"]
        for name, words in QUESTIONS.items()
    }


class Machine:
    """A person's machine below ROOT, on which a version of Evolvable is installed."""

    def __init__(self, tree: Path, python: Path) -> None:
        self.python = python
        self.user, self.project, self.home = ROOT / "user", ROOT / "project", ROOT / "library"
        account = tree / "tests/support/account"
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.user),
            "EVOLVABLE_HOME": str(self.home),
        }
        self.env |= {
            "EVOLVABLE_EMBEDDER": "off",
            "PYTHONPATH": str(account) if account.exists() else "",
        }
        self.env |= {"EVOLVABLE_TEST_ACCOUNT": str(self.user), "EVOLVABLE_TEST_TERMINAL": "1"}

    def run(self, *arguments: str, given: str = "y\n", code: int | None = 0) -> str:
        """Run a command; return what it printed."""
        command = [str(self.python), "-P", "-m", "evolvable_server", *arguments]
        options: dict[str, Any] = {
            "env": self.env,
            "cwd": self.project,
            "encoding": "utf-8",
            "capture_output": True,
        }
        ran = subprocess.run(command, input=given, timeout=300, check=False, **options)
        if code is not None and ran.returncode != code:
            raise SystemExit(
                f"{arguments} ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
            )
        return ran.stdout

    def json(self, *arguments: str, given: str = "y\n", code: int | None = 0) -> Any:
        """Run a command with --json; return what it printed as a value."""
        return json.loads(self.run(*arguments, "--json", given=given, code=code))

    def answers(self, runs: Mapping[str, str]) -> dict[str, Any]:
        """Return what the version says about the library, by the names in QUESTIONS."""
        said = {}
        for name, words in questions(runs).items():
            out = self.run(*words, code=None)
            said[name] = json.loads(out) if out.strip().startswith(("{", "[")) else out
        return said


def skill(name: str, description: str, body: str) -> str:
    """Return a SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n\n{body}\n"


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_library(on: Machine) -> None:
    """Fill the library: skills, a prompt, memories, versions, proposals, the release channel."""
    skills = on.user / ".claude/skills"
    write(skills / "pdf/SKILL.md", skill("pdf", "Merge, split and fill PDF files.", "Use pypdf."))
    write(skills / "pdf/scripts/merge.py", "print('merged')\n")
    write(
        skills / "notes/SKILL.md",
        skill("notes", "Write release notes from a list of commits.", "Group by area."),
    )
    write(skills / "old-one/SKILL.md", skill("old-one", "Convert WordStar files.", "Nobody does."))
    shutil.copytree(EXAMPLES / "order-fields", skills / "order-fields")
    on.run("init", str(skills))
    greet = "---\nname: greet\ndescription: Greet somebody.\n---\n\nGreet {{name}}.\n"
    on.run("update", "prompt:greet", "--create", "--file", "PROMPT.md=-", given=greet)
    on.run(
        "update",
        "memory:USER",
        "--create",
        "--file",
        "USER.md=-",
        given="- Prefers short answers.\n",
    )
    on.run(
        "update",
        "memory:MEMORY",
        "--create",
        "--file",
        "MEMORY.md=-",
        given="- The build runs on Tuesdays.\n",
    )
    on.run(
        "update",
        "pdf",
        "--edit",
        "SKILL.md",
        "Use pypdf.",
        "Use pypdf, never PyPDF2.",
        "-m",
        "PyPDF2 is dead",
    )
    on.run("publish")
    on.run("channel", "policy", "manual")
    on.run("update", "pdf", "--edit", "SKILL.md", "PyPDF2.", "PyPDF2.\n\nCheck the page count.")
    on.run("restore", "pdf", "1")
    on.run("undo", str(on.json("log")["operations"][0]["operation"]), "--yes")
    on.run("remove", "old-one")
    on.run("channel", "withdraw", "notes")
    for words, way in (("by area", "approve"), ("by author", "reject"), ("by date", "")):
        on.run(
            "update",
            "notes",
            "--edit",
            "SKILL.md",
            "Group ",
            f"Group {words}, then ",
            "--propose",
            "-m",
            words,
        )
        number = str(on.json("inbox")["proposals"][-1]["proposal_id"])
        if way:
            on.run("inbox", way, number, "-m", "so")


def make_evidence(on: Machine) -> None:
    """Use skills, report outcomes, and review a session."""
    for outcome in ("succeeded", "failed", "succeeded"):
        found = on.json("find", "merge two PDF files")
        use = on.json("load", "pdf", "--search", found["search_id"])["use_id"]
        on.run("report", use, outcome, "--task-type", "pdf", "--evidence", "The file opened.")
    session = "01234567-89ab-4cde-8f01-23456789abcd"
    line = {
        "sessionId": session,
        "cwd": str(on.project),
        "version": "2.1.0",
        "isSidechain": False,
        "userType": "external",
    }
    said: list[dict[str, Any]] = []

    def add(kind: str, content: Any, **more: Any) -> None:
        stamp = f"2026-11-20T08:00:{len(said):02}.000Z"
        last = said[-1]["uuid"] if said else None
        here = {
            "type": kind,
            "uuid": f"00000000-0000-4000-8000-{len(said):012}",
            "parentUuid": last,
            "timestamp": stamp,
        }
        said.append({**line, **here, "message": {"role": kind, "content": content, **more}})

    add("user", "Merge the two PDF files. We always check the page count after merging.")
    call = {
        "type": "tool_use",
        "id": "t1",
        "name": "Bash",
        "input": {"command": "python scripts/merge.py"},
    }
    add("assistant", [call], id="m1", model="claude-opus-5-5")
    add(
        "user",
        [{"type": "tool_result", "tool_use_id": "t1", "content": "merged", "is_error": False}],
    )
    add(
        "assistant", [{"type": "text", "text": "Done: 12 pages."}], id="m2", model="claude-opus-5-5"
    )
    folder = str(on.project).replace("/", "-")
    text = "".join(json.dumps(one) + "\n" for one in said)
    path = write(on.user / ".claude/projects" / folder / f"{session}.jsonl", text)
    begun = on.json("review", str(path))
    quote = "We always check the page count after merging."
    span = next(one["id"] for one in begun["packet"]["data"]["evidence"] if quote in one["text"])
    learnt = {
        "kind": "preference",
        "claim": "Pages are counted.",
        "text": "Check the page count after merging PDFs.",
    }
    answer = {
        "review_id": begun["review_id"],
        "candidates": [learnt | {"evidence": [{"span": span, "quote": quote}]}],
    }
    on.run("review", "--answer", str(write(on.project / "answer.json", json.dumps(answer))))


def make_clients(on: Machine) -> None:
    """Connect clients, write memories into their folders, make tokens."""
    write(
        on.user / ".claude.json",
        '{"numStartups": 3, "mcpServers": {"github": {"command": "npx"}}}\n',
    )
    write(on.user / ".codex/config.toml", 'model = "gpt-5.5"  # the big one\n')
    for client in ("claude-code", "codex"):
        on.run("connect", client)
    on.run("connect", "claude-code", "--scope", "project")
    on.run("memory", "on", "claude-code", "codex")
    on.run("checkout", str(ROOT / "written"))
    on.run("token", "add", "laptop", "--write")


def answer_to(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to the data of a question, be it a proposer's or a builder's."""
    if "intents" in data:
        change = {"path": "SKILL.md", "old": "## Rules\n\n", "new": f"## Rules\n\n{INVOICES}"}
        return {"edits": [{"op": "edit", "ref": data["intents"][0]["ref"], "changes": [change]}]}
    failed = [one["task"] for one in data["evidence"] if one["result"] == "failed"]
    said = "Read invoices too"
    intent = {"op": "edit", "ref": "skill:order-fields", "tasks": failed, "modification": said}
    return {
        "diagnoses": [],
        "approaches": [],
        "intents": [intent],
        "summary": said,
        "justification": "They failed.",
    }


def make_runs(on: Machine) -> dict[str, str]:
    """Evolve a skill to its adoption, and begin a second run that waits; return their ids."""
    folder = ROOT / "in/order-emails"
    folder.mkdir(parents=True)
    for name in ("ENVIRONMENT.md", "run.py"):
        shutil.copy(EXAMPLES / "order-emails" / name, folder)
    tasks = (EXAMPLES / "order-emails/tasks.jsonl").read_text(encoding="utf-8").splitlines()
    write(folder / "tasks.jsonl", "\n".join(tasks[2::4]))
    named = "executor" in on.run("--help")
    accept = "--accept" if "--accept" in on.run("import", "--help") else "--yes"
    on.run("import", str(folder.parent), "--kind", "environment", accept, code=None)
    if named:
        config = '[executors.orders]\ncommand = ["{python}", "-I", "-S", "run.py"]\n'
        write(on.user / ".config/evolvable/config.toml", config)
        on.run("proposer", "add", "thinker", "--", "thinker", "-p")
    executor = "orders" if named else "{python} -I -S run.py"
    begin = [
        "evolve",
        "start",
        "environment:order-emails",
        "--program",
        "skill:order-fields",
        "--executor",
        executor,
    ]
    begin += ["--free", "--test-repeats", "1", "--iterations", "1", "--wait"]
    on.run(*begin)
    runs = {"FINISHED": on.json("evolve", "status")["run"]}
    while packets := on.json("evolve", "pending")["packets"]:
        answer = json.dumps(answer_to(packets[0]["data"]))
        on.run("evolve", "submit", "-", "--wait", given=answer)
    on.run("evolve", "adopt", "--unproven")
    on.run("evolve", "report")
    on.run(*begin, "--seed", "7")
    return runs | {"WAITING": on.json("evolve", "status")["run"]}


def make(tree: Path, python: Path, target: Path) -> None:
    """Make the archive of a version."""
    if ROOT.exists():
        raise SystemExit(f"{ROOT} is there; remove it first.")
    on = Machine(tree, python)
    on.user.mkdir(parents=True)
    on.project.mkdir()
    make_library(on)
    make_evidence(on)
    make_clients(on)
    runs = make_runs(on)
    on.run("export", str(ROOT / "all.json"))
    on.run("export", str(ROOT / "skills.zip"))
    on.run("backup", str(ROOT / "backup"))
    answers = {"root": str(ROOT), "runs": runs, "answers": on.answers(runs)}
    write(ROOT / "answers.json", json.dumps(answers, indent=1, ensure_ascii=False, sort_keys=True))
    for path in (
        on.user / ".claude.json",
        on.user / ".codex/config.toml",
        on.project / ".mcp.json",
    ):
        path.write_text(
            path.read_text(encoding="utf-8").replace(str(python.parent), INSTALLED),
            encoding="utf-8",
        )
    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(ROOT, ".", filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out whose file it was, and what belongs to the computer that it was made on."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return (
        None
        if Path(entry.name).suffix in (".lock", ".sock") or entry.name.endswith("/sandbox.json")
        else entry
    )


# Python 3.11.0 to 3.11.3 have no filters; the archives are our own.
_SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def record(tree: Path, python: Path, archive: Path, target: Path) -> None:
    """Write what a version says about an archive."""
    if ROOT.exists():
        raise SystemExit(f"{ROOT} is there; remove it first.")
    with tarfile.open(archive) as opened:
        opened.extractall(ROOT, **_SAFELY)
    runs = json.loads((ROOT / "answers.json").read_text(encoding="utf-8"))["runs"]
    write(
        target,
        json.dumps(
            Machine(tree, python).answers(runs), indent=1, ensure_ascii=False, sort_keys=True
        ),
    )


if __name__ == "__main__":
    os.umask(0o022)
    todo = {"make": make, "record": record}[sys.argv[1]]
    todo(*(Path(argument).absolute() for argument in sys.argv[2:]))
