"""Programs that look like Claude Code and Codex from outside: they print the events that the real
ones do.

What they do stands in the first word of the prompt. They look for a canary where the real ones look
for skills. Their commands `plugin` and `mcp add-json` change their own files.
"""

import stat
import sys
import textwrap
from pathlib import Path

_COMMON = """
import json, os, pathlib, re, sys, time

if sys.argv[1:] == ["--version"]:
    print(VERSION)
    sys.exit()
if sys.argv[1:2] == ["plugin"]:
    with (pathlib.Path.home() / f"{NAME}.log").open("a") as log:
        print(json.dumps(sys.argv[1:]), file=log)
    if sys.argv[2] in ("install", "add"):
        if (pathlib.Path.home() / "no-plugins").exists():
            sys.exit("plugins are switched off")
        place = pathlib.Path.home() / f".{NAME}/plugins/cache/evolvable/evolvable/0.1.0/skills"
        place.mkdir(parents=True)
    sys.exit()
if sys.argv[1:3] == ["mcp", "add-json"]:
    path = pathlib.Path.home() / ".claude.json"
    values = json.loads(path.read_text()) if path.exists() else {}
    values.setdefault("mcpServers", {})[sys.argv[3]] = json.loads(sys.argv[4])
    path.write_text(json.dumps(values, indent=2))
    sys.exit()
prompt = sys.stdin.read()
what = prompt.split()[0]

def say(event):
    print(json.dumps(event), flush=True)

def skill():
    path = CONFIG / "skills" / "canary-word" / "SKILL.md"
    return path if path.exists() else None

def word():
    found = re.search("kestrel-[0-9a-f]{12}", skill().read_text()) if skill() else None
    return found[0] if found else "NONE"

def env():
    lines = [f"{name}={value}" for name, value in sorted(os.environ.items())]
    return "\\n".join([f"cwd={os.getcwd()}", f"argv={sys.argv[1:]}", *lines])

if what == "exits":
    print("it broke: token=ghp_0123456789abcdefghijABCDEFGHIJ012345", file=sys.stderr)
    sys.exit(3)
if what == "notes-its-id":
    pathlib.Path("id").write_text(str(os.getpid()))
if what in ("hangs", "notes-its-id"):
    time.sleep(60)
"""

_CLAUDE = (
    """
NAME = "claude"
VERSION = "9.9.1 (Fake Code)"
CONFIG = pathlib.Path(os.environ.get("CLAUDE_CONFIG_DIR", "/none"))
"""
    + _COMMON.replace("import json, os, pathlib, re, sys, time\n", "")
    + """
def agent(*content, **more):
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100}
    message = {"id": f"m{time.monotonic_ns()}", "content": content, "usage": usage, **more}
    say({"type": "assistant", "message": message})

def done(text, **more):
    usage = {"input_tokens": 20, "output_tokens": 7,
             "cache_creation_input_tokens": 3, "cache_read_input_tokens": 200}
    event = {"type": "result", "subtype": "success", "is_error": False, "result": text}
    event |= {"num_turns": 2, "usage": usage, "total_cost_usd": 0.25, "api_error_status": None}
    say({**event, **more})

say({"type": "system", "subtype": "init", "skills": [], "tools": ["Bash"]})
print("not an event", flush=True)
if what == "works-and-hangs":
    agent({"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}})
    time.sleep(60)
if what == "busy":
    retry = {"retry_delay_ms": 2500, "error_status": 429, "error": "rate_limit"}
    say({"type": "system", "subtype": "api_retry", **retry})
    time.sleep(60)
if what == "throttled":
    agent({"type": "text", "text": "API Error: 429"}, model="<synthetic>")
    done("API Error: Request rejected (429) slow down", is_error=True, api_error_status=429)
elif what == "turns":
    agent({"type": "text", "text": "Still at it."})
    done("", subtype="error_max_turns", is_error=True)
elif what == "environment":
    done(env())
elif what == "writes":
    pathlib.Path("answer.txt").write_text("written")
    (CONFIG / "session.jsonl").write_text("private")
    done("ok")
elif what == "reads":
    agent({"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": str(skill())}})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "password=hunter2butlonger99"}
    say({"type": "user", "message": {"content": [result]}})
    done("read")
else:
    if skill():
        agent({"type": "tool_use", "id": "t1", "name": "Skill", "input": {"skill": "canary-word"}})
    agent({"type": "text", "text": word()})
    done(word())
"""
)

_CODEX = (
    """
NAME = "codex"
VERSION = "codex-cli 9.9.2"
CONFIG = pathlib.Path(os.environ.get("CODEX_HOME", "/none"))
"""
    + _COMMON.replace("import json, os, pathlib, re, sys, time\n", "")
    + """
def item(kind, **values):
    say({"type": "item.completed", "item": {"id": "i", "type": kind, **values}})

say({"type": "thread.started", "thread_id": "t"})
say({"type": "turn.started"})
usage = {"input_tokens": 1000, "cached_input_tokens": 800, "output_tokens": 50}
if what == "busy":
    why = "exceeded retry limit, last status: 429 Too Many Requests"
    say({"type": "error", "message": f"Reconnecting... 1/5 ({why})"})
    time.sleep(60)
elif what == "recovers":
    say({"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"})
    item("agent_message", text="after all")
    say({"type": "turn.completed", "usage": usage})
elif what == "throttled":
    say({"type": "turn.failed", "error": {"message": "unexpected status 529: Overloaded"}})
    sys.exit(1)
elif what == "environment":
    item("agent_message", text=env())
    say({"type": "turn.completed", "usage": usage})
else:
    if skill():
        command = f"/bin/bash -lc 'cat {skill()}'"
        item("command_execution", command=command, aggregated_output="x", exit_code=0)
    item("agent_message", text=word())
    say({"type": "turn.completed", "usage": usage})
"""
)


def fake_claude(folder: Path) -> Path:
    """Return the path of a program that behaves like Claude Code."""
    return _program(folder / "claude", _CLAUDE)


def fake_codex(folder: Path) -> Path:
    """Return the path of a program that behaves like Codex."""
    return _program(folder / "codex", _CODEX)


def _program(path: Path, text: str) -> Path:
    head = f"#!{sys.executable} -S\nimport json, os, pathlib, re, sys, time\n"
    path.write_text(head + textwrap.dedent(text), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
