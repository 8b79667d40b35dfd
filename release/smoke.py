"""Try an installation of Evolvable as a user's first minutes: `PYTHON smoke.py [--compiled |
--pure]`.

It needs the standard library alone, and runs in the environment that is tried. Its home is a
temporary folder.
"""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 120

SKILL = "---\nname: pdf\ndescription: Merge and split PDF files.\n---\n\nUse the script.\n"


def main(arguments: list[str]) -> int:
    """Run all tries; return 0, or raise what went wrong."""
    kind = arguments[0] if arguments else ""
    compiled = importlib.util.find_spec("evolvable_store.search._scoring") is not None
    if kind and compiled != (kind == "--compiled"):
        raise SystemExit(
            f"{kind} was wanted, but the compiled module is {'there' if compiled else 'missing'}."
        )
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment(Path(folder))
        program = _program()
        version = _run([program, "--version"], environment)
        _run([program, "quickstart"], environment)
        skills = Path(folder) / "skills/pdf"
        skills.mkdir(parents=True)
        (skills / "SKILL.md").write_text(SKILL, encoding="utf-8")
        _run([program, "init", str(skills.parent)], environment)
        found = _ask_server(program, environment)
    if "pdf" not in found:
        raise SystemExit(f"find_skill did not name the skill: {found}")
    module = "compiled" if compiled else "pure"
    print(
        f"{version.strip()} on Python {sys.version.split()[0]}, {module}: a search over MCP "
        "found the skill"
    )
    return 0


def _program() -> str:
    name = "evolvable.exe" if os.name == "nt" else "evolvable"
    return str(Path(sysconfig.get_path("scripts")) / name)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with a home of its own and no compiler."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EVOLVABLE_", "PYTHON"))
    }
    home = str(folder)
    return kept | {
        "HOME": home,
        "USERPROFILE": home,
        "EVOLVABLE_HOME": str(folder / "library"),
        "CC": "no-compiler",
    }


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def _ask_server(program: str, environment: dict[str, str]) -> str:
    """Start the server as a client does, and return what it finds for a task."""
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "smoke", "version": "1"},
    }
    task = {"name": "find_skill", "arguments": {"task": "merge two PDF files into one"}}
    with subprocess.Popen(
        [program, "serve"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as server:
        _ask(server, 1, "initialize", client)
        _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = _ask(server, 2, "tools/call", task)
        assert server.stdin is not None
        server.stdin.close()
        server.wait(timeout=SECONDS)
    return str(answer["content"][0]["text"])


def _ask(server: "subprocess.Popen[str]", number: int, method: str, params: dict[str, Any]) -> Any:
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert server.stdout is not None
    for line in server.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            return answer["result"]
    raise SystemExit("The server ended before it answered.")


def _send(server: "subprocess.Popen[str]", frame: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(frame) + "\n")
    server.stdin.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
