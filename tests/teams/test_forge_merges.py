"""A merge on a forge approves what it brought, where the forge itself says that a listed person made it."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from forge_place import IDENTITY, REPOSITORY, MergeRequest, ScriptedForge, serve_forge
from remote_place import Machine, commit_tree, git, skill_text

from evolvable_store.errors import Refused, RemoteFailed
from evolvable_store.resource import Ref
from evolvable_teams.remotes.forge_merges import FORGES, Forge, MergeReader, named_forge, parse_forge
from evolvable_teams.remotes.remote_pull import Consent
from evolvable_tools.authors import authorships
from evolvable_tools.llm.transport import MAX_ANSWER_BYTES

pytestmark = pytest.mark.process

COMMIT = "c" * 40
TOKEN = "t0ken-of-ben"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def forge() -> Iterator[ScriptedForge]:
    with serve_forge(ScriptedForge()) as served:
        yield served


def named(forge: ScriptedForge, token: Path) -> Forge:
    return Forge(forge.kind, forge.address, REPOSITORY, IDENTITY, (("ada", 7),), str(token))


# What the interface says


@pytest.mark.parametrize("kind", FORGES)
def test_the_ids_of_repository_and_mergers_are_asked_for_once_and_a_listed_merge_counts(kind, forge, token):
    forge.kind, forge.requests = kind, [MergeRequest(4, COMMIT)]
    made = named_forge(replace(named(forge, token), identity=0, mergers=()), ["ada"])
    assert made == named(forge, token)
    assert parse_forge(made.to_table()) == made
    reader = MergeReader(made, "main")
    assert {one: (merge.number, merge.login) for one, merge in reader.read([COMMIT, "d" * 40]).items()} == {
        COMMIT: (4, "ada")
    }
    assert reader.warning == ""
    asked = len(forge.asked)
    assert reader.read([COMMIT]) and len(forge.asked) == asked, "each commit is asked about once"
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for _, headers in forge.asked)
    assert all(headers["user-agent"] == "evolvable" for _, headers in forge.asked)
    with pytest.raises(RemoteFailed):
        named_forge(made, ["nobody"])


def test_a_squash_on_gitlab_counts_too(forge, token):
    forge.kind, forge.requests = "gitlab", [MergeRequest(4, COMMIT, squashed=True)]
    assert COMMIT in MergeReader(named(forge, token), "main").read([COMMIT])


LIES = (
    *({"repository": IDENTITY + 1}, {"branch": "release"}, {"merged": False}, {"login": "mallory", "user": 13}),
    *({"login": "mallory"}, {"user": 13}, {"answered": 5}, {"commit": "d" * 40}),
)
"""Another repository or a fork, another branch, an open request, a merger who is not listed or whose name or id alone
is, another request than the one that was asked for, another commit."""


@pytest.mark.parametrize("kind", FORGES)
def test_an_answer_that_is_about_anything_else_counts_nothing(kind, forge, token):
    forge.kind, true = kind, MergeRequest(4, COMMIT, listed=COMMIT)
    for lie in LIES:
        forge.requests = [replace(true, **lie)]
        reader = MergeReader(named(forge, token), "main")
        assert (reader.read([COMMIT]), reader.warning) == ({}, ""), lie
    forge.requests = [true]
    assert MergeReader(named(forge, token), "main").read([COMMIT])


def test_a_request_that_merged_by_itself_counts_nothing(forge, token):
    forge.requests = [MergeRequest(4, COMMIT, auto=True)]
    assert not MergeReader(named(forge, token), "main").read([COMMIT])


@pytest.mark.parametrize("manual", [True, None])
def test_a_gitea_that_takes_the_author_of_a_pushed_commit_for_the_merger_counts_nothing(manual, forge, token):
    forge.kind, forge.manual, forge.requests = "gitea", manual, [MergeRequest(4, COMMIT)]
    reader = MergeReader(named(forge, token), "main")
    assert not reader.read([COMMIT])
    assert "detects manual merges" in reader.warning


def test_a_repository_of_the_same_name_with_another_id_counts_nothing(forge, token):
    forge.identity, forge.requests = IDENTITY + 1, [MergeRequest(4, COMMIT, repository=IDENTITY + 1)]
    reader = MergeReader(named(forge, token), "main")
    assert not reader.read([COMMIT]) and "another repository now" in reader.warning


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((500, None), (401, None), (404, None), (200, b"[" * 100_000), (200, b"<html>"), (200, b"\xff"), (200, b"7")),
        (200, b" " * (MAX_ANSWER_BYTES + 1)),
    ],
    ids=["500", "401", "404", "deep", "html", "bytes", "number", "endless"],
)
def test_an_interface_that_fails_makes_no_merge_count_and_says_so_without_the_token(status, body, forge, token):
    forge.status, forge.body, forge.requests = status, body, [MergeRequest(4, COMMIT)]
    reader = MergeReader(named(forge, token), "main")
    assert not reader.read([COMMIT])
    assert reader.warning.startswith("No merge counts") and TOKEN not in reader.warning
    asked = len(forge.asked)
    assert not reader.read([COMMIT]) and len(forge.asked) == asked


def test_a_redirect_is_not_followed_and_the_token_goes_nowhere_else(forge, token):
    with serve_forge(ScriptedForge(requests=[MergeRequest(4, COMMIT)])) as other:
        forge.status, forge.headers = 302, {"Location": f"{other.address}/repos/{REPOSITORY}"}
        reader = MergeReader(named(forge, token), "main")
        assert not reader.read([COMMIT]) and "302" in reader.warning
        assert not other.asked


@pytest.mark.parametrize(
    "change",
    [
        *({"address": one} for one in ("http://forge.example", "https://ben:secret@forge.example", "ftp://x", "-x")),
        *({"repository": one} for one in ("skills", "../x", "a/..", "a/b?c", "a/b#c", "a/%2e", "-/" * 40)),
        *({"mergers": [one]} for one in ("ada", "ada:x", "ada:", ":7", "a b:7", "ada:-7")),
        *({"kind": "bitbucket"}, {"token_file": ""}, {"token_file": "token"}, {"identity": "7"}, {"key": "x"}),
    ],
    ids=str,
)
def test_a_forge_with_an_address_or_a_name_that_is_none_is_refused(change):
    good = {"kind": "github", "address": "https://api.github.com", "repository": REPOSITORY, "token_file": "/token"}
    parse_forge(good)
    with pytest.raises(ValueError, match=r"."):
        parse_forge(good | change)


def test_a_token_that_others_can_read_is_refused_and_a_command_prints_one(forge, token, tmp_path):
    token.chmod(0o644)
    with pytest.raises(Refused):
        named_forge(named(forge, token), ["ada"])
    for words, error in (("echo from a command", RemoteFailed), ("exit 1", RemoteFailed), ("echo other", None)):
        told = replace(named(forge, token), token_file="", token_command=("/bin/sh", "-c", words))
        if error is None:
            named_forge(told, ["ada"])
        else:
            with pytest.raises(error):
                named_forge(told, ["ada"])
    assert {headers["authorization"] for _, headers in forge.asked} == {"Bearer other"}


# What a pull makes of it


@pytest.fixture
def ben(tmp_path: Path, hub: Path) -> Machine:
    """Whose library has pdf, written by himself and pushed."""
    machine = Machine(tmp_path / "ben", hub)
    machine.put("pdf", "one\n", run__sh=b"echo one\n")
    machine.push()
    return machine


def merge(hub: Path, files: dict[str, bytes], *, reverse: bool = False) -> str:
    """Merges a branch that makes these the files of skills into main, as a forge does."""
    main = git(hub, "rev-parse", "main")
    entries = [("100644", f"skills/{path}", data) for path, data in sorted(files.items())]
    branch = commit_tree(hub, entries, "Merge pull request #4 from ada\n\nMerged-by: ada\nEvolvable-Actor: human", main)
    parents = (branch, main) if reverse else (main, branch)
    return commit_tree(hub, entries, "Merge pull request #4", *parents)


def push_direct(hub: Path, files: dict[str, bytes]) -> None:
    entries = [("100644", f"skills/{path}", data) for path, data in sorted(files.items())]
    commit_tree(hub, entries, "Merge pull request #4 from ada", git(hub, "rev-parse", "main"))


PDF = {"pdf/SKILL.md": skill_text("pdf", "two\n"), "pdf/run.sh": b"echo one\n"}


def trust_of(machine: Machine, name: str) -> bool:
    head = machine.store.head(Ref.parse(name))
    return authorships(machine.library, [head.id])[head.id].stands


def test_what_a_listed_person_merged_needs_no_question_and_is_approved(ben, hub, forge, token):
    files = PDF | {"csv/SKILL.md": skill_text("csv", "new\n")}
    forge.requests = [MergeRequest(4, merge(hub, files))]
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert not told.proposals and not told.warnings
    assert ben.text("pdf") == "two\n"
    assert {trust_of(ben, name) for name in ("pdf", "csv")} == {True}
    push_direct(hub, {**files, "pdf/SKILL.md": skill_text("pdf", "one\n")})
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert len(told.proposals) == 1 and ben.text("pdf") == "two\n", "a commit may say that it is a merge"


def test_without_a_forge_the_same_merge_is_a_commit_like_any_other(ben, hub):
    merge(hub, PDF)
    assert len(ben.pull(Consent.NONE).proposals) == 1


def test_a_merge_does_not_approve_what_was_pushed_to_the_branch_before_it(ben, hub, forge, token):
    push_direct(hub, {**PDF, "pdf/run.sh": b"echo two\n"})
    forge.requests = [MergeRequest(4, merge(hub, {**PDF, "pdf/run.sh": b"echo two\n", "pdf/a.md": b"a"}))]
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert len(told.proposals) == 1 and ben.text("pdf") == "one\n"


def test_a_merge_does_not_approve_what_waits_for_a_decision(ben, hub, forge, token):
    push_direct(hub, {**PDF, "pdf/run.sh": b"echo two\n"})
    assert len(ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main")).proposals) == 1
    forge.requests = [MergeRequest(4, merge(hub, {**PDF, "pdf/run.sh": b"echo two\n", "pdf/a.md": b"a"}))]
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert len(told.proposals) == 1 and ben.text("pdf") == "one\n"


def test_a_merge_of_the_branch_into_something_else_is_none_of_the_branch(ben, hub, forge, token):
    forge.requests = [MergeRequest(4, merge(hub, PDF, reverse=True))]
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert len(told.proposals) == 1


def test_a_merge_over_what_was_only_imported_is_imported_and_stays_an_import(tmp_path, hub, forge, token, ben):
    eve = Machine(tmp_path / "eve", hub)
    eve.pull()
    assert trust_of(eve, "pdf") is False
    forge.requests = [MergeRequest(4, merge(hub, PDF))]
    assert not eve.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main")).proposals
    assert (eve.text("pdf"), trust_of(eve, "pdf")) == ("two\n", False)


def test_a_merge_lets_nothing_of_high_severity_in_and_a_failing_forge_lets_everything_wait(ben, hub, forge, token):
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    steal = skill_text("pdf", f"Merge files.{hidden}\n")
    forge.requests = [MergeRequest(4, merge(hub, {**PDF, "pdf/SKILL.md": steal}))]
    assert len(ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main")).proposals) == 1
    forge.requests.append(MergeRequest(5, merge(hub, {**PDF, "csv/SKILL.md": skill_text("csv", "new\n")})))
    forge.status = 503
    told = ben.pull(Consent.NONE, merges=MergeReader(named(forge, token), "main"))
    assert any("skill:csv" in text for text in told.proposals.values()) and "503" in told.warnings[0]


def test_the_command_names_a_forge_shows_it_and_a_pull_asks_it(ben, hub, forge, token, tmp_path, monkeypatch):
    run = CommandLine(tmp_path)
    monkeypatch.chdir(run.project)
    run("clone", hub, "--yes")
    words = ["--type", "github", "--repository", REPOSITORY, "--merger", "ada", "--token-file", token]
    run.person = False
    assert "refused" in run("remote", "forge", "origin", forge.address, *words, code=1).err
    run.person = True
    assert "http://" in run("remote", "forge", "origin", "http://forge.example", *words, code=1).err
    run("remote", "forge", "origin", forge.address, *words[:4], code=2)
    assert "ada" in run("remote", "forge", "origin", forge.address, *words).out
    (entry,) = tomllib.loads((run.user / ".config/evolvable/config.toml").read_text())["remotes"]
    assert entry["forge"]["mergers"] == ["ada:7"] and entry["forge"]["identity"] == IDENTITY
    assert TOKEN not in str(entry)
    assert f"{REPOSITORY} at 127.0.0.1" in run("remote").out
    forge.requests = [MergeRequest(4, merge(hub, PDF))]
    assert "approved: merged by ada in request 4" in run("pull", stdin="y\n").out
    assert "No merge counts" in run("remote", "forge", "origin", "none").out
    assert "Merges that count" not in run("remote").out


def test_a_configuration_with_a_forge_that_is_none_says_what_is_wrong(hub, tmp_path, monkeypatch):
    run = CommandLine(tmp_path)
    monkeypatch.chdir(run.project)
    run("init", code=None)
    run("remote", "add", "origin", hub)
    config = run.user / ".config/evolvable/config.toml"
    config.write_text(config.read_text() + '\n[remotes.forge]\nkind = "github"\naddress = "http://x.example"\n')
    assert "address is http://" in run("pull", code=1).err
