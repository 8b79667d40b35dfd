"""The command line around the sandbox: what is asked before commands run, before a candidate runs,
and doctor.
"""

import json
import os
import sys

import pytest
from command_line import CommandLine

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name == "nt", reason="terminals")]


@pytest.fixture
def evolvable(tmp_path):
    return CommandLine(tmp_path)


def scored(evolvable, mark):
    script = f"import json; open({str(mark)!r}, 'w'); print(json.dumps({{'score': 1}}))"
    scorer = {
        "type": "command",
        "args": {"argv": [sys.executable, "-c", script], "good": ["a"], "bad": ["b"]},
    }
    tasks = [
        {"id": f"t{n}", "prompt": f"p{n}", "split": split, "scorer": scorer}
        for n, split in enumerate(["train", "val", "test"])
    ]
    path = evolvable.project / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    return path


def test_commands_of_a_task_set_run_only_after_a_person_at_a_terminal_said_yes(evolvable, tmp_path):
    mark = tmp_path / "ran"
    path = scored(evolvable, mark)

    evolvable.person = False
    said = evolvable("taskset", "check", path, code=None)
    assert said.code != 0 and "no person approved them yet" in said.err and not mark.exists()
    assert "taskset check" not in said.err, "an agent is not told what would approve it"

    evolvable.person = True
    no = evolvable.on_terminal("taskset", "check", path, typed="n\n")
    assert "may they run?" in no and "file tasks.jsonl" in no and not mark.exists()
    yes = evolvable.on_terminal("taskset", "check", path, typed="y\n")
    assert "may they run?" in yes and "bad-is-1" not in yes

    evolvable.person = False
    again = evolvable("taskset", "check", path, code=None)
    assert "no person approved them" not in again.err and "refuse: The scorer" in again.out
    path.write_text(path.read_text().replace("p0", "p0 changed"))
    assert "no person approved them yet" in evolvable("taskset", "check", path, code=None).err


def test_a_task_set_names_a_registered_scorer_and_cannot_say_what_it_runs(evolvable, tmp_path):
    mark = tmp_path / "ran"
    path = scored(evolvable, mark)
    own = tmp_path / "own.py"
    own.write_text(
        "import json, sys\nprint(json.dumps({'score': float(json.load(sys.stdin)['output'] "
        "== 'a')}))\n"
    )
    named = {"type": "command", "args": {"name": "own", "good": ["a"], "bad": ["b"]}}
    tasks = [json.loads(line) | {"scorer": named} for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(json.dumps, tasks)))

    assert "evolvable role scorer add NAME" in evolvable("taskset", "check", path, code=1).err
    evolvable.person = False
    said = evolvable("taskset", "check", path, code=1).err
    assert "Task t0 names the scorer 'own'" in said and "scorer add" not in said

    evolvable.person = True
    evolvable("scorer", "add", "own", "--", sys.executable, "-I", "-S", own)
    assert [one["name"] for one in evolvable("scorer", "list", "--json").json["commands"]] == [
        "own"
    ]
    evolvable.person = False
    found = evolvable("taskset", "check", path, "--json").json
    assert found["passes"] and found["scorers"] == {"command": 3}

    for wrong in ({"name": "own", "argv": ["touch", str(mark)]}, {}, {"name": f"touch {mark}"}):
        lines = [
            json.dumps(task | {"scorer": {"type": "command", "args": wrong}}) for task in tasks
        ]
        path.write_text("\n".join(lines))
        assert evolvable("taskset", "check", path, code=None).code != 0 and not mark.exists()


def test_a_registered_scorer_runs_no_file_of_a_task_set(evolvable, tmp_path):
    mark = tmp_path / "ran"
    path = scored(evolvable, mark)
    (path.parent / "check.py").write_text(f"open({str(mark)!r}, 'w')")
    named = {"type": "command", "args": {"name": "own", "good": ["a"], "bad": ["b"]}}
    tasks = [json.loads(line) | {"scorer": named} for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(json.dumps, tasks)))
    evolvable("scorer", "add", "own", "--", sys.executable, "{taskset}/check.py")

    said = evolvable("taskset", "check", path.parent, code=1).err

    assert "a registered scorer gets none" in said and not mark.exists()


def test_an_imported_task_set_waits_for_the_same_yes(evolvable, tmp_path):
    path = scored(evolvable, tmp_path / "ran")
    folder = tmp_path / "in" / "sums"
    folder.mkdir(parents=True)
    (folder / "ENVIRONMENT.md").write_text("---\nname: sums\ndescription: Sums.\n---\n\nSums.\n")
    (folder / "tasks.jsonl").write_text(path.read_text())
    evolvable("init", "--yes")
    evolvable("import", folder.parent, "--kind", "environment", "--accept", code=None)

    evolvable.person = False
    said = evolvable("taskset", "check", "environment:sums", code=None)

    assert "no person approved them yet" in said.err and not (tmp_path / "ran").exists()


def test_doctor_says_which_sandbox_is_used_and_why_not_a_better_one(evolvable, tmp_path):
    evolvable("init", "--yes")
    there = evolvable("doctor", "--json", code=None).json["sandbox"]
    without = evolvable("doctor", "--json", code=None, PATH=str(tmp_path)).json["sandbox"]

    assert there.startswith(("bubblewrap", "none: "))
    assert without.startswith("none: ") and "waits for a person" in without
    assert "bwrap is not installed" in without or "it needs Linux" in without
