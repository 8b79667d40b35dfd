"""Attack T13 through the program: planted tokens, homes of others and of repositories, and what
others may read.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from http_place import http_server, made_token
from mcp_place import Place

from evolvable_server.grants import Permission
from evolvable_store.errors import Refused
from evolvable_teams.tokens import FILE, Tokens

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="Windows guards a home by access lists, not by modes"
)

as_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other accounts"
)

NOBODY = 65534


def planted(place: Place) -> str:
    """Makes a token that may do everything; returns its secret."""
    return made_token(place, "planted", *Permission)


@pytest.mark.process
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_tokens_that_others_could_have_written_let_nobody_in(tmp_path, mode):
    place = Place(tmp_path)
    secret = planted(place)
    with http_server(place, secret=secret) as server:
        assert server.tool("list_resources", {}).status == 200
        (place.home / FILE).chmod(mode)
        assert server.tool("list_resources", {}).status == 401
        said = server.said("is not believed")
        (place.home / FILE).chmod(0o600)
        assert server.tool("list_resources", {}).status == 200
    assert str(place.home / FILE) in said
    assert f"mode {mode:04o}" in said
    assert f"owner {os.geteuid()}" in said


@as_root
def test_tokens_of_another_account_let_nobody_in(tmp_path):
    place = Place(tmp_path)
    secret = planted(place)
    os.chown(place.home / FILE, NOBODY, NOBODY)
    with pytest.raises(Refused, match=r"owner 65534, mode 0600") as refused:
        Tokens(place.home).find(secret)
    assert "make new tokens" in refused.value.hint


@pytest.mark.process
def test_a_server_does_not_start_over_tokens_that_others_could_have_written(tmp_path):
    place = Place(tmp_path)
    planted(place)
    place.home.chmod(0o777)
    (place.home / FILE).chmod(0o666)
    command = [sys.executable, "-P", "-m", "evolvable_server", "serve", "--http", "0.0.0.0:0"]
    ran = subprocess.run(command, env=place.environment, capture_output=True, text=True, timeout=60)
    listed = subprocess.run(
        [*command[:4], "token", "list"],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    for one in (ran, listed):
        assert one.returncode != 0
        assert "is not believed" in one.stderr
        assert "Traceback" not in one.stderr
    # Opening the home made it private; what was planted is not made good by that.
    assert stat.S_IMODE((place.home / FILE).stat().st_mode) & 0o022


@pytest.mark.parametrize("words", [["init", "--yes"], ["list"], ["token", "add", "x"], ["serve"]])
def test_a_home_that_a_repository_names_is_refused_by_every_command(tmp_path, words):
    line = CommandLine(tmp_path)
    (line.project / ".git").mkdir()
    home = line.project / ".library"
    ran = line(*words, code=None, EVOLVABLE_HOME=str(home))

    assert ran.code != 0
    assert "a repository may have named it" in ran.err and "homes" in ran.err
    assert not home.exists()


@pytest.mark.process
def test_a_hook_queues_nothing_in_a_home_that_a_repository_names(tmp_path):
    place = Place(tmp_path)
    (tmp_path / ".git").mkdir()
    event = json.dumps({"session_id": "s1", "hook_event_name": "Stop"})
    command = [
        sys.executable,
        "-P",
        "-c",
        "from evolvable_server.hooks.command import main; main()",
    ]
    ran = subprocess.run(
        command, input=event, env=place.environment, capture_output=True, text=True, timeout=60
    )

    assert ran.returncode == 0 and "UntrustedHome" in ran.stderr
    assert not (place.home / "reviews").exists()


@pytest.mark.process
def test_a_server_leaves_nothing_in_its_home_that_others_may_read(tmp_path):
    place = Place(tmp_path)
    before = os.umask(0)
    try:
        with http_server(place) as server:
            server.tool("find_skill", {"task": "fill a PDF form"})
            event = {"hook_event_name": "Stop", "session_id": "s1"}
            server.tool("hook_event", event)
            place.save("pdf", "---\nname: pdf\ndescription: Fill PDF forms now.\n---\n\nHow.\n")
            frame = {"ref": "new", "reason": "x", "create": True}
            text = "---\nname: new\ndescription: A new one.\n---\n\nHow.\n"
            server.tool("update_resource", {**frame, "files": {"SKILL.md": text}})
            made_token(place, "late")
            open_to_others = others(place.home)
    finally:
        os.umask(before)
    assert open_to_others == {}


def others(home: Path) -> dict[str, str]:
    found = {}
    for path in (home, *home.rglob("*")):
        mode = path.lstat().st_mode
        if mode & 0o077:
            found[str(path.relative_to(home))] = oct(stat.S_IMODE(mode))
    return found


def registered(line: CommandLine, home: Path) -> str:
    """Has the person of this machine register a home; returns the account's folder, as tests name
    it.
    """
    account = line.root / "account"
    file = account / ".config/evolvable/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"homes = [{json.dumps(str(home))}]\n", encoding="utf-8")
    file.chmod(0o600)
    return str(account)


def test_a_home_in_a_work_tree_that_the_person_registered_is_used(tmp_path):
    line = CommandLine(tmp_path)
    (line.project / ".git").mkdir()
    home = line.project / ".library"
    account = registered(line, home)
    line("init", "--yes", EVOLVABLE_HOME=str(home), EVOLVABLE_TEST_ACCOUNT=account)
    line("token", "add", "x", EVOLVABLE_HOME=str(home), EVOLVABLE_TEST_ACCOUNT=account)

    assert others(home) == {}
    line("list", code=None, EVOLVABLE_HOME=str(home)).err.index("a repository may have named it")


def test_the_usual_home_may_lie_in_a_work_tree_as_when_a_home_directory_is_one(tmp_path):
    line = CommandLine(tmp_path)
    (line.user / ".git").mkdir()
    user = str(line.user)
    line("init", "--yes", EVOLVABLE_HOME="", EVOLVABLE_TEST_ACCOUNT=user)

    assert (line.user / ".evolvable/library.db").exists()
