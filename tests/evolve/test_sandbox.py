"""Trials in a sandbox: what a candidate tries to reach, change, use up or leave behind, by every
way it can run.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from confined import FOUND, RUNNER, Confined, apart, needs_sandbox, said, skill
from processes import poll
from trial_parts import task

import evolvable_evolve
import evolvable_store
from evolvable_evolve.evolution.executors.base import CommandHost, run_confined
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.scorers.external_scorers import command_score
from evolvable_evolve.evolution.task import Rollout, TrialOutcome
from evolvable_evolve.sandbox.exchange import SandboxOutputError, bring_back
from evolvable_evolve.sandbox.mechanisms import (
    NAMESPACES,
    SYSTEM_FOLDERS,
    Bubblewrap,
    Confinement,
    Container,
    ResourceLimits,
    _own_runtimes,
    environment_inside,
    shortcomings,
)
from evolvable_evolve.sandbox.probe import SandboxChoice, probe, sandbox_of
from evolvable_tools.llm.command_model import ChildProcesses

pytestmark = needs_sandbox


@pytest.fixture
def confined(tmp_path):
    return Confined(tmp_path)


# What a candidate tries to reach


@pytest.mark.process
def test_a_script_of_a_candidate_finds_neither_library_nor_tasks_nor_answers_nor_keys(
    confined, tmp_path
):
    secrets = [str(tmp_path / "library" / "library.db"), str(confined.own / "answers.json")]
    runtimes = ["/proc", "/dev", *SYSTEM_FOLDERS, *map(str, _own_runtimes())]
    script = f"""
import json, os
wanted, found = b" ".join([b"the", b"secret", b"answer"]), []
for top, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(top, name) not in {runtimes!r}]
    for name in files:
        try:
            with open(os.path.join(top, name), "rb") as file:
                if wanted in file.read(2_000_000):
                    found.append(os.path.join(top, name))
        except OSError:
            pass
seen = [os.path.exists(path) for path in {secrets!r}]
beside = os.listdir({str(confined.own)!r})
print(json.dumps([found, seen, beside, os.listdir(os.environ["HOME"]), sorted(os.environ)]))
"""
    found, seen, beside, home, environment = said(confined(script))

    assert (found, seen, beside, home) == ([], [False, False], ["run.py"], [])
    assert not {"SECRET_TOKEN", "EVOLVABLE_HOME"} & set(environment)


@pytest.mark.process
def test_a_script_of_a_candidate_reads_no_key_in_the_environment_of_any_process(
    confined, monkeypatch
):
    monkeypatch.setenv("SOME_API_KEY", "the-key-of-the-person")
    script = """
import glob, json
found, read = [], 0
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/task/*/environ"):
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        continue
    read += bool(data)
    found += [path] * (b"the-key-of-the-person" in data or b"SECRET_TOKEN" in data)
print(json.dumps([read > 0, found]))
"""
    assert said(confined(script)) == [True, []]


class ShowsOurEnvironment(Bubblewrap):
    """Starts bubblewrap with all of our environment, as a mechanism may that forgets
    about /proc.
    """

    def outside(self, environment):
        return dict(environment)


@pytest.mark.process
def test_a_mechanism_whose_own_process_shows_our_environment_counts_as_none():
    found = probe(ShowsOurEnvironment(apart().binary))

    assert not found.works and "the environment outside" in found.why
    assert probe(apart()).works


def test_the_program_of_a_container_is_given_no_key():
    ours = {
        "PATH": "/usr/bin",
        "DOCKER_HOST": "unix:///run/docker.sock",
        "ANTHROPIC_API_KEY": "sk-ant-x",
    }

    given = Container(("docker", "run", "{mounts}", "image")).outside(ours)

    assert given == {"PATH": "/usr/bin", "DOCKER_HOST": "unix:///run/docker.sock"}


@pytest.mark.process
def test_a_script_reaches_no_network_and_sees_no_process_outside(confined):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        script = f"""
import json, os, socket
def tried(act):
    try:
        act()
        return "done"
    except OSError as error:
        return "refused"
port = {listener.getsockname()[1]}
datagrams = socket.AF_INET, socket.SOCK_DGRAM
pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
print(json.dumps({{"tcp": tried(lambda: socket.create_connection(("127.0.0.1", port), 2)),
    "udp": tried(lambda: socket.socket(*datagrams).sendto(b"x", ("192.0.2.1", 9))),
    "abstract": [line for line in open("/proc/net/unix") if "@" in line],
    "processes": [open(f"/proc/{{pid}}/cmdline").read() for pid in pids]}}))
"""
        told = said(confined(script))

    assert (told["tcp"], told["udp"], told["abstract"]) == ("refused", "refused", [])
    assert 0 < len(told["processes"]) <= 6


@pytest.mark.process
def test_a_candidate_can_neither_overwrite_nor_trace_nor_preload_the_runner(confined):
    before = (confined.own / "run.py").read_bytes()
    script = f"""
import ctypes, json, os
def tried(act):
    try:
        act()
        return "done"
    except OSError:
        return "refused"
parent, libc = os.getppid(), ctypes.CDLL(None, use_errno=True)
print(json.dumps({{
    "write": tried(lambda: open({str(confined.own / "run.py")!r}, "w").write("print(1)")),
    "rename": tried(lambda: os.rename(__file__, {str(confined.own / "run.py")!r})),
    "beside": tried(lambda: open({str(confined.own / "json.py")!r}, "w")),
    "memory": tried(lambda: os.open(f"/proc/{{parent}}/mem", os.O_RDWR)),
    "python": tried(lambda: open(os.path.join({sys.prefix!r}, "sitecustomize.py"), "w")),
    "itself": tried(lambda: open(__file__, "a")),
    "ptrace": libc.ptrace(16, parent, 0, 0),
    "errno": ctypes.get_errno()}}))
"""
    told = said(confined(script))

    assert {
        name: told.pop(name) for name in ("write", "rename", "beside", "memory", "python", "itself")
    } == dict.fromkeys(("write", "rename", "beside", "memory", "python", "itself"), "refused")
    assert told == {"ptrace": -1, "errno": 1}
    assert (confined.own / "run.py").read_bytes() == before


@pytest.mark.process
def test_only_declared_helpers_stand_beside_the_runner(tmp_path):
    runner = RUNNER.replace(
        "import json", "import sys; sys.path.insert(0, sys.path[0] or '.')\nimport json", 1
    )
    confined = Confined(tmp_path, runner, helpers=("answers.json",))

    assert said(
        confined(f"import json, os; print(json.dumps(sorted(os.listdir({str(confined.own)!r}))))")
    ) == ["answers.json", "run.py"]


# What a candidate uses up, and leaves behind


@pytest.mark.process
def test_a_candidate_that_fills_the_disk_fails_its_task_and_leaves_the_disk_as_it_was(tmp_path):
    confined = Confined(tmp_path)
    script = """
for number in range(10_000):
    with open(f"full{number}", "wb") as file:
        file.write(b"x" * 2**20)
"""
    free = shutil.disk_usage(tmp_path).free
    runner = (
        "import json, subprocess, sys\ngiven = json.load(sys.stdin)\n"
        'script = given["program"]["resources"][0]\n'
    )
    runner += (
        'subprocess.run([sys.executable, "-I", "-S", script["folder"] + "/scripts/do.py"], '
        "check=True)\n"
    )
    (confined.own / "run.py").write_text(runner)

    done = confined(script)

    assert done.outcome is TrialOutcome.AGENT_TIMEOUT
    assert "it filled the 536,870,912 bytes" in done.detail
    assert free - shutil.disk_usage(tmp_path).free < 256 * 2**20


@pytest.mark.process
def test_a_file_beyond_the_limit_and_too_much_memory_are_refused(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    script = """
import json
def tried(act):
    try:
        act()
        return "done"
    except (OSError, MemoryError):
        return "refused"
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
memory = tried(lambda: bytearray(2**28))
file = tried(lambda: open("big", "wb").write(b"x" * 2**21))
print(json.dumps([memory, file]))
"""
    limits = ResourceLimits(size=2**24, file=2**20, memory=2**27)
    what = Confinement(
        (sys.executable, "-I", "-S", "-c", script),
        work,
        environment_inside(os.environ),
        60,
        limits=limits,
    )

    ran = asyncio.run(run_confined(what, apart()))

    assert json.loads(ran.out) == ["refused", "refused"]


@pytest.mark.process
def test_a_process_that_a_candidate_leaves_behind_ends_with_its_trial(confined, tmp_path):
    mark = f"left-by-{os.getpid()}-{tmp_path.name}"
    script = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        endless = [{sys.executable!r}, "-I", "-S", "-c", "while True: pass", {mark!r}]
        os.execv(endless[0], endless)
    os._exit(0)
print("started")
"""
    assert confined(script).rollout.output == "started"

    # The kernel ends the processes of a namespace a moment after bubblewrap has ended.
    poll(
        lambda: not any(mark in _words(one) for one in psutil.process_iter()),
        "the process left behind to end",
    )


@pytest.mark.process
def test_a_trial_that_is_stopped_while_its_sandbox_starts_leaves_no_process(tmp_path):
    # bubblewrap binds its child's life to its own a moment after the fork; at every delay here
    # about one of fifty kills falls before that moment.
    words = [
        *NAMESPACES,
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    command = [shutil.which("bwrap"), *words, "--", "/bin/sh", "-c", f": {tmp_path}; sleep 600"]

    for number in range(200):
        ChildProcesses().run(command, b"", 0.00006 * number)

    left = [
        process for process in psutil.process_iter() if str(tmp_path) in " ".join(_words(process))
    ]
    try:
        poll(lambda: not any(process.is_running() for process in left), "the last commands to end")
    finally:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _words(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.mark.process
def test_a_candidate_that_kills_its_runner_has_failed_and_is_not_missing(confined):
    done = confined("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")

    assert done.outcome is TrialOutcome.AGENT_TIMEOUT
    assert "killed inside the sandbox" in done.detail and "signal 9" in done.detail


@pytest.mark.process
def test_what_a_trial_leaves_in_its_workspace_comes_back_and_nothing_else(tmp_path):
    work, outside = tmp_path / "trial" / "work", tmp_path / "outside"
    work.mkdir(parents=True)
    (work / "given.txt").write_text("given")
    outside.mkdir()
    script = f"""
import os
os.makedirs("a/b"); open("a/b/c", "w").write(open("given.txt").read()); os.chmod("a/b/c", 0o751)
os.symlink({str(outside)!r}, "link"); os.unlink("given.txt"); os.mkfifo("pipe")
open("../beside", "w").close()
"""
    command = (sys.executable, "-I", "-S", "-c", script)
    what = Confinement(command, work, environment_inside(os.environ), 60)

    ran = asyncio.run(run_confined(what, apart()))

    assert ran.code != 0 and b"beside" in ran.err, "the folder around the workspace is read-only"
    assert sorted(str(path.relative_to(work)) for path in work.rglob("*")) == [
        "a",
        "a/b",
        "a/b/c",
        "link",
    ]
    assert (work / "a/b/c").read_text() == "given" and (
        work / "a/b/c"
    ).stat().st_mode & 0o777 == 0o751
    assert os.readlink(work / "link") == str(outside) and list(outside.iterdir()) == []


def line(start, *paths):
    return " ".join([start, *(path.encode().hex() for path in paths)]).encode() + b"\n"


END = b"e 0 0\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"{}\n",
        b"e 0 0 00\n",
        line("f 420 1", "../x") + b"x" + END,
        line("f 420 1", "/x-of-a-forged-workspace") + b"x" + END,
        line("f 420 1", "a\0b") + b"x" + END,
        line("l 0 0", "a", "/tmp") + line("f 420 1", "a/x-of-a-forged-workspace") + b"x" + END,
        line("f 420 9", "x") + b"x",
        line("f 420 -1", "x") + END,
        line("f 420 99999999", "x"),
        line("q 0 0", "x") + END,
        b"f 420 1 zz\n",
        b"\xff" * 100_000,
    ],
)
def test_a_forged_workspace_is_refused_and_writes_nothing_outside(tmp_path, lines):
    work, back = tmp_path / "work", tmp_path / "back"
    work.mkdir()
    back.write_bytes(lines)

    with pytest.raises(SandboxOutputError):
        bring_back(back, work, 1_000)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "work"]


# Scorers


@pytest.mark.process
def test_a_command_scorer_sees_output_and_expected_but_neither_library_nor_network(tmp_path):
    secret = tmp_path / "library.db"
    secret.write_text("secret")
    script = f"""
import json, os, socket, sys
given = json.load(sys.stdin)
reached = []
for act in (lambda: open({str(secret)!r}), lambda: socket.create_connection(("127.0.0.1", 9), 1)):
    try:
        act(); reached.append(True)
    except ConnectionRefusedError:
        reached.append("refused by nobody")
    except OSError:
        reached.append(False)
files = given["workspace"] + "/left.txt", sys.argv[1] + "/checks.py"
here = [os.path.exists(file) for file in files]
home = "EVOLVABLE_HOME" in os.environ
told = json.dumps([given["output"], given["expected"], reached[0], here, home])
print(json.dumps({{"score": 1, "evidence_private": told}}))
"""
    work = tmp_path / "work"
    work.mkdir()
    (work / "left.txt").write_text("left")
    score = asyncio.run(
        command_score(
            ["{python}", "-I", "-S", "-c", script, "{taskset}"],
            task("a", expected="right"),
            Rollout("answer"),
            work,
            files={"checks.py": b"x"},
            host=CommandHost({**os.environ, "EVOLVABLE_HOME": "x"}, apart()),
        )
    )

    assert json.loads(score.evidence) == ["answer", "right", False, [True, True], False]


# Which mechanism


@pytest.mark.process
def test_the_sandbox_is_chosen_by_a_run_and_not_by_a_program_of_its_name(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)

    found = sandbox_of(SandboxChoice(path=str(tmp_path)), fresh=True)

    assert found.sandbox is None and "bubblewrap: " in found.why


def test_without_a_mechanism_there_is_none_and_why_is_said(tmp_path):
    found = sandbox_of(SandboxChoice(path=str(tmp_path)), fresh=True)

    assert (found.sandbox, found.name) == (None, "none")
    assert "bwrap is not installed" in found.why


def test_landlock_alone_counts_as_none():
    assert shortcomings(7) and set(shortcomings(7)) < set(shortcomings(3))


@pytest.mark.process
def test_what_a_probe_found_is_remembered_for_other_processes_and_only_when_it_works(tmp_path):
    cache = tmp_path / "evolve" / "sandbox.json"
    sandbox_of(SandboxChoice(cache=cache), fresh=True)
    kept = json.loads(cache.read_bytes())
    cache.unlink()
    sandbox_of(SandboxChoice(cache=cache, path=str(tmp_path)), fresh=True)

    assert kept["probe"]["why"] == "" and not cache.exists()


@pytest.mark.process
def test_a_container_that_keeps_nothing_in_counts_as_none(tmp_path):
    fake = tmp_path / "engine"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != "python3" ]; do shift; done; exec "$@"\n')
    fake.chmod(0o755)

    found = sandbox_of(
        SandboxChoice(container=(str(fake), "{mounts}"), path=str(tmp_path)), fresh=True
    )

    assert found.sandbox is None and "container (engine): " in found.why
    assert (
        "has no {mounts}"
        in sandbox_of(SandboxChoice(container=("docker", "run"), path=""), fresh=True).why
    )


def test_a_container_is_shown_what_the_trial_needs_and_nothing_else(tmp_path):
    work = tmp_path / "work"
    what = Confinement(
        ("python3", "run.py"), work, {"PATH": "/x", "HOME": "/tmp/home"}, 5, readable=(tmp_path,)
    )

    argv = Container(("engine", "run", "{mounts}", "image")).argv(what, tmp_path / "back")

    shown = [word for word in argv if word.startswith(("--volume", "--mount", "--env"))]
    assert argv[:2] == ["engine", "run"]
    assert argv[argv.index("image") + 1] == "python3"
    assert argv[-2:] == ["python3", "run.py"]
    assert f"--volume={tmp_path}:{tmp_path}:ro" in shown and "--env=HOME=/tmp/home" in shown
    assert all(
        word.endswith(":ro") or "back" in word or "tmpfs" in word or "--env" in word
        for word in shown
    )


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root can become another user")
def test_the_sandbox_works_as_another_user_too():
    setpriv, python = shutil.which("setpriv"), Path("/usr/bin/python3")
    if setpriv is None or not python.exists():
        pytest.skip("setpriv and a Python that every user may run are needed")
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        for package, names in (
            (evolvable_store, ("__init__.py", "errors.py", "faces.py")),
            (evolvable_evolve, ("__init__.py",)),
        ):
            target = place / package.__name__
            target.mkdir()
            for name in names:
                shutil.copy(Path(package.__path__[0]) / name, target)
        own = Path(evolvable_evolve.__path__[0]) / "sandbox"
        shutil.copytree(
            own,
            place / "evolvable_evolve" / "sandbox",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        script = (
            "from evolvable_evolve.sandbox.probe import sandbox_of; found = sandbox_of(); "
            "print(found.name, found.why)"
        )
        version = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True
        )
        if version.stdout.strip() != b"True":
            pytest.skip(f"{python} is too old")
        ran = subprocess.run(
            [
                setpriv,
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                python,
                "-S",
                "-B",
                "-c",
                script,
            ],
            env={"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONPATH": made},
            capture_output=True,
            text=True,
            check=False,
        )

    assert ran.stdout.startswith("bubblewrap "), ran.stdout + ran.stderr


def test_a_sandbox_makes_another_executor_of_the_same_command():
    assert isinstance(FOUND.sandbox, Bubblewrap)
    one, other = (
        CommandExecutor(["python3"], host=CommandHost(sandbox=sandbox))
        for sandbox in (None, FOUND.sandbox)
    )

    assert one.fingerprint != other.fingerprint and skill("x").parts


@pytest.mark.process
def test_a_program_behind_a_shim_is_found_wherever_its_version_manager_lies(tmp_path):
    manager, work = tmp_path / "manager", tmp_path / "work"
    for name, script in {
        "libexec/tool": "echo found",
        "shims/tool": f'exec "{manager}/libexec/tool"',
    }.items():
        (manager / name).parent.mkdir(parents=True)
        (manager / name).write_text(f"#!/bin/sh\n{script}\n")
        (manager / name).chmod(0o755)
    work.mkdir()
    environment = environment_inside({"PATH": f"{manager / 'shims'}:{os.environ['PATH']}"})

    ran = asyncio.run(run_confined(Confinement(("tool",), work, environment, 30.0), FOUND.sandbox))

    assert (ran.code, ran.out) == (0, b"found\n"), ran.err
