import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import poll
from samples import attacks

from evolvable_store.objects import (
    EXECUTABLE,
    MAX_FILE,
    MAX_FILES,
    MAX_RESOURCE,
    PLAIN,
    File,
    make_manifest,
)
from evolvable_store.paths import IGNORED, MAX_DEPTH, is_disposable, is_ignored
from evolvable_store.workingcopy import tree_reader as module
from evolvable_store.workingcopy.signatures import MAX_SEEN, RACY_NS, signature
from evolvable_store.workingcopy.tree_reader import read_folder, tracked_paths, untracked_paths

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")


def may_read_everything() -> bool:
    with tempfile.NamedTemporaryFile() as closed:
        os.chmod(closed.name, 0)
        return os.access(closed.name, os.R_OK)


not_root = pytest.mark.skipif(may_read_everything(), reason="needs a user whom permissions stop")


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    """The folder of a small skill."""
    place = tmp_path / "pdf"
    put(place, "SKILL.md", b"# pdf\n")
    put(place, "references/api.md", b"api\n")
    return place


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """A read that blocks fails instead of waiting for ever."""
    if os.name != "posix":
        yield
        return

    def fail(*_: object) -> None:
        raise TimeoutError("the test blocks")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(place: Path, path: str, data: bytes = b"x", mode: int = PLAIN) -> Path:
    target = place / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(mode)
    return target


def test_every_file_is_read_with_its_bytes_and_its_mode(pdf: Path) -> None:
    put(pdf, "scripts/run.sh", b"#!/bin/sh\n", 0o700)
    put(pdf, "data.bin", bytes(range(256)), 0o604)
    assert read_folder(pdf).files == {
        "SKILL.md": File(b"# pdf\n", PLAIN),
        "references/api.md": File(b"api\n", PLAIN),
        "scripts/run.sh": File(b"#!/bin/sh\n", EXECUTABLE),
        "data.bin": File(bytes(range(256)), PLAIN),
    }


def test_a_setuid_bit_is_not_kept(pdf: Path) -> None:
    """attacks.json, archive-17."""
    put(pdf, "run", b"", 0o4755)
    assert read_folder(pdf).files["run"].mode == EXECUTABLE


@posix
def test_a_fifo_is_left_out_and_does_not_block(pdf: Path) -> None:
    """attacks.json, fs-04."""
    os.mkfifo(pdf / "notes.md")
    reading = read_folder(pdf)
    assert reading.left_out == {"notes.md": "not a regular file"}
    assert sorted(reading.files) == ["SKILL.md", "references/api.md"]


@posix
def test_a_fifo_that_takes_a_files_place_does_not_block(pdf: Path) -> None:
    """Between the look and the open the file can be exchanged."""
    os.mkfifo(pdf / "notes.md")
    with module._OpenFolder("", None).enter(str(pdf)) as place:
        assert module._read_file(place, "notes.md") == "not a regular file"
        (pdf / "link").symlink_to(pdf / "SKILL.md")
        assert module._read_file(place, "link") == "a symlink"


@posix
def test_a_socket_and_a_device_are_left_out(pdf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pdf)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent.sock")
        assert read_folder(pdf).left_out == {"agent.sock": "not a regular file"}


def test_a_date_far_away_changes_nothing(pdf: Path) -> None:
    """attacks.json, fs-09."""
    before = read_folder(pdf)
    for year_seconds in (4_070_908_800, 0):
        os.utime(pdf / "SKILL.md", (year_seconds, year_seconds))
        assert read_folder(pdf).files == before.files
    seen = signature(pdf)
    assert seen is not None
    assert seen.newest <= time.time_ns()


def test_of_two_names_that_differ_only_by_case_one_is_left_out(pdf: Path) -> None:
    """attacks.json, fs-10."""
    put(pdf, "Notes.md")
    put(pdf, "notes.md")
    if len(os.listdir(pdf)) == 3:
        pytest.skip("this file system holds only one of them")
    reading = read_folder(pdf)
    assert reading.left_out == {"notes.md": "a case twin of Notes.md"}
    assert "Notes.md" in reading.files


@posix
@pytest.mark.parametrize("file", ["Docs", "Docs/a.txt", "Docs/deep/a.txt"])
def test_of_a_folder_that_differs_from_another_name_only_by_case_nothing_is_read(
    pdf: Path, file: str
) -> None:
    (pdf / "docs").mkdir()
    if (pdf / "DOCS").exists():
        pytest.skip("needs a file system that distinguishes case")
    (pdf / "docs/b.txt").write_bytes(b"x")
    (pdf / file).parent.mkdir(parents=True, exist_ok=True)
    (pdf / file).write_bytes(b"x")

    reading = read_folder(pdf)

    assert file in reading.files and reading.left_out == {"docs": "a case twin of Docs"}
    assert make_manifest(reading.files).tree


@posix
def test_an_empty_folder_keeps_no_other_out(pdf: Path) -> None:
    (pdf / "Docs").mkdir()
    (pdf / "docs").mkdir(exist_ok=True)
    (pdf / "docs/b.txt").write_bytes(b"x")
    assert {path.casefold() for path in read_folder(pdf).files} >= {"docs/b.txt"}


@pytest.mark.process
@posix
def test_a_file_that_grows_is_read_whole_or_left_out(pdf: Path) -> None:
    """attacks.json, fs-11."""
    put(pdf, "grow.log", b"")
    script = (
        "import sys\nwith open(sys.argv[1], 'ab', 0) as f:\n"
        " for n in range(10**5): f.write(b'%9d\\n' % n)"
    )
    with running(script, pdf / "grow.log"):
        poll(lambda: (pdf / "grow.log").stat().st_size, "the file to grow")
        for _ in range(50):
            reading = read_folder(pdf)
            grown = reading.files.get("grow.log")
            if grown is None:
                assert reading.left_out == {"grow.log": "it keeps changing"}
            else:
                size = len(grown.data)
                assert grown.data == b"".join(b"%9d\n" % n for n in range(size // 10 + 1))[:size]
                # A write that goes over the end of a page is two to whoever reads between them.
                assert size % 10 == 0 or size % mmap.PAGESIZE == 0
            assert reading.files["SKILL.md"] == File(b"# pdf\n")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that is never as long as it says")
def test_a_file_that_never_rests_is_left_out() -> None:
    """attacks.json, fs-11.

    The kernel makes the content of this one anew for each reader, and says it has 0 bytes.
    """
    with module._OpenFolder("", None).enter(f"/proc/{os.getpid()}") as place:
        assert module._read_file(place, "status") == "it keeps changing"


@contextlib.contextmanager
def running(script: str, *arguments: object) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def test_a_huge_file_is_left_out_unread(pdf: Path) -> None:
    """attacks.json, fs-13: 1 GB, sparse."""
    with open(pdf / "model.bin", "wb") as stream:
        stream.truncate(2**30)
    started = time.monotonic()
    ((name, why),) = read_folder(pdf).left_out.items()
    assert name == "model.bin" and why.startswith("too large")
    assert "1,073,741,824" in why and "5,242,880" in why
    assert time.monotonic() - started < 1


def test_what_an_editor_leaves_behind_is_ignored(pdf: Path) -> None:
    """attacks.json, fs-18."""
    before = read_folder(pdf)
    droppings = [
        ".SKILL.md.swp",
        "SKILL.md~",
        ".DS_Store",
        "4913",
        ".#SKILL.md",
        "#SKILL.md#",
        "SKILL.md.tmp.4711.17",
    ]
    for path in (
        *droppings,
        ".git/HEAD",
        "scripts/__pycache__/run.cpython-311.pyc",
        "node_modules/a/SKILL.md",
    ):
        put(pdf, path)
    after = read_folder(pdf)
    assert (after.files, after.left_out) == (before.files, {})


def test_an_atomic_save_changes_one_file(pdf: Path) -> None:
    """attacks.json, fs-18: write beside, rename over."""
    before = read_folder(pdf)
    os.replace(put(pdf, "SKILL.md.tmp", b"# new\n"), pdf / "SKILL.md")
    after = read_folder(pdf)
    assert after.files == {**before.files, "SKILL.md": File(b"# new\n")}
    assert after.signature != before.signature


def test_a_fingerprint_that_is_out_of_date_does_no_harm(pdf: Path) -> None:
    before = signature(pdf)
    put(pdf, "late.md", b"late\n")
    reading = read_folder(pdf, before)
    now = signature(pdf)
    assert now is not None and "late.md" in reading.files and reading.signature == now.digest


APPLYING = {"fs-04", "fs-09", "fs-10", "fs-11", "fs-13", "fs-18"}
ELSEWHERE = {"fs-15": "test_swap.py", "fs-17": "the working copy", "fs-19": "the working copy"}


def test_every_hostile_folder_of_the_list_has_its_test() -> None:
    assert {case["id"] for case in attacks("fs")} == APPLYING | set(ELSEWHERE)


@posix
def test_symlinks_are_never_followed(pdf: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret", "key.md", b"secret")
    (pdf / "key.md").symlink_to(secret)
    (pdf / "keys").symlink_to(secret.parent)
    (pdf / "loop").symlink_to(pdf)
    (pdf / "nowhere").symlink_to(tmp_path / "nothing")
    reading = read_folder(pdf)
    assert reading.left_out == dict.fromkeys(["key.md", "keys", "loop", "nowhere"], "a symlink")
    assert sorted(reading.files) == ["SKILL.md", "references/api.md"]


@posix
def test_a_folder_that_is_a_symlink_is_not_read(pdf: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(pdf)
    reading = read_folder(link)
    assert (reading.files, reading.left_out) == ({}, {".": "a symlink"})
    assert signature(link) != signature(pdf)
    assert tracked_paths(link) == untracked_paths(link) == []


@posix
def test_below_a_root_that_is_a_symlink_all_is_as_usual(pdf: Path, tmp_path: Path) -> None:
    link = tmp_path / "root"
    link.symlink_to(tmp_path)
    assert read_folder(link / "pdf") == read_folder(pdf)


@pytest.mark.process
@posix
def test_a_folder_exchanged_for_a_symlink_while_it_is_read_shows_nothing_else(
    pdf: Path, tmp_path: Path
) -> None:
    """The classic race: the path of a folder leads elsewhere between two looks."""
    put(tmp_path / "secret", "api.md", b"secret")
    put(tmp_path, "spare/api.md", b"api\n")
    script = (
        "import os, sys\npdf, spare, secret = sys.argv[1:]\nlink = spare + '.link'\n"
        "os.symlink(secret, link)\nwhile True:\n os.rename(pdf, spare + '.away'); os.rename(link, "
        "pdf)\n os.rename(pdf, link); os.rename(spare + '.away', pdf)\n"
    )
    with running(script, pdf / "references", tmp_path / "spare", tmp_path / "secret"):
        poll((tmp_path / "spare.link").is_symlink, "the race to begin")
        for _ in range(300):
            found = read_folder(pdf).files.get("references/api.md")
            assert found in (None, File(b"api\n"))


def test_a_name_that_no_resource_may_have_is_left_out(pdf: Path) -> None:
    for path in (
        "con.md",
        "a:b.md",
        "x" * 200 + "/" + "y" * 200,
        "e\u0301.md",
        "zero\u200bwidth.md",
        "Skill.md",
    ):
        with contextlib.suppress(OSError):
            put(pdf, path)
    reading = read_folder(pdf)
    assert sorted(reading.files) == ["SKILL.md", "references/api.md"]
    assert all(reason.startswith("a bad path: ") for reason in reading.left_out.values())
    if os.name == "posix":
        assert "con.md" in reading.left_out


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse the name")
def test_a_name_that_is_not_unicode_is_left_out_and_can_be_shown(pdf: Path) -> None:
    (pdf / os.fsdecode(b"caf\xe9")).mkdir()
    put(pdf, os.fsdecode(b"caf\xe9/menu.md"))
    put(pdf, os.fsdecode(b"\xff.md"))
    reading = read_folder(pdf)
    assert sorted(reading.left_out) == ["\\xff.md", "caf\\xe9"]
    assert all("not valid Unicode" in why for why in reading.left_out.values())
    assert untracked_paths(pdf) == [os.fsdecode(b"\xff.md"), os.fsdecode(b"caf\xe9")]
    assert sorted(reading.files) == ["SKILL.md", "references/api.md"]


def test_a_folder_too_deep_is_left_out_as_a_whole(pdf: Path) -> None:
    put(pdf, "/".join(["deep"] * (MAX_DEPTH + 20)))
    put(pdf, "/".join(["just"] * MAX_DEPTH))
    reading = read_folder(pdf)
    assert reading.left_out == {
        "/".join(["deep"] * MAX_DEPTH): f"a bad path: more than {MAX_DEPTH} components",
    }
    assert "/".join(["just"] * MAX_DEPTH) in reading.files


@not_root
def test_what_cannot_be_read_is_left_out(pdf: Path) -> None:
    put(pdf, "secret.md", mode=0)
    put(pdf, "closed/a.md")
    (pdf / "closed").chmod(0)
    try:
        reading = read_folder(pdf)
        assert untracked_paths(pdf) == ["secret.md", "closed"]
    finally:
        (pdf / "closed").chmod(0o755)
    assert reading.left_out == dict.fromkeys(
        ["secret.md", "closed"], "unreadable: Permission denied"
    )


@not_root
def test_a_folder_that_cannot_be_read_is_not_a_folder_that_is_gone(pdf: Path) -> None:
    pdf.chmod(0)
    try:
        assert read_folder(pdf).left_out == {".": "unreadable: Permission denied"}
        assert signature(pdf) is not None
    finally:
        pdf.chmod(0o755)


def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    put(tmp_path, "file")
    for gone in (tmp_path / "nothing", tmp_path / "file", tmp_path / "file" / "below"):
        assert signature(gone) is None
        assert tracked_paths(gone) == untracked_paths(gone) == []
        with pytest.raises(FileNotFoundError):
            read_folder(gone)


def test_files_beyond_the_number_allowed_are_left_out_and_documents_are_not(pdf: Path) -> None:
    for number in range(MAX_FILES):
        put(pdf, f"{number:04}.txt")
    reading = read_folder(pdf)
    assert len(reading.files) == MAX_FILES
    assert "SKILL.md" in reading.files
    assert reading.left_out["0499.txt"].startswith("too many files")
    assert " 500" in reading.left_out["0499.txt"]
    assert make_manifest(reading.files)


def test_files_beyond_the_size_allowed_are_left_out(pdf: Path) -> None:
    for number in range(4):
        put(pdf, f"{number}.bin", bytes(MAX_FILE))
    put(pdf, "small.txt")
    reading = read_folder(pdf)
    assert list(reading.left_out) == ["3.bin"]
    assert "too large together" in reading.left_out["3.bin"]
    assert f" {MAX_RESOURCE:,} bytes" in reading.left_out["3.bin"]
    assert "small.txt" in reading.files
    assert make_manifest(reading.files)


def test_reading_stops_where_there_is_no_end(pdf: Path) -> None:
    for number in range(MAX_SEEN + 10):
        (pdf / f"{number:04}").touch()
    put(pdf, "z/last.md")
    reading = read_folder(pdf)
    last = list(reading.left_out.values())[-1]
    assert last.startswith("too many entries") and f" {MAX_SEEN:,}" in last
    assert len(reading.left_out) == MAX_SEEN - MAX_FILES + 1
    assert set(tracked_paths(pdf)) == set(reading.files)
    assert len(tracked_paths(pdf)) + len(untracked_paths(pdf)) == MAX_SEEN + 10 + 3, (
        "api.md and last.md count as their folders"
    )


def test_a_change_of_anything_read_changes_the_signature(pdf: Path) -> None:
    def changes(what: str) -> None:
        nonlocal seen
        now = signature(pdf)
        assert now not in (None, seen), what
        seen = now

    seen = signature(pdf)
    put(pdf, "SKILL.md", b"# PDF\n")
    changes("content of the same size")
    (pdf / "SKILL.md").chmod(0o755)
    changes("mode")
    put(pdf, "new.md")
    changes("a new file")
    (pdf / "new.md").rename(pdf / "other.md")
    changes("a new name")
    (pdf / "other.md").unlink()
    changes("a file less")
    put(pdf, "references/more/deep.md")
    changes("a file deep below")
    assert seen is not None and seen.digest == read_folder(pdf).signature


def test_what_is_ignored_does_not_change_the_signature(pdf: Path) -> None:
    before = signature(pdf)
    put(pdf, ".SKILL.md.swp")
    put(pdf, ".venv/bin/python")
    assert signature(pdf) == before


def test_a_signature_of_a_moment_ago_is_not_trusted(pdf: Path) -> None:
    """git's racy index: a file can change twice within one tick of its clock."""
    seen = signature(pdf)
    assert seen is not None
    assert abs(seen.newest - time.time_ns()) < 60 * 10**9
    assert not seen.is_trusted(seen.newest + RACY_NS)
    assert seen.is_trusted(seen.newest + RACY_NS + 1)
    assert read_folder(pdf).newest == seen.newest


@pytest.mark.process
@pytest.mark.alone
def test_a_thousand_folders_are_signed_quickly(tmp_path: Path) -> None:
    """60 ms on the machine of the measurements (25 there); ten times that is a change of kind, not
    noise.
    """
    places = [tmp_path / f"skill-{number}" for number in range(1000)]
    for place in places:
        for path in ("SKILL.md", "LICENSE", "references/api.md"):
            put(place, path)
    durations = []
    for _ in range(3):
        started = time.perf_counter()
        assert all(signature(place) for place in places)
        durations.append(time.perf_counter() - started)
    assert min(durations) < 0.6


def test_untracked_names_the_outermost_of_everything_that_is_not_read(pdf: Path) -> None:
    for path in (
        ".venv/bin/python",
        ".git/HEAD",
        "references/.DS_Store",
        "scripts/__pycache__/a.pyc",
        "con/a.md",
    ):
        put(pdf, path)
    (pdf / "output").mkdir()
    with open(pdf / "model.bin", "wb") as stream:
        stream.truncate(2**30)
    expected = {
        ".venv",
        ".git",
        "references/.DS_Store",
        "scripts/__pycache__",
        "con",
        "output",
        "model.bin",
    }
    assert set(untracked_paths(pdf)) == expected
    assert set(tracked_paths(pdf)) == {"SKILL.md", "references/api.md"}


@pytest.mark.parametrize(
    "name", ["SKILL.md", "tmp.md", "git", "a.swp.md", "venv.md", "bak", "x.tmpl", "#1.md", "~a"]
)
def test_ordinary_names_are_not_ignored(name: str) -> None:
    assert not is_ignored(name)


@pytest.mark.parametrize("pattern", IGNORED)
def test_ignored_names_are_ignored_in_any_case(pattern: str) -> None:
    name = pattern.replace("*", "a")
    assert is_ignored(name) and is_ignored(name.upper()) and is_ignored(name.lower())


def test_what_a_person_may_miss_is_not_disposable() -> None:
    assert [
        name
        for name in (".git", "a~", "a.swp", "a.bak", "a.tmp", "model.bin")
        if is_disposable(name)
    ] == []
    assert is_disposable(".DS_Store") and is_disposable("__pycache__")


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
SHAPES = st.recursive(
    st.binary(max_size=30) | st.none(), lambda inner: st.dictionaries(NAMES, inner, max_size=4)
)


@pytest.mark.process
@posix
@given(st.dictionaries(NAMES, SHAPES, max_size=5))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_whatever_lies_in_a_folder_what_is_read_makes_a_manifest(
    tmp_path_factory: pytest.TempPathFactory, shape: dict[str, object]
) -> None:
    place = tmp_path_factory.mktemp("any")
    build(place, shape)
    reading = read_folder(place)
    assert make_manifest(reading.files).tree
    assert set(reading.files) == set(tracked_paths(place))
    seen = signature(place)
    assert seen is not None and seen.digest == reading.signature
    for path, file in reading.files.items():
        assert (place / path).read_bytes() == file.data
    lost = [
        p
        for p in files_of(place)
        if p not in reading.files and not covered(p, untracked_paths(place))
    ]
    assert lost == []


def build(place: Path, shape: object) -> None:
    if isinstance(shape, dict):
        place.mkdir(exist_ok=True)
        for name, inner in shape.items():
            with contextlib.suppress(OSError):
                build(place / name, inner)
    elif isinstance(shape, bytes):
        place.write_bytes(shape)
    else:
        place.symlink_to("elsewhere")


def files_of(place: Path) -> list[str]:
    return [
        f"{root}/{name}"[len(str(place)) + 1 :]
        for root, _, names in os.walk(place)
        for name in names
    ]


def covered(path: str, outermost: list[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in outermost)


@posix
def test_without_directory_descriptors_the_reading_is_the_same(
    pdf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    for path in (".venv/bin/python", "references/.DS_Store", "con/a.md", "scripts/run.py"):
        put(pdf, path)
    (pdf / "link").symlink_to(pdf)
    expected = read_folder(pdf), tracked_paths(pdf), untracked_paths(pdf)
    monkeypatch.setattr(module, "_POSIX", False)
    reading, *rest = read_folder(pdf), tracked_paths(pdf), untracked_paths(pdf)
    assert (reading.files, reading.left_out, *rest) == (
        expected[0].files,
        expected[0].left_out,
        *expected[1:],
    )


@pytest.mark.process
@posix
def test_no_descriptor_stays_open(pdf: Path) -> None:
    descriptors = Path("/dev/fd")
    for number in range(MAX_SEEN + 10):
        (pdf / "references" / f"{number}").touch()
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        read_folder(pdf)
        untracked_paths(pdf)
    assert len(list(descriptors.iterdir())) == before
