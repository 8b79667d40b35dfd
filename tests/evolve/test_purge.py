"""Secrets at every door, and their end: found, named without being shown, purged for good."""

import base64
import gzip
import json
import os
import random
import shutil
import signal
import sqlite3
import string
import subprocess
import sys
import time
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_evolve.evolution.ledger.run_directory import Ledger, RunDirectory, read_ledger
from evolvable_store.fsck import check_library
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.index import check_index
from evolvable_store.search.index_file import INDEX_FILE
from evolvable_store.store import Store
from evolvable_tools.library import Library

pytestmark = pytest.mark.process

_RNG = random.Random(7)
SECRET = "ghp_" + "".join(_RNG.choice(string.ascii_letters + string.digits) for _ in range(36))
VALUE = "".join(_RNG.choice(string.ascii_letters + string.digits) for _ in range(24))
ENV = f"SHOP_PASSWORD={VALUE}\n"


@pytest.fixture
def shop(tmp_path: Path) -> CommandLine:
    """A person's machine with a watched folder and one clean skill."""
    made = CommandLine(tmp_path)
    made.save(skills(made), "shop", skill_text("shop"))
    made("init", skills(made))
    return made


def skills(evolvable: CommandLine) -> Path:
    return evolvable.user / ".claude/skills"


def leak(evolvable: CommandLine) -> str:
    """Save a skill with a secret, take it in, and return what the command wrote to
    standard error.
    """
    evolvable.save(
        skills(evolvable), "shop", skill_text("shop") + f"\nUse {SECRET} for the shop.\n"
    )
    return evolvable("sync").err


def secret_id(evolvable: CommandLine) -> str:
    (found,) = {one["id"] for one in evolvable("purge", "--list", "--json").json["secrets"]}
    return found


def holding(home: Path, needle: str) -> list[str]:
    """Return the files below a folder that hold a text, in the raw bytes or in a blob
    of a library.
    """
    raw = [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and needle.encode() in path.read_bytes()
    ]
    with Store.open(home) as store:
        for sha256 in blobs(home):
            if needle.encode() in (store.backend.blob(sha256) or b""):
                raw.append(sha256)
    return raw


def blobs(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "library.db")) as db:
        return [sha256 for (sha256,) in db.execute("SELECT sha256 FROM blob")]


def assert_sound(home: Path) -> None:
    with Library.open(home) as library:
        library.index.catch_up()
        assert check_library(library.store, checks=[check_index]).faults == ()


def test_every_door_warns_of_a_secret_and_shows_none(shop: CommandLine, tmp_path: Path) -> None:
    err = leak(shop)
    assert "shop@2 SKILL.md, line" in err and "github" in err and SECRET not in err

    outside = tmp_path / "outside"
    shop.save(outside, "till", skill_text("till") + f"\nUse {SECRET[:10]}{SECRET[:3:-1]} here.\n")
    assert "till@1 SKILL.md, line" in shop("import", outside, "--accept", code=None).err

    shop.save(tmp_path / "more", "desk", skill_text("desk") + f"\nUse {SECRET} here.\n")
    err = shop("init", tmp_path / "more").err
    assert "a secret" in err and SECRET not in err

    text = skill_text("shop") + f"\nUse glpat-{VALUE[:20]} here.\n"
    err = shop("update", "shop", "--file", "SKILL.md=-", "-m", "new", stdin=text, code=None).err
    assert "shop@3" in err and "gitlab" in err


def test_the_warning_stays_in_doctor_until_somebody_decides(shop: CommandLine) -> None:
    leak(shop)
    shop.save(skills(shop), "shop", skill_text("shop"))
    shop("sync")

    seen = shop("doctor", code=4)
    assert "shop@2 SKILL.md" in seen.out
    assert "evolvable care purge --secret" in seen.out
    assert SECRET not in seen.out

    shop("purge", "--accept", secret_id(shop), "-m", "it is revoked")
    assert "shop@2" not in shop("doctor", code=None).out


def test_an_environment_file_is_named_and_not_given_to_agents(shop: CommandLine) -> None:
    shop.save(skills(shop), "shop", ENV, ".env")
    assert "an environment file" in shop("sync").err

    shop.person = False
    refused = shop("get", "shop", "--path", ".env", code=1)
    assert "agents are not given it" in refused.err and VALUE not in refused.out + refused.err
    assert "purge" not in refused.err

    shop.person = True
    assert VALUE in shop("get", "shop", "--path", ".env").out
    shop("purge", "--accept", secret_id(shop))
    shop.person = False
    assert VALUE in shop("get", "shop", "--path", ".env").out


def test_an_agent_may_not_purge_and_is_not_told_how(shop: CommandLine) -> None:
    leak(shop)
    found = secret_id(shop)
    shop.person = False
    for arguments in (["shop", "SKILL.md"], ["--secret", found], ["--accept", found], ["--resume"]):
        refused = shop("purge", *arguments, "--yes", code=1)
        assert "Only a person takes bytes out" in refused.err and "--" not in refused.err
    assert SECRET in (skills(shop) / "shop/SKILL.md").read_text()


def test_a_purged_secret_is_nowhere_below_the_home_and_every_hash_holds(shop: CommandLine) -> None:
    leak(shop)
    home = shop.home
    (home / "aside/2026").mkdir(parents=True)
    (home / "aside/2026/notes.md").write_text(f"it was {SECRET}")
    (home / "log.jsonl").write_text(json.dumps({"said": f'a "{SECRET}"'}) + "\n")
    with zipfile.ZipFile(home / "old.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("shop/SKILL.md", SECRET * 10)
    shop("backup", home / "kept")
    with closing(sqlite3.connect(home / "library.db")) as db:
        db.execute(
            "INSERT INTO proposal (at, kind, scope, name, base, manifest, reason, actor, state, "
            "grounds) VALUES ('2026-11-22T00:00:00Z', 'skill', 'user', 'shop', 1, '{}', ?, "
            "'agent', 'rejected', ?)",
            (f"use {SECRET}", json.dumps({"quote": SECRET})),
        )
    db.close()
    packed = [
        "index.db",
        "index.db-shm",
        "index.db.damaged",
        f"{INDEX_FILE}.damaged",
    ]  # an earlier version's server runs
    for name in packed:
        (home / name).write_bytes(zlib.compress(SECRET.encode()))
    hashes = history(home)

    shop("purge", "--secret", secret_id(shop), "--edit-copies", "--yes", "-m", "it leaked")

    assert not [name for name in packed if (home / name).exists()]
    assert holding(home, SECRET) == [] and holding(home / "kept", SECRET) == []
    assert SECRET not in (skills(shop) / "shop/SKILL.md").read_text()
    assert history(home)[: len(hashes)] == hashes
    assert "it leaked" in shop("get", "shop@2").out and "person" in shop("get", "shop@2").out
    assert (home / "aside/2026/notes.md").read_text().startswith("it was [purged github")
    assert_sound(home)
    assert shop("purge", "--list", "--json").json == {"secrets": []}


def history(home: Path) -> list[tuple[int, str, str]]:
    with Store.open(home) as store:
        head = store.head(Ref.parse("shop"))
        return sorted(
            (past.version.number, past.version.tree, past.version.hash)
            for past in store.history(head)
        )


def test_a_purged_file_says_who_when_and_why_in_every_version(shop: CommandLine) -> None:
    shop.save(skills(shop), "shop", ENV, ".env")
    shop("sync")
    shop.save(skills(shop), "shop", skill_text("shop") + "\nmore\n")
    shop("sync")

    said = shop("purge", "shop", ".env", "--yes", "-m", "it is a password")

    assert "shop@2" in said.out
    assert "shop@3" in said.out
    assert str(skills(shop) / "shop/.env") in said.err
    for version in (2, 3):
        text = shop("get", f"shop@{version}", "--path", ".env").out
        assert VALUE not in text and "by person: it is a password" in text
    (skills(shop) / "shop/.env").unlink()
    shop("sync")
    assert holding(shop.home, VALUE) == []
    assert_sound(shop.home)


def test_without_the_persons_word_a_file_in_a_watched_folder_is_named_and_left(
    shop: CommandLine,
) -> None:
    leak(shop)
    place = skills(shop) / "shop/SKILL.md"

    said = shop("purge", "--secret", secret_id(shop), "--yes")
    shop("sync")

    assert f"still in {place}" in said.err
    assert SECRET in place.read_text()
    assert holding(shop.home, SECRET) == []
    assert_sound(shop.home)


def test_the_same_bytes_saved_again_do_not_come_back(shop: CommandLine) -> None:
    leak(shop)
    text = (skills(shop) / "shop/SKILL.md").read_text()
    shop("purge", "--secret", secret_id(shop), "--edit-copies", "--yes")

    (skills(shop) / "shop/SKILL.md").write_text(text)
    shop("sync")

    assert holding(shop.home, SECRET) == []
    assert_sound(shop.home)


def test_backups_and_exports_elsewhere_are_named(shop: CommandLine, tmp_path: Path) -> None:
    leak(shop)
    shop("backup", tmp_path / "kept")
    shop("backup", tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")

    said = shop("purge", "--secret", secret_id(shop), "--edit-copies", "--yes").err

    assert f"still in {tmp_path / 'kept'}" in said and str(tmp_path / "gone") not in said


def test_a_dry_run_and_a_no_remove_nothing(shop: CommandLine) -> None:
    leak(shop)
    found = secret_id(shop)
    assert "shop@2 SKILL.md" in shop("purge", "--secret", found, "--dry-run").out
    assert "Nothing was removed" in shop("purge", "--secret", found, stdin="n\n", code=1).err
    assert SECRET in shop("get", "shop@2").out


def test_an_archive_with_tombstones_comes_in_whole_and_a_real_file_is_not_replaced(
    shop: CommandLine, tmp_path: Path
) -> None:
    leak(shop)
    with Store.open(shop.home) as store:
        original = store.file(store.head(Ref.parse("shop")), "SKILL.md", 2).data
    shop("purge", "--secret", secret_id(shop), "--edit-copies", "--yes", "-m", "it leaked")
    shop("export", tmp_path / "all.json")

    other = CommandLine(tmp_path / "other") if (tmp_path / "other").mkdir() is None else shop
    other("import", tmp_path / "all.json", "--yes")
    assert "it leaked" in other("get", "shop@2").out
    assert_sound(other.home)
    assert other("import", tmp_path / "all.json", "--yes", "--json").json["unchanged"] == [
        "skill:shop"
    ]

    other("update", "shop", "--file", "SKILL.md=-", "-m", "x", stdin=original, code=None)
    assert SECRET in other("get", "shop").out


KILLED = """
import os, signal, sys
from evolvable_store.storage.maintenance import Purges
steps = int(sys.argv.pop(1))
def killing(function):
    def step(*values, **options):
        global steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*values, **options)
    return step
for name in ("begin", "write_tombstones", "replace_texts", "finish"):
    setattr(Purges, name, killing(getattr(Purges, name)))
from evolvable_tools.verbs import purge_content
for name in ("_write", "_renew_heads", "_forget_index", "forget_vectors"):
    setattr(purge_content, name, killing(getattr(purge_content, name)))
from evolvable_server.cli import main
sys.argv[0] = "evolvable"
sys.exit(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("steps", range(0, 9, 2))
def test_killed_anywhere_fsck_is_clean_and_the_purge_is_ended_by_doing_it_again(
    shop: CommandLine, tmp_path: Path, steps: int
) -> None:
    leak(shop)
    found = secret_id(shop)
    (shop.home / "notes.md").write_text(SECRET)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(steps), "purge", "--secret", found, "--yes"]
    ended = subprocess.run(
        command, env=shop.environment, capture_output=True, timeout=120, check=False
    )

    if steps < 8:
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert_sound(shop.home)
    if shop("purge", "--resume", code=None).code or holding(shop.home, SECRET):
        shop("purge", "--secret", found, "--yes")
    assert holding(shop.home, SECRET) == []
    assert_sound(shop.home)


def test_a_run_of_evolution_keeps_a_chain_that_can_be_checked(shop: CommandLine) -> None:
    leak(shop)
    run = shop.home / "evolve/20261122-100000-abcd"
    run.mkdir(parents=True)
    folder = RunDirectory(run)
    with Ledger.open(folder.ledger) as ledger:
        ledger.append("began", {"said": "one"})
        ledger.append(
            "answered",
            {"said": f"use {SECRET}", "kept": folder.store_artifact(f"a transcript with {SECRET}")},
        )
        ledger.append("ended", {"said": "three"})
    (run / "programs").mkdir()
    encoded = base64.b64encode(f"x {SECRET} y".encode()).decode()
    (run / "programs/a.json").write_text(json.dumps({"data": encoded}))

    shop("purge", "--secret", secret_id(shop), "--edit-copies", "--yes", "-m", "it leaked")

    assert holding(shop.home, SECRET) == []
    assert encoded[8:40] not in (run / "programs/a.json").read_text()
    records = read_ledger(folder.ledger)
    assert [record["type"] for record in records] == ["began", "answered", "ended"]
    assert "it leaked" in records[1]["said"] and b"it leaked" in folder.read_artifact(
        records[1]["kept"]
    )
    assert {
        json.loads(line)["file"] for line in (run / "purged.jsonl").read_text().splitlines()
    } == {"ledger.jsonl", f"artifacts/{records[1]['kept']}", "programs/a.json"}


def test_every_byte_that_no_person_purged_can_be_fetched_for_ever(shop: CommandLine) -> None:
    """docs/promises.md."""
    shop.save(skills(shop), "shop", ENV, ".env")
    leak(shop)
    before = every_file(shop.home)

    shop(
        "purge", "--secret", secret_of(shop, "github"), "--edit-copies", "--yes", "-m", "it leaked"
    )
    shop("purge", "shop", ".env", "--yes", "-m", "it is private")

    after = every_file(shop.home)
    assert {place for place, data in before.items() if after[place] != data} == {
        place for place, data in before.items() if SECRET.encode() in data or VALUE.encode() in data
    }
    for place, data in after.items():
        assert before.get(place, data) == data or (
            b"by person" in data or b"person: it leaked" in data
        )


def every_file(home: Path) -> dict[tuple[int, str], bytes]:
    with Store.open(home) as store:
        head = store.head(Ref.parse("shop"))
        numbers = range(1, head.latest + 1)
        return {
            (number, path): file.data
            for number in numbers
            for path, file in store.files(head, number).items()
        }


def secret_of(evolvable: CommandLine, kind: str) -> str:
    found = evolvable("purge", "--list", "--json").json["secrets"]
    return next(str(one["id"]) for one in found if one["kind"].startswith(kind))


def test_looking_at_what_was_seen_takes_no_time(shop: CommandLine) -> None:
    from evolvable_tools.secret_leaks import found_secrets

    with Library.open(shop.home) as library:
        assert found_secrets(library).scan_new() == 0
        start = time.process_time()
        found_secrets(library).scan_new()
        assert time.process_time() - start < 0.5


def save_copies(evolvable: CommandLine) -> None:
    """Save a skill with copies of the secret in other forms, and one version later the same files
    without it.
    """
    evolvable.save(skills(evolvable), "other", skill_text("other"))
    folder, text = skills(evolvable) / "other", SECRET.encode()
    forms = {
        "b.txt": base64.b64encode(b"k=" + text),
        "h.txt": text.hex().upper().encode(),
        "u.txt": SECRET.encode("utf-16"),
    }
    for name, data in {**forms, "g.gz": gzip.compress(text)}.items():
        (folder / name).write_bytes(data)
    with zipfile.ZipFile(folder / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", gzip.compress(text))
    leak(evolvable)
    for name in (*forms, "g.gz", "z.zip"):
        (folder / name).write_bytes(b"nothing\n")
    evolvable.save(skills(evolvable), "shop", skill_text("shop"))
    evolvable("sync")


def test_a_purge_takes_a_secret_out_of_its_encodings_in_old_versions(shop: CommandLine) -> None:
    save_copies(shop)
    shop("purge", "--secret", secret_id(shop), "--yes", code=None)

    with Store.open(shop.home) as store:
        kept = {
            name: store.file(store.head(Ref.parse("skill:other")), name, 1).data
            for name in ("b.txt", "h.txt", "u.txt")
        }
    assert SECRET.encode() not in base64.b64decode(
        kept["b.txt"]
    ) and b"[purged" in base64.b64decode(kept["b.txt"])
    assert b"[purged" in bytes.fromhex(kept["h.txt"].decode()) and "[purged" in kept[
        "u.txt"
    ].decode("utf-16")
    assert_sound(shop.home)


def test_an_archive_that_a_purge_leaves_is_named_and_stays_an_open_finding(
    shop: CommandLine,
) -> None:
    save_copies(shop)
    named = shop("purge", "--secret", secret_id(shop), "--yes", code=None).err
    assert "skill:other@1 g.gz" in named and "skill:other@1 z.zip" in named

    listed = shop("purge", "--list").out
    assert (
        "other@1 g.gz" in listed and "other@1 z.zip" in listed and "No open findings" not in listed
    )
    shop("purge", "--secret", secret_id(shop), "--yes", code=None)
    assert "No open findings" in shop("purge", "--list").out
    with Store.open(shop.home) as store:
        assert all(
            b"\x1f\x8b" not in (store.backend.blob(name) or b"") for name in blobs(shop.home)
        )


def test_a_purge_stands_for_no_more_of_a_text_than_the_person_stood_for_before(
    shop: CommandLine,
) -> None:
    text = skill_text("own") + f"\nUse {SECRET}.\n"
    with Store.open(shop.home) as store, store.transaction(Actor.HUMAN, "made") as tx:
        tx.put(Ref.parse("skill:own"), {"SKILL.md": File(text.encode())})
    agent = {"CLAUDECODE": "1"}
    shop(
        "update",
        "own",
        "--edit",
        "SKILL.md",
        "Use ",
        "In winter use ",
        "-m",
        "better",
        code=None,
        **agent,
    )
    assert "your agent (Claude Code) changed line" in shop("load", "own", **agent).out

    shop("purge", "--secret", secret_id(shop), "--yes", code=None)
    loaded = shop("load", "own", **agent).out
    assert "your agent (Claude Code) changed line" in loaded and SECRET not in loaded
    assert_sound(shop.home)
