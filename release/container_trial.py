"""Try the image: with a daemon as it is; without one its last stage, step by step, on a tree of
Debian.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from report import Failed, NotHere, find_tool, run

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_name("container")
DOCKERFILE = FOLDER / "Dockerfile"

ACCOUNT = "10001"

TRIAL = """\
set -eu
test "$(id -u)" = 10001
python -c 'import os, pwd; assert pwd.getpwuid(os.getuid()).pw_dir == os.environ["HOME"]'
if touch /opt/evolvable/written 2>/dev/null; then echo "the file system can be written"; exit 1; fi
if evolvable serve --http 0.0.0.0:8642 2>/dev/null </dev/null; then
  echo "it served without a token"; exit 1
fi
evolvable init >/dev/null </dev/null
# Only a person at a terminal makes a token.
add='import pty; pty.spawn(["evolvable", "team", "token", "add", "trial"])'
python -c "$add" >/dev/null </dev/null
evolvable serve --http 0.0.0.0:8642 2>/tmp/log </dev/null &
server=$!
for _ in $(seq 100); do
  if sh -c "$HEALTH" 2>/dev/null; then healthy=yes; break; fi
  sleep 0.2
done
kill $server 2>/dev/null || true
wait $server || true
test "${healthy:-}" = yes || { cat /tmp/log; exit 1; }
evolvable --version
"""
"""What has to hold inside: no root, nothing to write but the volume, no server without access
rules, a health check.
"""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of the last stage of a Dockerfile: word and rest, with continued
    lines joined.
    """
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    found = [
        (word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in joined)
    ]
    last = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


def health_command(steps: list[tuple[str, str]]) -> str:
    """Return the command of HEALTHCHECK, for a shell."""
    (rest,) = [rest for word, rest in steps if word == "HEALTHCHECK"]
    return shlex.join(json.loads(rest.partition("CMD ")[2]))


def environment(steps: list[tuple[str, str]]) -> dict[str, str]:
    """Return what ENV sets."""
    pairs = [pair for word, rest in steps if word == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


def _need_daemon() -> str:
    docker = find_tool("docker")
    if subprocess.run([docker, "info"], capture_output=True, timeout=60).returncode:
        raise NotHere("no daemon answers `docker info`")
    return docker


def try_image() -> str:
    """Build the image and run the trial in it: read-only, without capabilities, with one volume."""
    docker = _need_daemon()
    tag = f"evolvable-trial:{uuid.uuid4().hex[:12]}"
    run([docker, "build", "--quiet", "--file", DOCKERFILE, "--tag", tag, ROOT], seconds=1800)
    health = health_command(instructions(DOCKERFILE.read_text(encoding="utf-8")))
    try:
        options = [
            "--rm",
            "--read-only",
            "--tmpfs",
            "/tmp",
            "--cap-drop",
            "ALL",
            "--network",
            "none",
        ]
        options += [
            "--security-opt",
            "no-new-privileges",
            "--env",
            f"HEALTH={health}",
            "--entrypoint",
            "sh",
        ]
        return run([docker, "run", *options, tag, "-c", TRIAL], seconds=300).strip()
    finally:
        subprocess.run([docker, "rmi", "--force", tag], capture_output=True, timeout=120)


def try_steps(wheel: Path, tree: Path) -> str:
    """Do the steps of the last stage on a tree of Debian, and run the trial in it as the image's
    account.
    """
    tools = {name: find_tool(name) for name in ("bwrap", "setpriv")}
    if os.geteuid() != 0:
        raise NotHere("only root makes a tree and starts as another account")
    _make_tree(tree)
    steps = instructions(DOCKERFILE.read_text(encoding="utf-8"))
    install = tree / "install/wheels"
    install.mkdir(parents=True)
    shutil.copy2(wheel, install)
    locks = [ROOT / "requirements.lock", FOLDER / "postgres.txt"]
    for lock in locks:
        shutil.copy2(lock, tree / "install")
    _download(locks, tree / "wheelhouse")
    inside = [tools["bwrap"], "--bind", tree, "/", "--proc", "/proc", "--dev", "/dev", "--clearenv"]
    # No user namespace: in one, no file can be given to the image's account.
    inside += ["--unshare-pid", "--unshare-net", "--unshare-ipc"]
    inside += [
        word
        for name in ("CHOWN", "FOWNER", "DAC_OVERRIDE")
        for word in ("--cap-add", f"CAP_{name}")
    ]
    for word, rest in steps:
        if word == "RUN":
            options = [
                "--setenv",
                "PATH",
                "/usr/local/bin:/usr/bin:/bin",
                "--setenv",
                "PIP_NO_INDEX",
                "1",
            ]
            run([*inside, *options, "--setenv", "PIP_FIND_LINKS", "/wheelhouse", "sh", "-c", rest])
    shutil.rmtree(tree / "wheelhouse")
    return f"{_run_trial(tools, tree, steps)}; Debian's Python in place of the image's"


def _run_trial(tools: dict[str, str], tree: Path, steps: list[tuple[str, str]]) -> str:
    with _reachable(tree):
        account = [tools["setpriv"], f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]
        command = [
            *account,
            tools["bwrap"],
            "--ro-bind",
            tree,
            "/",
            "--bind",
            tree / "data",
            "/data",
            "--tmpfs",
            "/tmp",
        ]
        command += [
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--unshare-all",
            "--chdir",
            "/data",
            "--clearenv",
        ]
        for name, value in {**environment(steps), "HEALTH": health_command(steps)}.items():
            command += ["--setenv", name, value]
        return run([*command, "sh", "-c", TRIAL], seconds=180).strip()


@contextlib.contextmanager
def _reachable(tree: Path) -> Iterator[None]:
    """Let other accounts pass the folders above the tree for the body; a temporary folder is its
    owner's alone.
    """
    closed = [place for place in (tree, *tree.parents) if not place.stat().st_mode & 0o001]
    modes = {place: place.stat().st_mode for place in closed}
    for place in closed:
        place.chmod(modes[place] | 0o011)
    try:
        yield
    finally:
        for place, mode in modes.items():
            place.chmod(mode)


def _make_tree(tree: Path) -> None:
    packages = "python3,python3-venv,ca-certificates"
    run(
        [find_tool("mmdebstrap"), "--variant=minbase", f"--include={packages}", "bookworm", tree],
        seconds=900,
    )
    (tree / "usr/local/bin/python").symlink_to("/usr/bin/python3")


def _download(locks: list[Path], folder: Path) -> None:
    """Bring the locked packages for the tree's Python, whose hashes pip compares."""
    python = [
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--platform",
        "manylinux_2_28_x86_64",
    ]
    python += [
        "--platform",
        "manylinux_2_17_x86_64",
        "--platform",
        "manylinux_2_5_x86_64",
        "--platform",
        "linux_x86_64",
    ]
    files = [word for lock in locks for word in ("-r", os.fspath(lock))]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    run([*pip, "--dest", folder, *python, *files])


def check_compose() -> str:
    """Have compose read its file; with a daemon, start all of it, wait for the health checks, and
    take it down.
    """
    docker = find_tool("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True, timeout=60).returncode:
        raise NotHere("docker has no compose here")
    compose = [docker, "compose", "--file", FOLDER / "compose.yaml"]
    run([*compose, "config", "--quiet"])
    try:
        _need_daemon()
    except NotHere as lack:
        return f"the file is valid; not started: {lack}"
    try:
        run(
            [*compose, "up", "--build", "--detach", "--wait", "--wait-timeout", "300"], seconds=1800
        )
        return "server, PostgreSQL and provider are healthy"
    except Failed as failure:
        raise Failed(f"{failure}\n{run([*compose, 'logs', '--tail', '40'])}") from None
    finally:
        run([*compose, "down", "--volumes"], seconds=300)
