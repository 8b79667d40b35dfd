"""Connecting clients: one entry goes into a file, everything else in there stays, and what is
broken is not touched.
"""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, Ran
from environments import environment_with_program, tag_as_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from evolvable_server.clients import config_files, json_edit
from evolvable_server.clients.client import usual_entry
from evolvable_server.clients.registration import configuration_entry
from evolvable_server.clients.registry import CLIENTS
from evolvable_server.config import read_machine
from evolvable_store import load_yaml

JSON_CLIENTS = [name for name in CLIENTS if name != "codex"]

OTHERS_JSON = """\
{
    // my servers
    "zeta": [1, 2],
    "TABLE": {
        "github": {"command": "npx", "args": ["-y", "gh"], "env": {"TOKEN": "s3cr3t"}}, // keep this
        /* the next one
           is for work */
        "pößtgres": {
            "command": "/opt/pg"
        }
        // the end of mine
    },
    "alpha": 1.50
}
"""

OTHERS_TOML = """\
# my Codex
model = "gpt-5.5"  # the big one

[mcp_servers.github]   # work
command = 'npx'
args = [
    "-y",  # yes
    "gh",
]
[mcp_servers.github.env]
TOKEN = "s3cr3t"

# --- the screen
[tui]
theme   = "dark"
"""

BROKEN_JSON = '{\n  "TABLE": {\n    "a": {"command": "x"}\n    "b": {}\n  }\n}\n'
BROKEN_TOML = 'model = "x"\n[mcp_servers.a\ncommand = 1\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine on which no client's own command is installed."""
    line = CommandLine(tmp_path)
    monkeypatch.chdir(line.project)
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "COPILOT_HOME",
        "XDG_CONFIG_HOME",
        "APPDATA",
        "LOCALAPPDATA",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return line


def run_in(run: CommandLine, python: Path, *words: str) -> Ran:
    """Run a command with the program of another environment."""
    command = [python, "-P", "-m", "evolvable_server", *words]
    environment = {**run.environment, "PATH": str(run.root / "nothing")}
    done = subprocess.run(
        command, env=environment, cwd=run.project, capture_output=True, text=True, timeout=60
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def file_of(run: CommandLine, client: str, scope: str = "user") -> Path:
    path = CLIENTS[client].file(read_machine(run.project, {}, sys.platform, run.user), scope)
    assert path is not None
    return path


def given_file(run: CommandLine, client: str, text: str) -> Path:
    path = file_of(run, client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.replace("TABLE", CLIENTS[client].table).encode())
    return path


def entry_in(path: Path, client: str) -> Any:
    text = path.read_text(encoding="utf-8")
    values: Any = (
        tomllib.loads(text) if path.suffix == ".toml" else json_edit.parse_jsonc(text).root.value
    )
    return usual_entry(values[CLIENTS[client].table]["evolvable"])


@pytest.mark.parametrize("client", CLIENTS)
def test_an_absent_file_is_made_with_the_absolute_path_of_this_program(
    run: CommandLine, client: str
) -> None:
    said = run("connect", client)

    entry = entry_in(file_of(run, client), client)
    assert Path(entry["command"]).is_file() and Path(entry["command"]).is_absolute()
    assert entry["args"][-1] == "serve" and entry["env"] == {
        **CLIENTS[client].environment,
        "EVOLVABLE_HOME": str(run.home),
    }
    assert "is connected" in said.out and "Check:" in said.out


CACHES = {
    "uvx": ("cache/uv", "cache/uv/archive-v0/jEvkWQNpe5"),
    "uvx with a cache elsewhere": ("elsewhere", "elsewhere/archive-v0/jEvkWQNpe5"),
    "uv run --with": ("cache/uv", "cache/uv/builds-v0/.tmpBmcWYT"),
    "uv --no-cache run": (".tmpNqmKSG", ".tmpNqmKSG/builds-v0/.tmpljTpP9"),
    "pipx run": ("cache/pipx", "cache/pipx/3b5f769d88941f1"),
    "pipx run, before 2024": (None, ".local/pipx/.cache/3b5f769d88941f1"),
}
"""Way to start the program -> the folder that is tagged as a cache, and its virtual environment, as
seen in 2026.
"""

LASTING = {
    "uv tool install": ".local/share/uv/tools/evolvable",
    "pipx install": ".local/share/pipx/venvs/evolvable",
    "poetry": ".cache/pypoetry/virtualenvs/shop-py3.11",
    "a clone": "src/evolvable/.venv",
}
"""Way to install the program -> its virtual environment."""


@pytest.mark.process
@pytest.mark.parametrize("how", CACHES)
def test_a_program_that_is_cleared_away_some_day_is_written_into_no_client(
    run: CommandLine, how: str
) -> None:
    tagged, place = CACHES[how]
    python = environment_with_program(run.root / place, run.root / tagged if tagged else None)
    path = given_file(run, "cursor", "{}\n")

    said = [run_in(run, python, "connect", client) for client in ("cursor", "codex")]

    for ran in said:
        assert ran.code == 1 and f"{python} lies in a cache" in ran.err.replace("\n", " "), ran
        assert "`uv tool install .` or `pipx install .`" in " ".join(ran.err.split())
    assert path.read_text(encoding="utf-8") == "{}\n" and not file_of(run, "codex").exists()
    run("connect", "cursor")
    assert run_in(run, python, "disconnect", "cursor").code == 0


@pytest.mark.process
@pytest.mark.parametrize("how", LASTING)
def test_a_program_that_is_installed_for_good_is_connected(run: CommandLine, how: str) -> None:
    python = environment_with_program(run.root / LASTING[how], None)
    tag_as_cache(run.root / LASTING[how])  # as uv, pipx and virtualenv do

    assert run_in(run, python, "connect", "cursor").code == 0
    assert entry_in(file_of(run, "cursor"), "cursor")["command"] == str(python)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_usual_library_is_not_named(run: CommandLine, client: str) -> None:
    run("--home", run.user / ".evolvable", "connect", client)

    assert "EVOLVABLE_HOME" not in entry_in(file_of(run, client), client).get("env", {})


def test_codex_is_told_to_wait_for_the_server(run: CommandLine) -> None:
    run("connect", "codex")

    entry = entry_in(file_of(run, "codex"), "codex")
    assert (entry["required"], entry["startup_timeout_sec"], entry["tool_timeout_sec"]) == (
        True,
        20,
        120,
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_full_of_others_keeps_every_line_and_comes_back_byte_for_byte(
    run: CommandLine, client: str
) -> None:
    path = given_file(run, client, OTHERS_TOML if client == "codex" else OTHERS_JSON)
    before = path.read_bytes()

    said = run("connect", client, "--json").json

    after = iter(path.read_text(encoding="utf-8").splitlines())
    assert all(
        any(
            line in (there, there.replace("}, //", "} //")) or there.rstrip(",") == line
            for there in after
        )
        for line in before.decode().splitlines()
    )
    assert entry_in(path, client)
    assert Path(said["backup"]).read_bytes() == before
    run("disconnect", client)
    assert path.read_bytes() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_the_second_time_no_byte_changes(run: CommandLine, client: str) -> None:
    path = given_file(run, client, OTHERS_TOML if client == "codex" else OTHERS_JSON)
    run("connect", client)
    before, files = path.read_bytes(), sorted(path.parent.iterdir())

    said = run("connect", client)

    assert "already connected" in said.out
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (before, files)


@pytest.mark.parametrize("command", ["connect", "disconnect"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_broken_file_is_refused_with_its_line_and_not_touched(
    run: CommandLine, client: str, command: str
) -> None:
    path = given_file(run, client, BROKEN_TOML if client == "codex" else BROKEN_JSON)
    before = path.read_bytes()

    said = run(command, client, code=1)

    assert (
        f"{path} is broken at line {'2, column 15' if client == 'codex' else '4, column 5'}"
        in said.err
    )
    assert "left as it is" in said.err
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe{\x00}\x00",
        b"[]",
        b'"x"',
        b'{"mcpServers": []}',
        b'{"mcpServers": {"evolvable": 3}}',
        b"[" * 9999,
    ]
    + [b'{"mcpServers": {}, "mcpServers": {}}'],
)
def test_what_is_no_configuration_is_refused_and_not_touched(run: CommandLine, data: bytes) -> None:
    path = given_file(run, "cursor", "")
    path.write_bytes(data)

    said = run("connect", "cursor", code=1)

    assert "is broken" in said.err and path.read_bytes() == data


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_shows_the_change_and_makes_none(run: CommandLine, client: str) -> None:
    path = given_file(run, client, OTHERS_TOML if client == "codex" else OTHERS_JSON)
    before = path.read_bytes()

    said = run("connect", client, "--dry-run")

    assert "would be connected" in said.out and "serve" in said.out and "s3cr3t" not in said.out
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_an_entry_of_an_older_place_is_brought_up_to_date_and_keeps_what_a_person_set(
    run: CommandLine,
) -> None:
    path = given_file(
        run,
        "codex",
        '[mcp_servers.evolvable]  # ours\ncommand = "/gone/bin/evolvable"\n'
        'args = ["--home", "/x", "serve"]\nrequired = false\n'
        'enabled_tools = ["find_skill"]  # one\nenv = { EVOLVABLE_EMBEDDER = "off", '
        'EVOLVABLE_HOME = "/x" }\n',
    )

    run("--home", run.user / ".evolvable", "connect", "codex")

    entry = entry_in(path, "codex")
    assert (
        entry["command"] != "/gone/bin/evolvable"
        and entry["args"][-1] == "serve"
        and "/x" not in entry["args"]
    )
    assert entry["env"] == {"EVOLVABLE_EMBEDDER": "off"} and entry["enabled_tools"] == [
        "find_skill"
    ]
    assert entry["required"] is False and entry["tool_timeout_sec"] == 120
    text = path.read_text(encoding="utf-8")
    assert "# ours" in text and "# one" in text


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_another_server_of_the_same_name_is_left_alone(run: CommandLine, client: str) -> None:
    path = given_file(run, client, '{"TABLE": {"evolvable": {"url": "https://example.org/mcp"}}}')
    before = path.read_bytes()

    assert "another server" in run("connect", client, code=1).err
    assert "another server" in run("disconnect", client, code=1).err
    assert path.read_bytes() == before
    run("connect", client, "--name", "mine")
    assert "mine" in path.read_text(encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")
def test_mode_and_link_of_the_file_stay(run: CommandLine) -> None:
    path = file_of(run, "codex")
    real = run.user / "dotfiles/codex.toml"
    real.parent.mkdir()
    path.parent.mkdir()
    real.write_text(OTHERS_TOML, encoding="utf-8")
    real.chmod(0o640)
    path.symlink_to(real)

    said = run("connect", "codex", "--json").json

    assert path.is_symlink() and "evolvable" in real.read_text(encoding="utf-8")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (real, Path(said["backup"]))] == [0o640, 0o640]
    assert Path(said["backup"]).parent == real.parent


def test_a_project_gets_a_file_of_its_own_and_desktop_has_none(run: CommandLine) -> None:
    for client in ("claude-code", "codex", "cursor", "vscode"):
        run("connect", client, "--scope", "project")
        assert file_of(run, client, "project").is_relative_to(run.project)
    assert (
        "no configuration of a project"
        in run("connect", "claude-desktop", "--scope", "project", code=1).err
    )


def test_comments_that_the_client_cannot_read_are_told(run: CommandLine) -> None:
    given_file(run, "claude-desktop", OTHERS_JSON)

    assert "a comment at line 2, column 5" in run("connect", "claude-desktop").err


def test_windows_newlines_tabs_and_one_line_files_stay_as_they_are(run: CommandLine) -> None:
    for text in (
        '{\r\n\t"a": 1,\r\n\t"servers": {\r\n\t\t"b": {}\r\n\t}\r\n}',
        '{"servers":{"b":{}}}',
        '\ufeff{\n "servers": {"b": {},},\n}\n',
    ):
        path = given_file(run, "vscode", text)
        run("connect", "vscode")
        new = path.read_bytes().decode()
        assert ("\r\n" in text) == ("\r\n" in new) and "\n" not in (
            new.replace("\r\n", "") if "\r\n" in text else ""
        )
        assert new.startswith(text[:3]) and entry_in(path, "vscode")
        run("disconnect", "vscode")
        assert path.read_bytes().decode() == text


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="a program is a script here")
@pytest.mark.parametrize("works", [True, False])
def test_claude_code_itself_is_asked_and_the_file_edited_when_it_fails(
    run: CommandLine, works: bool
) -> None:
    claude = run.root / "bin/claude"
    claude.parent.mkdir()
    body = "import json, pathlib, sys\np = pathlib.Path.home() / '.claude.json'\n"
    body += (
        "d = json.loads(p.read_text())\nd['mcpServers'][sys.argv[3]] = json.loads(sys.argv[4])\n"
    )
    body += "p.write_text(json.dumps(d, indent=2))\n" if works else "sys.exit('no room')\n"
    claude.write_text(f"#!{sys.executable}\n{body}", encoding="utf-8")
    claude.chmod(0o755)
    path = given_file(run, "claude-code", json.dumps({"numStartups": 3, "TABLE": {}}, indent=2))

    said = run("connect", "claude-code", PATH=str(claude.parent), HOME=str(run.user))

    assert ("By: claude mcp add-json" in said.out) == works
    assert ("no room" in said.err) != works
    assert entry_in(path, "claude-code")["type"] == "stdio"


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", ".config/Claude/claude_desktop_config.json"),
    ],
)
def test_desktop_s_file_lies_where_the_system_has_it(
    tmp_path: Path, system: str, expected: str
) -> None:
    machine = read_machine(tmp_path, {}, system, tmp_path)

    assert (
        configuration_entry(machine, CLIENTS["claude-desktop"], "user").path == tmp_path / expected
    )


def test_a_packaged_desktop_on_windows_reads_from_its_own_place(tmp_path: Path) -> None:
    package = tmp_path / "AppData/Local/Packages/Claude_pzs8/LocalCache/Roaming"
    package.mkdir(parents=True)

    found = configuration_entry(
        read_machine(tmp_path, {}, "win32", tmp_path), CLIENTS["claude-desktop"], "user"
    ).path
    assert found == package / "Claude/claude_desktop_config.json"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
ENTRY = {"command": "/a b/ü", "args": ["serve"], "env": {"A": "b"}}


@pytest.mark.skipif(os.name != "posix", reason="names are bytes there alone")
def test_a_library_whose_name_is_no_unicode_is_refused_and_a_pipe_is_no_configuration(
    run: CommandLine,
) -> None:
    path = given_file(run, "cursor", "{}")
    said = run(
        "--home", os.fsdecode(os.fsencode(run.user) + b"/b\xff"), "connect", "cursor", code=1
    )
    assert "not Unicode" in said.err and path.read_text() == "{}"

    path.unlink()
    os.mkfifo(path)
    assert "cannot be read" in run("connect", "cursor", code=1).err


@pytest.mark.parametrize("client", CLIENTS)
def test_a_person_s_remarks_in_and_behind_the_entry_do_not_stop_disconnect(
    run: CommandLine, client: str
) -> None:
    before = "# mine\n[tui]\na = 1\n" if client == "codex" else '{"TABLE": {\n"a": {}\n}}\n'
    path = given_file(run, client, before)
    run("connect", client)
    text = path.read_text(encoding="utf-8")
    if client == "codex":
        text = text.replace("args =", "# more time here\nargs =") + "# the end\n"
    else:
        text = text.replace("\n}}", "\n// behind it\n, // and its comma\n}}")
    path.write_text(text, encoding="utf-8")

    run("disconnect", client)

    after = path.read_text(encoding="utf-8")
    assert "evolvable" not in after
    assert (
        {"# mine", "# the end"} <= {*after.splitlines()}
        if client == "codex"
        else "// behind it" in after
    )


@pytest.mark.process
@settings(deadline=None, max_examples=150)
@given(
    rest=st.dictionaries(st.text(max_size=4).filter(lambda key: key != "t"), VALUES, max_size=4),
    table=st.none()
    | st.dictionaries(st.text(max_size=3).filter(lambda key: key != "e"), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
)
def test_any_json_text_gets_the_entry_and_gives_it_back(rest: Any, table: Any, indent: Any) -> None:
    values = {**rest, **({"t": table} if table is not None else {})}
    text = json.dumps(values, indent=indent, ensure_ascii=False)

    new = json_edit.edit_json(text, ("t", "e"), ENTRY)
    back = json_edit.edit_json(new, ("t", "e"), None)

    assert json.loads(new) == {**values, "t": {**(table or {}), "e": ENTRY}}
    assert back == (text if table else json_edit.edit_json(back, ("t", "e"), None))
    assert json.loads(back) == {**values, "t": table or {}}


@pytest.mark.parametrize(
    "text",
    [
        (
            'mcp_servers.evolvable.command = "/gone/bin/evolvable"  # ours\n\n# of the screen\n'
            "[tui]\nx = 1\n"
        ),
        'model = "m"\nmcp_servers.evolvable.command = "evolvable"\n# two\n'
        'mcp_servers.evolvable.args = []\nmcp_servers.other.command = "a"\n',
        (
            '[mcp_servers]\nevolvable.command = "evolvable"\n# other\nother.command = "a"\n\n'
            "[tui]\nx = 1\n"
        ),
        (
            'mcp_servers.evolvable.command = "evolvable"\nmcp_servers.evolvable.env.A = "1"\n'
            "[tui]\nx = 1\n"
        ),
        '"mcp_servers".\'evolvable\'.command = "evolvable"\r\n[tui]\r\nx = 1\r\n',
        (
            'mcp_servers.evolvable.command = "evolvable"\n\n[mcp_servers.evolvable.env]\n'
            'A = "1"\n\n[tui]\nx = 1\n'
        ),
    ],
)
def test_an_entry_with_dots_is_changed_and_taken_out_and_the_rest_stays(
    run: CommandLine, text: str
) -> None:
    path = given_file(run, "codex", text)
    before = tomllib.loads(text)

    run("connect", "codex")
    connected = path.read_text(encoding="utf-8")
    now = tomllib.loads(connected)
    assert now["mcp_servers"]["evolvable"]["args"][-1] == "serve"
    assert now["mcp_servers"]["evolvable"]["env"]["EVOLVABLE_HOME"] == str(run.home)
    run("disconnect", "codex")

    after = tomllib.loads(path.read_text(encoding="utf-8"))
    del before["mcp_servers"]["evolvable"], now["mcp_servers"]["evolvable"]
    assert now == before and {"mcp_servers": {}} | after == before
    assert all(line in connected for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {other = {command = "a"}}\n',
        'mcp_servers.other.command = "a" # c\n',
        '[mcp_servers]\nother = {command="a"}\n[tui]\nx=1',
        "[mcp_servers]\r\n# nothing yet\r\n[z]\r\na=1\r\n",
        'x = """\n[mcp_servers.evolvable]\n"""\n',
    ],
)
def test_toml_in_any_form_gets_the_entry_and_gives_it_back(text: str) -> None:
    new = config_files.edit_toml(text, ("mcp_servers", "evolvable"), ENTRY)
    assert tomllib.loads(new)["mcp_servers"]["evolvable"] == ENTRY
    try:
        back = config_files.edit_toml(new, ("mcp_servers", "evolvable"), None)
    except ValueError:
        assert '"""' in text  # refused, rather than to guess
    else:
        assert back == text.rstrip("\n") + "\n" if not text.endswith("\r\n") else back == text


@pytest.mark.skipif(
    sys.platform == "win32", reason="a symbolic link needs a right of its own there"
)
def test_a_link_that_a_repository_brings_is_not_written_through(run: CommandLine) -> None:
    (run.project / ".git").mkdir()
    (run.project / ".cursor").mkdir()
    (run.project / ".cursor/mcp.json").symlink_to(run.user / "planted.json")
    assert (
        "leads out of the repository" in run("connect", "cursor", "--scope", "project", code=1).err
    )
    assert not (run.user / "planted.json").exists()


def test_only_the_option_of_a_person_lets_the_tools_of_qwen_code_run_unasked(
    tmp_path: Path,
) -> None:
    evolvable = CommandLine(tmp_path)
    path = evolvable.user / ".qwen/settings.json"
    path.parent.mkdir()
    before = '{\n  "theme": "Ayu",\n  "mcpServers": {},\n  "$version": 4\n}\n'
    path.write_text(before, encoding="utf-8")

    evolvable("connect", "qwen")
    assert "trust" not in json.loads(path.read_text("utf-8"))["mcpServers"]["evolvable"]
    evolvable("connect", "qwen", "--trust")
    assert json.loads(path.read_text("utf-8"))["mcpServers"]["evolvable"]["trust"] is True
    evolvable("connect", "qwen")
    assert json.loads(path.read_text("utf-8"))["mcpServers"]["evolvable"]["trust"] is True
    evolvable("disconnect", "qwen")
    assert path.read_text("utf-8") == before
    refused = evolvable("connect", "droid", "--trust", code=None)
    assert refused.code == 1 and "cannot say that its tools run unasked" in refused.err


def test_a_new_entry_of_copilot_has_the_small_group_of_tools_until_the_person_says_otherwise(
    run: CommandLine,
) -> None:
    path = file_of(run, "copilot")
    run("connect", "copilot")
    entry = entry_in(path, "copilot")
    assert (entry["type"], entry["tools"], entry["env"]["EVOLVABLE_TOOLSETS"]) == (
        "local",
        ["*"],
        "small",
    )

    text = path.read_text(encoding="utf-8").replace('"EVOLVABLE_TOOLSETS": "small"', '"MINE": "1"')
    path.write_text(text, encoding="utf-8")
    run("connect", "copilot")
    assert path.read_text(encoding="utf-8") == text
    run("disconnect", "copilot")
    run("connect", "copilot", "--env", "EVOLVABLE_TOOLSETS=off")
    assert entry_in(path, "copilot")["env"]["EVOLVABLE_TOOLSETS"] == "off"


def test_an_unknown_client_gets_the_entry_to_paste_in_three_forms(run: CommandLine) -> None:
    shown = run("connect", "zed", "--name", "mine", "--env", 'A=say "hi": \\ü', code=2)
    assert "'zed' is none of" in shown.err and ": claude-code, codex, " in shown.err

    usual, listed, yaml = (
        part.split("\n\n", 1)[1]
        for part in re.split(r"(?m)^(?=JSON with|YAML with)", shown.out)[1:]
    )
    entry = json.loads(usual)["mcpServers"]["mine"]
    assert entry["args"][-1] == "serve" and entry["env"] == {
        "EVOLVABLE_HOME": str(run.home),
        "A": 'say "hi": \\ü',
    }
    other = json.loads(listed)["mcp"]["mine"]
    assert (
        other["command"] == [entry["command"], *entry["args"]]
        and other["environment"] == entry["env"]
    )
    (one,) = load_yaml(yaml).value["mcpServers"]
    assert one == {"name": "mine", "type": "stdio", **entry}
    assert not list(run.user.rglob("*.json"))


def test_continue_gets_the_entry_to_paste_with_a_prefix_and_the_small_group(
    run: CommandLine,
) -> None:
    path = run.user / ".continue" / "config.yaml"
    path.parent.mkdir()
    path.write_text(
        "name: mine  # my own\nmcpServers:\n  - name: github\n    command: npx\n", encoding="utf-8"
    )
    before = path.read_bytes()

    shown = run("connect", "continue", code=2)
    assert (
        "Nothing was written" in shown.err
        and "config.yaml" in shown.err
        and path.read_bytes() == before
    )

    key, _, entry = shown.out.partition("\n")
    (alone,) = load_yaml(shown.out).value["mcpServers"]
    assert (key, alone["name"], alone["args"][-1]) == ("mcpServers:", "evolvable", "serve")
    assert (
        alone["env"]["EVOLVABLE_TOOL_PREFIX"] == "evolvable_"
        and alone["env"]["EVOLVABLE_TOOLSETS"] == "small"
    )
    assert load_yaml(before.decode() + entry).value["mcpServers"] == [
        {"name": "github", "command": "npx"},
        alone,
    ]


def test_an_unknown_client_is_refused_in_json_without_a_text_on_the_output(
    run: CommandLine,
) -> None:
    shown = run("connect", "zed", "--json", code=2)
    assert '"mcpServers"' in shown.err and '"mcpServers"' not in shown.out
    assert run("disconnect", "zed", code=2).out == ""


def test_a_file_that_is_not_utf8_is_broken_at_the_column_of_its_characters(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes('{\n"ä": "'.encode() + b"\xff")
    with pytest.raises(config_files.ConfigurationBroken) as broken:
        config_files.read_configuration(path)
    assert (broken.value.line, broken.value.column) == (2, 7)
