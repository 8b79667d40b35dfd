"""Tools that run: only what a person approved, only in the sandbox, and never more than
its limits.
"""

import asyncio
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confined import needs_sandbox

from evolvable_evolve.evolution.executors import tool_runs as runs
from evolvable_evolve.evolution.executors.tool_runs import ToolFailed
from evolvable_evolve.rspl import RunHost, build_resource, run_resource
from evolvable_evolve.sandbox.probe import SandboxChoice
from evolvable_store.errors import InvalidArgument, NoSuchResource, Refused
from evolvable_store.resource import Ref
from evolvable_tools.approvals_lock import ApprovalsLock, make_key
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.tool_commands import (
    APPROVALS_FILE,
    approve_tool,
    approved_digests,
    approved_version,
    run_spec,
    tool_version,
    withdraw_tool,
)

ADD = Ref.parse("tool:add")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
HOST = RunHost(dict(os.environ))
PLUS = "import json, sys\nprint(json.load(sys.stdin)['a'] + {})\n"


def tool_text(run: object, name: str = "add") -> str:
    return f"---\nname: {name}\ndescription: Adds.\nmetadata:\n  run: {json.dumps(run)}\n---\n"


def save(library, caller, script, ref=ADD, **run):
    """Writes a version of a tool whose command is a script; returns what the update did."""
    said = {"argv": ["{python}", "-I", "{tool}/do.py"], "schema": SCHEMA, "timeout_s": 20} | run
    there = library.store.head_or_none(ref)
    files = {"TOOL.md": tool_text(said, ref.name), "do.py": script}
    more = {"create": True} if there is None else {"expected_version": there.version}
    return edit.update_resource(library, caller, ref, "a tool", files=files, **more)


def approve(library, person, number, ref=ADD):
    found = tool_version(library, library.store.head_or_none(ref), number)
    approve_tool(library, person, found, via="test")
    return found


def ran(library, caller, ref=ADD, host=HOST, **given):
    return asyncio.run(run_resource(library, caller, ref, given, host))


# What may run


def test_nothing_runs_before_a_person_approved_it_and_an_agent_cannot_approve(
    library, agent, person, monkeypatch
):
    monkeypatch.setattr(runs, "run_confined", None)  # whatever came so far would fail
    save(library, person, PLUS.format(1))

    with pytest.raises(Refused, match="tool:add@1 .*not been approved"):
        ran(library, agent, a=1)
    with pytest.raises(Refused, match="a person's decision"):
        approve(library, agent, 1)
    assert not (library.store.home / APPROVALS_FILE).exists()


@pytest.mark.process
@needs_sandbox
def test_the_approved_version_goes_on_while_another_waits_and_a_withdrawn_one_ends(
    library, agent, person
):
    save(library, person, PLUS.format(1))
    approve(library, person, 1)
    save(library, agent, PLUS.format(100))

    first = ran(library, agent, a=1)
    assert (first.text, first.value, first.version) == ("2\n", 2, 1)
    assert library.evidence.use(first.use_id).version == 1
    with pytest.raises(Refused, match="tool:add@2 .*not been approved"):
        ran(library, agent, ADD.at(2), a=1)
    approve(library, person, 2)
    assert (ran(library, agent, a=1).text, ran(library, agent, ADD.at(1), a=1).text) == (
        "101\n",
        "2\n",
    )
    withdraw_tool(library, person, tool_version(library, library.store.head(ADD), 2), via="test")
    assert approved_version(library, library.store.head(ADD)).version == 1


def test_an_approval_is_for_these_files_this_command_and_this_program(library, person, tmp_path):
    program = tmp_path / "prog"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    save(library, person, "x = 1\n", argv=[str(program)])
    first = approve(library, person, 1)
    program.write_text("#!/bin/sh\necho 2\n")

    assert tool_version(library, library.store.head(ADD), 1).digest != first.digest
    assert approved_version(library, library.store.head(ADD)) is None
    save(library, person, "x = 2\n", argv=[str(program)])
    program.write_text("#!/bin/sh\necho 1\n")
    head = library.store.head(ADD)
    assert [tool_version(library, head, n).digest == first.digest for n in (1, 2)] == [True, False]
    edit.restore_resource(library, person, ADD, 1, "back")
    assert approved_version(library, library.store.head(ADD)).version == 3


def test_with_locked_approvals_only_a_signed_one_counts(library, person):
    save(library, person, PLUS.format(1))
    approve(library, person, 1)
    key, _ = make_key("correct horse battery")
    library.lock = ApprovalsLock(key.key)

    assert approved_digests(library) == frozenset()
    with pytest.raises(Refused, match="signature"):
        approve(library, person, 1)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("rm -rf /", "not a mapping"),
        ({"argv": "echo hi"}, "argv is not a list"),
        ({"argv": []}, "argv is not a list"),
        ({"argv": ["./do.sh"]}, "argv begins neither"),
        ({"argv": ["../../bin/sh"]}, "argv begins neither"),
        ({"argv": ["{home}/x"]}, "argv begins neither"),
        ({"argv": ["true"], "env": {"A": "b"}}, "unknown keys 'env'"),
        ({"argv": ["true"], "timeout_s": 1e9}, "timeout_s"),
        ({"argv": ["true"], "timeout_s": True}, "timeout_s"),
        ({"argv": ["true"], "schema": {"type": "string"}}, "of type object"),
        (
            {"argv": ["true"], "schema": {"type": "object", "$ref": "http://127.0.0.1:9/x"}},
            "has '$ref'",
        ),
        (
            {
                "argv": ["true"],
                "schema": {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}},
            },
            "has 'pattern'",
        ),
        (
            {"argv": ["true"], "schema": {"type": "object", "patternProperties": {"(a+)+$": {}}}},
            "patternProperties",
        ),
        (
            {"argv": ["true"], "schema": {"type": "object", "allOf": [{"$dynamicRef": "#x"}]}},
            "dynamicRef",
        ),
        (
            {"argv": ["true"], "schema": {"type": "object", "description": "x" * 9_000}},
            "characters",
        ),
    ],
)
def test_a_command_that_cannot_be_bounded_is_refused_with_its_reason(run, words):
    with pytest.raises(InvalidArgument, match=words.replace("$", r"\$")):
        run_spec(ADD, tool_text(run).encode())


# What a run can do


@pytest.mark.process
@needs_sandbox
def test_a_tool_reaches_neither_library_nor_home_nor_network_and_keeps_nothing(
    library, agent, person, tmp_path
):
    (tmp_path / "secret.txt").write_text("secret")
    script = f"""
import json, os, socket, sys
found = {{}}
def tries(name, act):
    try:
        act()
        found[name] = True
    except OSError:
        found[name] = False
here = os.path.dirname(os.path.abspath(__file__))
tries("library", lambda: open({str(library.store.home / "library.db")!r}, "rb").read())
tries("home", lambda: open({str(tmp_path / "secret.txt")!r}).read())
tries("network", lambda: socket.create_connection(("192.0.2.1", 9), 1))
tries("itself", lambda: open(os.path.join(here, "do.py"), "a").write("x"))
tries("beside", lambda: open(os.path.join(here, "more.py"), "w").write("x"))
tries("work", lambda: open("note.txt", "w").write("x"))
found["secrets"] = [name for name in os.environ if "KEY" in name or name.startswith("EVOLVABLE")]
found["left"] = os.listdir(".")
print(json.dumps(found))
"""
    save(library, person, script)
    approve(library, person, 1)
    host = RunHost(
        {**os.environ, "ANTHROPIC_API_KEY": "k", "EVOLVABLE_HOME": str(library.store.home)}
    )

    for _ in range(2):
        seen = ran(library, agent, host=host, a=1).value
        assert seen == {
            **dict.fromkeys(("library", "home", "network", "itself", "beside"), False),
            "work": True,
            "secrets": [],
            "left": ["note.txt"],
        }


@pytest.mark.process
@needs_sandbox
def test_what_takes_too_long_writes_too_much_or_fails_is_told_and_stopped(library, agent, person):
    scripts = {
        "import time\ntime.sleep(60)\n": ("took longer than 0.5 s", 0.5),
        "while True: print('x' * 9999)\n": ("wrote more than 200,000 bytes", 20),
        "x = bytearray(4 << 30)\n": ("MemoryError", 20),
        "import sys\nsys.exit('no such \\x1b[31mcolour')\n": (
            "ended with exit code 1: no such",
            20,
        ),
    }
    for number, (script, (words, seconds)) in enumerate(scripts.items(), 1):
        save(library, person, script, timeout_s=seconds)
        approve(library, person, number)
        with pytest.raises(ToolFailed, match=words) as failure:
            ran(library, agent, a=1)
        assert "\x1b" not in str(failure.value)


@pytest.mark.process
@needs_sandbox
def test_what_was_changed_in_the_built_folder_does_not_run(library, agent, person, tmp_path):
    save(library, person, PLUS.format(1))
    approve(library, person, 1)
    folder = Path(build_resource(library, agent, ADD).path)
    (folder / "do.py").chmod(0o700)
    (folder / "do.py").write_text("print('stolen')\n")
    (folder / "json.py").write_text("print('planted')\n")

    assert ran(library, agent, a=1).text == "2\n"
    assert sorted(path.name for path in folder.iterdir()) == ["TOOL.md", "do.py"]
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    (elsewhere / "do.py").chmod(0o700)
    (elsewhere / "do.py").write_text("print('linked')\n")
    assert ran(library, agent, a=1).text == "2\n"


def test_callers_that_build_one_version_at_once_get_one_folder_that_stays(library, person):
    save(library, person, PLUS.format(1))
    together = threading.Barrier(8)

    def build(_):
        together.wait()
        path = Path(build_resource(library, person, ADD).path)
        return path, path.stat().st_ino

    with ThreadPoolExecutor(8) as pool:
        for _ in range(25):
            (one,) = set(pool.map(build, range(8)))
            assert [path.name for path in one[0].parent.iterdir()] == [one[0].name]
            shutil.rmtree(one[0])


def test_a_tool_of_another_server_and_an_environment_file_are_refused_by_name(
    library, agent, person
):
    text = "---\nname: add\ndescription: Adds.\nmetadata:\n  mcp: {server: sums, tool: add}\n---\n"
    done = edit.update_resource(
        library, person, ADD, "x", files={"TOOL.md": text, ".env": "A=1\n"}, create=True
    )

    assert not any("not texts" in warning for warning in done.warnings)
    with pytest.raises(InvalidArgument, match="a tool of another MCP server"):
        ran(library, agent, a=1)
    with pytest.raises(Refused, match="is an environment file"):
        build_resource(library, agent, ADD)


def test_an_input_that_does_not_fit_runs_nothing(library, agent, person, monkeypatch):
    save(library, person, PLUS.format(1))
    approve(library, person, 1)
    monkeypatch.setattr(runs, "run_confined", None)

    for given, words in (
        ({}, "'a' is a required"),
        ({"a": "x"}, "not of type"),
        ({"a": 1, "b": 2}, "'b' was unexp"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            ran(library, agent, **given)
    with pytest.raises(InvalidArgument, match="has 300,009 bytes"):
        ran(library, agent, a="x" * 300_000)


def test_without_a_sandbox_nothing_runs(library, agent, person):
    save(library, person, PLUS.format(1))
    approve(library, person, 1)

    with pytest.raises(Refused, match="in a sandbox only"):
        ran(library, agent, host=RunHost(dict(os.environ), SandboxChoice(path="/nowhere")), a=1)


@pytest.mark.process
@needs_sandbox
def test_a_tool_that_is_removed_while_it_runs_ends_its_run_and_starts_no_other(
    library, agent, person
):
    save(library, person, "import time\ntime.sleep(0.5)\nprint('done')\n")
    approve(library, person, 1)
    results = list[str]()
    call = threading.Thread(target=lambda: results.append(ran(library, agent, a=1).text))
    call.start()
    while not list((library.store.home / "built-tools").glob("*/do.py")):
        assert call.is_alive()
    edit.remove_resource(library, person, ADD, "not needed")
    call.join()

    assert results == ["done\n"]
    with pytest.raises(NoSuchResource):
        ran(library, agent, a=1)


# Environments


def test_an_environment_scores_train_tasks_only_and_runs_no_command_that_nobody_approved(
    library, agent, person
):
    exact, command = {"type": "exact"}, {"type": "command", "args": {"argv": ["true"]}}
    tasks = [
        {"id": "a", "prompt": "6 * 7", "expected": "42", "scorer": exact, "split": "train"},
        {"id": "b", "prompt": "6 * 8", "expected": "48", "scorer": exact, "split": "test"},
    ]
    text = "---\nname: sums\ndescription: d\n---\n"
    sums = Ref.parse("environment:sums")
    files = {"ENVIRONMENT.md": text, "tasks.jsonl": "\n".join(map(json.dumps, tasks))}
    edit.update_resource(library, person, sums, "new", files=files, create=True)

    scores = [ran(library, agent, sums, task="a", output=output).score for output in ("42", "41")]
    assert scores == [1, 0]
    with pytest.raises(Refused, match="Task b is not in train"):
        ran(library, agent, sums, task="b", output="48")
    with pytest.raises(InvalidArgument, match="has no task 'c'"):
        ran(library, agent, sums, task="c", output="48")
    more = json.dumps({**tasks[0], "id": "c", "scorer": command})
    tasks = {"tasks.jsonl": f"{files['tasks.jsonl']}\n{more}"}
    edit.update_resource(library, agent, sums, "more", files=tasks, expected_version=1)
    with pytest.raises(Refused, match="no person approved it yet"):
        ran(library, agent, sums, task="c", output="48")
    with pytest.raises(Refused, match="refused for environment:sums"):
        build_resource(library, person, sums)
