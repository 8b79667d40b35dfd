"""Tokens: shown once, kept as hashes, safe for several processes, and the command that makes and
ends them.
"""

import json
import stat
import subprocess
import sys
from datetime import timedelta

import pytest
from command_line import CommandLine
from samples import Clock

from evolvable_server.grants import Permission
from evolvable_store.errors import AlreadyExists, InvalidArgument, LibraryCorrupt, NoLibrary
from evolvable_teams.tokens import FILE, NoSuchToken, Tokens

READ, REPORT, WRITE, APPROVE = Permission


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(tmp_path, clock):
    return Tokens(tmp_path, clock)


@pytest.fixture
def run(tmp_path):
    line = CommandLine(tmp_path)
    line.home.mkdir()
    return line


def test_a_secret_finds_its_token_and_is_kept_nowhere(tokens, tmp_path):
    token, secret = tokens.add("alice", [WRITE])

    assert tokens.find(secret) == token
    assert token.permissions == (READ, WRITE)
    assert secret not in (tmp_path / FILE).read_text(encoding="utf-8")
    assert len(secret) >= 47


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s + "x", str.upper, lambda s: "", lambda s: "evo_\udcff"]
)
def test_nothing_but_the_secret_finds_it(tokens, change):
    _, secret = tokens.add("alice", [])

    assert tokens.find(change(secret)) is None


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes there")
def test_only_the_owner_reads_the_file(tokens, tmp_path):
    tokens.add("alice", [])
    tokens.revoke("alice")

    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_token_ends_when_its_time_is_over(tokens, clock):
    token, secret = tokens.add("alice", [], timedelta(hours=1))
    clock.move(minutes=59)
    assert tokens.find(secret) == token
    clock.move(minutes=1)

    assert tokens.find(secret) is None


def test_another_process_revokes_it(tokens, tmp_path, clock):
    _, secret = tokens.add("alice", [])
    assert tokens.find(secret)
    Tokens(tmp_path, clock).revoke("alice")

    assert tokens.find(secret) is None
    assert tokens.is_in_use()
    with pytest.raises(NoSuchToken):
        tokens.revoke("alice")


def test_a_new_token_of_an_old_name_is_another(tokens):
    _, old = tokens.add("alice", [])
    tokens.revoke("alice")
    token, _ = tokens.add("alice", [])

    assert tokens.find(old) is None
    with pytest.raises(AlreadyExists):
        tokens.add("alice", [])
    assert tokens.all() == (token,)


def test_the_last_use_is_kept_once_a_minute(tokens, clock):
    token, _ = tokens.add("alice", [])
    tokens.note_use(token)
    first = tokens.all()[0]
    clock.move(seconds=59)
    tokens.note_use(first)
    assert tokens.all()[0] == first
    clock.move(seconds=2)
    tokens.note_use(first)

    assert first.last_used == "2026-11-20T12:00:00+00:00"
    assert tokens.all()[0].last_used == "2026-11-20T12:01:01+00:00"


def test_a_use_does_not_bring_a_revoked_token_back(tokens):
    token, secret = tokens.add("alice", [])
    tokens.revoke("alice")
    tokens.note_use(token)

    assert tokens.all() == ()


@pytest.mark.parametrize("name", ["", "Alice", "a b", "../x", "a\nb", "-a", "ä", "a" * 65, "a/b"])
def test_a_name_is_plain(tokens, name):
    with pytest.raises(InvalidArgument):
        tokens.add(name, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [{}]}',
        "\x00" * 40,
        "[" * 100_000,
    ]
    + [
        json.dumps(
            {"version": 1, "tokens": [{"name": "a", "permissions": p, "digest": d, "created": c}]}
        )
        for p, d, c in (
            (["all"], "x", "2026-11-20T12:00:00+00:00"),
            ("read", "x", "2026-11-20T12:00:00+00:00"),
            (["read"], 1, "2026-11-20T12:00:00+00:00"),
            (["read"], "x", "today"),
            (["read"], "x", "2026-11-20"),
        )
    ],
    ids=range(12),
)
def test_a_broken_file_is_an_error_and_never_a_way_in(tokens, tmp_path, text):
    (tmp_path / FILE).write_text(text, encoding="utf-8")

    for use in (
        tokens.all,
        lambda: tokens.find("evo_x"),
        lambda: tokens.add("alice", []),
        lambda: tokens.revoke("a"),
    ):
        with pytest.raises(LibraryCorrupt) as caught:
            use()
        assert "delete it" in caught.value.hint
    assert (tmp_path / FILE).read_text(encoding="utf-8") == text


def test_where_there_is_no_library_no_token_is_made(tmp_path):
    with pytest.raises(NoLibrary):
        Tokens(tmp_path / "nothing").add("alice", [])


@pytest.mark.process
def test_tokens_made_at_once_are_all_there(tmp_path):
    script = """
import sys
from pathlib import Path
from evolvable_teams.tokens import Tokens
for number in range(8):
    Tokens(Path(sys.argv[1])).add(f"{sys.argv[2]}-{number}", [])
"""
    makers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), f"p{n}"]) for n in range(2)
    ]

    assert [maker.wait(60) for maker in makers] == [0, 0]
    assert len(Tokens(tmp_path).all()) == 16
    assert not list(tmp_path.glob(".tokens.json.*"))


def test_the_command_shows_a_secret_once(run):
    made = run("token", "add", "ci", "--write", "--expires", "30d")
    secret = made.out.strip()
    listed = run("token", "list")
    as_json = run("token", "--json").json["tokens"]

    assert Tokens(run.home).find(secret)
    assert "not shown again" in made.err
    assert secret not in listed.out and "read, write" in listed.out and "never" in listed.out
    assert as_json[0]["secret"] is None and "digest" not in as_json[0]
    assert as_json[0]["permissions"] == ["read", "write"]


def test_the_command_revokes(run):
    run("token", "add", "ci", "--approve")

    assert "revoked" in run("token", "revoke", "ci").out
    assert "no token" in run("token", "revoke", "ci", code=1).err
    assert "There are no tokens" in run("token", "list").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "x"),
        ("add",),
        ("revoke",),
        ("list", "--write"),
        ("revoke", "x", "--approve"),
        ("frobnicate",),
    ]
    + [("add", "x", "--expires", time) for time in ("", "0d", "30", "1y", "-1d", "1000000d", "d")],
)
def test_what_the_command_cannot_do_is_said(run, arguments):
    done = run("token", *arguments, code=2)

    assert "Usage:" in done.err
    assert not (run.home / FILE).exists()


def test_no_address_that_other_machines_reach_is_served_without_tokens(run):
    ran = run("serve", "--http", "0.0.0.0:8000", code=1)

    assert ran.out == "" and "0.0.0.0 can be reached" in " ".join(ran.err.split())
