"""Skills as a zip: what goes out comes in again, and what is hostile stays out whole (attacks.json,
archive).
"""

import contextlib
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from samples import FROZEN, attacks
from soundness import assert_sound

from evolvable_store.bundle import zip_reader
from evolvable_store.bundle.folders import export_zip, import_zip
from evolvable_store.bundle.import_ import FolderImport, ImportCandidate, ImportReport
from evolvable_store.errors import (
    Invalid,
    InvalidArchive,
    InvalidArgument,
    InvalidPath,
    InvalidRef,
    TooLarge,
)
from evolvable_store.objects import EXECUTABLE, MAX_FILES, PLAIN, File, Files
from evolvable_store.operation import Actor
from evolvable_store.paths import is_ignored, path_problem
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

END = b"PK\5\6" + bytes(4)
MAIN = "---\nname: {}\ndescription: Does things.\n---\nDo it.\n"


def good(name: str = "pdf", **more: bytes) -> dict[str, File]:
    """Returns the files of a skill that every door takes; others by keyword (`notes` is
    notes.md).
    """
    return {
        "SKILL.md": File(MAIN.format(name).encode()),
        **{f"{n}.md": File(data) for n, data in more.items()},
    }


def put(store: Store, ref: str, files: Files) -> None:
    with store.transaction(Actor.HUMAN, "write") as tx:
        tx.put(Ref.parse(ref), files)


def packed(entries: Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return stream


def zipped(*names: str, **more: bytes) -> io.BytesIO:
    """Returns a zip of good skills, with further entries at its top by keyword."""
    skills = [(f"{name}/SKILL.md", MAIN.format(name).encode()) for name in names]
    return packed([*skills, *more.items()])


def entry(name: str, mode: int, system: int = 3) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.create_system = mode << 16, system
    return info


def patched(stream: io.BytesIO, old: bytes, new: bytes, count: int = -1) -> io.BytesIO:
    content = stream.getvalue()
    assert old in content
    return io.BytesIO(content.replace(old, new, count))


# There and back


def test_skills_go_out_and_come_in_again(store: Store, other: Store, tmp_path: Path) -> None:
    put(
        store,
        "pdf",
        {
            **good(),
            "scripts/run.sh": File(b"#!/bin/sh\n", EXECUTABLE),
            "a/b/c.bin": File(bytes(range(256))),
        },
    )
    put(store, "docx", good("docx"))
    put(store, "memory:m", {"MEMORY.md": File(b"not a skill")})
    refs = export_zip(store, tmp_path / "all.zip")
    assert [ref.name for ref in refs] == ["docx", "pdf"]
    result = import_zip(other, tmp_path / "all.zip")
    assert set(result.added) == set(refs)
    assert [other.files(head) for head in other.heads()] == [
        store.files(store.head(ref)) for ref in refs
    ]
    operation = other.operation(result.operation or 0)
    assert (operation.actor, operation.reason) == (Actor.IMPORT, "imported from all.zip")
    assert len(other.operations(10)) == 1, "all of an archive is one operation"
    assert_sound(other)


def renamed(stream: io.BytesIO, names: dict[str, str]) -> io.BytesIO:
    """Returns the zip with other names of the same length, which `zipfile` would write
    otherwise.
    """
    data = stream.getvalue()
    for name, other in names.items():
        data = data.replace(name.encode(), other.encode())
    return io.BytesIO(data)


@pytest.mark.parametrize(
    "stream",
    [
        renamed(
            packed([("pdf/SKILL.md", MAIN.format("pdf").encode())]),
            {"pdf/SKILL.md": "pdf\\SKILL.md"},
        ),
        packed([("./pdf/SKILL.md", MAIN.format("pdf").encode())]),
        packed([("./", b""), ("./pdf/", b""), ("./pdf/SKILL.md", MAIN.format("pdf").encode())]),
    ],
    ids=["backslashes", "dot", "dot and folders"],
)
def test_names_as_other_tools_write_them_are_taken(store: Store, stream: io.BytesIO) -> None:
    report = import_zip(store, stream)

    assert [str(ref) for ref in report.added] == ["skill:pdf"] and not report.refused


@pytest.mark.parametrize(
    "name",
    [
        "..\\pdf\\SKILL.md",
        "C:\\pdf\\SKILL.md",
        "\\pdf\\SKILL.md",
        "./../SKILL.md",
        ".\\..\\SKILL.md",
        "pdf/..\\x.md",
        "./",
    ],
)
def test_names_that_lead_out_are_refused_however_they_are_written(store: Store, name: str) -> None:
    plain = "x" * len(name)
    stream = renamed(packed([(plain, b"x")]), {plain: name})

    with pytest.raises(InvalidArchive):
        import_zip(store, stream)


def test_equal_content_gives_an_equal_zip(store: Store) -> None:
    put(store, "pdf", good())
    first, second = io.BytesIO(), io.BytesIO()
    export_zip(store, first)
    export_zip(store, second)
    assert first.getvalue() == second.getvalue()
    with zipfile.ZipFile(first) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["pdf/SKILL.md"]


def test_other_kinds_go_out_when_named_and_come_in_as_what_they_are(
    store: Store, other: Store
) -> None:
    put(store, "agent:acme/helper", {"AGENT.md": File(MAIN.format("helper").encode())})
    put(store, "pdf", good())
    stream = io.BytesIO()
    assert export_zip(store, stream, [Ref.parse("agent:acme/helper")]) == (
        Ref(Kind.AGENT, "helper", "acme"),
    )
    assert import_zip(other, stream, kind=Kind.AGENT, scope="team").added == [
        Ref(Kind.AGENT, "helper", "team")
    ]


def test_two_resources_cannot_share_a_folder(store: Store) -> None:
    put(store, "pdf", good())
    put(store, "acme/pdf", good())
    with pytest.raises(InvalidArgument, match="would share one folder"):
        export_zip(store, io.BytesIO(), [Ref.parse("pdf"), Ref.parse("acme/pdf")])


def test_equal_content_makes_no_version(store: Store) -> None:
    assert import_zip(store, zipped("pdf", "docx")).operation == 1
    result = import_zip(store, zipped("pdf", "docx"), replace=True)
    assert result == ImportReport(
        None, unchanged=[Ref.parse("skill:user/pdf"), Ref.parse("skill:user/docx")]
    )
    assert store.sequence() == 2


def test_what_is_here_is_replaced_only_when_told(store: Store) -> None:
    put(store, "pdf", good(notes=b"mine"))
    result = import_zip(store, zipped("pdf", "docx"))
    assert (result.added, result.updated) == ([Ref.parse("skill:user/docx")], [])
    ((name, (why,)),) = result.refused
    assert name == "pdf" and "version 1" in why and "replaced" in why
    assert store.head(Ref.parse("pdf")).version == 1
    assert import_zip(store, zipped("pdf", "docx"), replace=True).updated == [
        Ref.parse("skill:user/pdf")
    ]
    assert store.files(store.head(Ref.parse("pdf"))) == good()


def test_what_is_frozen_here_stays(store: Store) -> None:
    put(store, "pdf", {"SKILL.md": File(FROZEN.encode())})
    result = import_zip(store, zipped("pdf", "docx"), replace=True)
    assert "it is frozen here" in result.refused[0][1][0]
    assert [ref.name for ref in result.added] == ["docx"]


def test_what_was_removed_comes_back(store: Store) -> None:
    import_zip(store, zipped("pdf"))
    with store.transaction(Actor.HUMAN, "remove") as tx:
        tx.remove(Ref.parse("pdf"))
    assert import_zip(store, zipped("pdf")).added == [Ref.parse("skill:user/pdf")]
    assert store.head(Ref.parse("pdf")).version == 1


def test_somebody_who_changes_it_meanwhile_is_not_overwritten(store: Store) -> None:
    """What was looked at is looked at once more, and refused then."""
    looks = []

    def read() -> Iterator[ImportCandidate]:
        yield ImportCandidate("pdf", good())
        looks.append(1)
        if len(looks) == 1:
            put(store, "pdf", good(notes=b"mine"))

    result = FolderImport(store, Kind.SKILL, "user", "import").run(read)
    assert "other content" in result.refused[0][1][0]
    assert len(looks) == 2
    assert store.files(store.head(Ref.parse("pdf"))) == good(notes=b"mine")


def test_folders_are_found_at_any_depth_and_the_rest_is_left_out(store: Store) -> None:
    """As a code host packs a repository, and as macOS packs a folder."""
    main = MAIN.format("pdf").encode()
    stream = packed(
        [
            ("repo-main/", b""),
            ("repo-main/README.md", b"read me"),
            ("repo-main/skills/pdf/", b""),
            ("repo-main/skills/pdf/SKILL.md", main),
            ("repo-main/skills/pdf/examples/other/SKILL.md", main),
            ("repo-main/skills/pdf/.DS_Store", b"x"),
            ("repo-main/skills/pdf/.git/config", b"x"),
            ("__MACOSX/repo-main/skills/pdf/._SKILL.md", b"x"),
        ]
    )
    assert import_zip(store, stream).added == [Ref.parse("skill:user/pdf")]
    assert sorted(store.files(store.head(Ref.parse("pdf")))) == [
        "SKILL.md",
        "examples/other/SKILL.md",
    ]


def test_bare_files_take_the_name_that_they_give_themselves(store: Store) -> None:
    assert import_zip(
        store, packed([("SKILL.md", MAIN.format("pdf").encode()), ("a/b.md", b"b")])
    ).added
    assert sorted(store.files(store.head(Ref.parse("pdf")))) == ["SKILL.md", "a/b.md"]
    assert import_zip(store, packed([("SKILL.md", b"no name")])).refused[0][0] == "the archive"


def test_a_name_in_utf8_is_read_whether_it_says_so_or_not(store: Store) -> None:
    """macOS writes names in UTF-8, taken apart, without the flag."""
    stream = zipped("pdf", **{"pdf/grün.md": b"x", "pdf/u\u0308ber.md": b"y"})
    content = bytearray(stream.getvalue())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = -1
        while (at := content.find(mark, at + 1)) >= 0:
            content[at + offset + 1] &= ~0x08
    assert import_zip(store, io.BytesIO(content)).added
    assert sorted(store.files(store.head(Ref.parse("pdf")))) == [
        "SKILL.md",
        "grün.md",
        "\u00fcber.md",
    ]


def test_what_breaks_a_rule_is_reported_and_the_others_go_on(store: Store) -> None:
    """What breaks the specification comes in, as from a person's own folder; what is hostile or
    unclear does not.
    """
    stream = packed(
        [
            ("good/SKILL.md", MAIN.format("good").encode()),
            ("bare/SKILL.md", b"no frontmatter"),
            ("Bad Name/SKILL.md", MAIN.format("Bad Name").encode()),
            ("lower/skill.md", MAIN.format("lower").encode()),
            (
                "hostile/SKILL.md",
                b"---\nname: hostile\ndescription: !!python/name:os.system\n---\n",
            ),
            ("a/good/SKILL.md", MAIN.format("good").encode()),
        ]
    )
    result = import_zip(store, stream)
    assert [ref.name for ref in result.added] == ["good", "bare", "bad-name", "lower"]
    reasons = dict(result.refused)
    assert list(reasons) == ["hostile", "good"]
    assert "has a tag" in reasons["hostile"][0]
    (why,) = reasons["good"]
    assert "same name" in why


def test_a_resource_over_its_limits_is_refused_unread(store: Store) -> None:
    many = {f"many/{number}.md": b"x" for number in range(MAX_FILES)}
    large = {f"large/{number}": bytes(4_000_000) for number in range(5)}
    stream = zipped("many", "large", "good", **many, **large)
    result = import_zip(store, padded(stream))
    reasons = dict(result.refused)
    assert set(reasons) == {"many", "large"}
    assert all("the limits are 500 and 16,777,216" in why for (why,) in reasons.values())
    assert [ref.name for ref in result.added] == ["good"]


def padded(stream: io.BytesIO) -> io.BytesIO:
    """Returns the zip with so much that does not pack well that it unpacks to few times
    its size.
    """
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("padding", bytes(400_000))
    return stream


def test_a_scope_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRef):
        import_zip(store, zipped("pdf"), scope="../x")


def test_an_archive_without_a_skill_says_so(store: Store) -> None:
    with pytest.raises(InvalidArchive, match=r"no folder with SKILL\.md"):
        import_zip(store, zipped(readme=b"x"))
    with pytest.raises(InvalidArchive, match="cannot be read"):
        import_zip(store, Path("/nowhere/at.zip"))


names = st.text(st.sampled_from("abcXYZ09._- éß\u0660日"), min_size=1, max_size=12).filter(
    lambda name: not path_problem(name) and not is_ignored(name)
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.builds(File, st.binary(max_size=200), st.sampled_from([PLAIN, EXECUTABLE]))


@pytest.mark.process
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=st.dictionaries(paths, contents, max_size=8))
def test_any_files_come_back_as_they_were(
    store: Store, other: Store, files: dict[str, File]
) -> None:
    name = f"any-{store.sequence()}"
    try:
        put(store, name, {**files, **good(name)})
    except InvalidPath:  # names that differ by case, or one that is a file and a folder
        reject()
    stream = io.BytesIO()
    export_zip(store, stream, [Ref.parse(name)])
    assert import_zip(other, stream).added
    assert other.head(Ref.parse(name)).tree == store.head(Ref.parse(name)).tree


# What is hostile


def overlapping() -> io.BytesIO:
    """Returns a zip with two entries of the directory that are one place in the file."""
    stream = zipped("pdf", x=b"1" * 50, y=b"1" * 50)
    with zipfile.ZipFile(stream) as archive:
        first, second = (struct.pack("<L", archive.getinfo(name).header_offset) for name in "xy")
    return patched(stream, second + b"y", first + b"y")


def many(count: int) -> io.BytesIO:
    """Returns a zip of as many empty entries, whatever its end can say of their number."""
    stream, directory = io.BytesIO(), []
    for number in range(count):
        name = b"x%d" % number
        start = struct.pack("<5H2L", len(name), 0, 0, 0, 0, 0, stream.tell())
        directory.append(b"PK\1\2" + bytes(24) + start + name)
        stream.write(b"PK\3\4" + bytes(22) + struct.pack("<2H", len(name), 0) + name)
    at = stream.tell()
    stream.writelines(directory)
    counts = struct.pack("<2H", count % 2**16, count % 2**16)
    stream.write(b"PK\5\6" + bytes(4) + counts + struct.pack("<2LH", stream.tell() - at, at, 0))
    return stream


def lying() -> io.BytesIO:
    """Returns a zip with an entry that says it has 10 bytes and unpacks to 100,000,000."""
    data = bytes(100_000_000)
    stream = packed([("pdf/SKILL.md", MAIN.format("pdf").encode()), ("pdf/lie", data)])
    return patched(stream, struct.pack("<L", len(data)), struct.pack("<L", 10))


def tar(name: str) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type = tarfile.CHRTYPE
        archive.addfile(info)
    return stream


def attack(case: dict[str, Any]) -> io.BytesIO:
    """Returns the archive that a case of attacks.json describes, with a good skill beside what is
    hostile.
    """
    spec, name = case["spec"], case["entry"]
    if case["format"] == "tar":
        return tar(name)
    if "symlink" in spec:
        link = entry(f"pdf/{name}", stat.S_IFLNK | 0o777)
        then = [(f"pdf/{spec['then']}", b"x")] if "then" in spec else []
        main = [("pdf/SKILL.md", MAIN.format("pdf").encode())]
        return packed([*main, (link, spec["symlink"].encode()), *then])
    if "dup" in spec:
        with pytest.warns(UserWarning, match="Duplicate name"):
            return packed([(f"pdf/{name}", MAIN.format("pdf").encode())] * spec["dup"])
    if "case_dup" in spec:
        return zipped("pdf", **{f"pdf/{spec['case_dup']}": b"x"})
    if "header_size" in spec:
        return lying()
    if "count" in spec:
        return many(spec["count"])
    if "encrypted" in spec:
        return patched(
            patched(zipped("pdf"), b"PK\3\4\x14\0\0", b"PK\3\4\x14\0\1"),
            b"\x14\x03\x14\0\0",
            b"\x14\x03\x14\0\1",
        )
    if "setuid" in spec:
        return packed(
            [
                ("pdf/SKILL.md", MAIN.format("pdf").encode()),
                (entry(f"pdf/{name}", 0o100000 | spec["setuid"]), b"x"),
            ]
        )
    if "truncated" in spec:
        return io.BytesIO(zipped("pdf").getvalue()[:-40])
    if "overlap" in spec:
        return overlapping()
    if "comment_len" in spec:
        stream = zipped("pdf")
        with zipfile.ZipFile(stream, "a") as archive:
            archive.comment = b"c" * spec["comment_len"]
        return stream
    if "\0" in name:
        return patched(
            zipped("pdf", **{f"pdf/{name.replace(chr(0), '@')}": b"x"}), b"na@me", b"na\0me"
        )
    return zipped("pdf", **{name: b"x"})


@pytest.mark.parametrize("case", attacks("archive"), ids=lambda case: case["id"])
def test_a_hostile_archive_is_refused_whole(store: Store, case: dict[str, Any]) -> None:
    stream = attack(case)
    if case["expect"] == "reject":
        with pytest.raises((InvalidArchive, TooLarge)) as raised:
            import_zip(store, stream)
        assert raised.value.hint
        assert store.sequence() == 0
    else:
        assert import_zip(store, stream).refused == []
        files = store.files(store.head(Ref.parse("pdf")))
        assert {file.mode for file in files.values()} <= {PLAIN, EXECUTABLE}
        assert ("x" in files) == (case["expect"] == "neutralise")


def test_a_tar_is_told_what_would_be_taken(store: Store) -> None:
    for stream in (
        tar("x"),
        io.BytesIO(b"\x1f\x8b" + bytes(50)),
        io.BytesIO(b"7z\xbc\xaf\x27\x1c" + bytes(50)),
    ):
        with pytest.raises(InvalidArchive) as raised:
            import_zip(store, stream)
        assert "Only zip archives are imported" in raised.value.hint


@pytest.mark.parametrize("case", attacks("path", "reject"), ids=lambda case: case["id"])
def test_a_hostile_path_inside_a_skill_is_refused(store: Store, case: dict[str, Any]) -> None:
    path = case["input"].replace("\0", "@")
    stream = zipped("pdf", **{f"pdf/{path}": b"x"})
    if path != case["input"]:
        stream = patched(stream, path.encode(), case["input"].encode())
    with contextlib.suppress(Invalid):
        assert import_zip(store, stream).refused
    assert store.sequence() == 0


def test_a_bomb_is_refused_before_it_unpacks(store: Store) -> None:
    with pytest.raises(TooLarge, match="times its size"):
        import_zip(store, zipped("pdf", bomb=bytes(60_000_000)))


def test_limits_hold_for_what_is_no_bomb(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = zipped("pdf", **{str(number): b"x" * 100 for number in range(20)})
    for limit, value in (("MAX_ARCHIVE", 500), ("MAX_TOTAL", 1000), ("MAX_ENTRIES", 20)):
        with monkeypatch.context() as changed, pytest.raises(TooLarge):
            changed.setattr(zip_reader, limit, value)
            import_zip(store, stream)
    assert import_zip(store, stream).added


HOSTILE: dict[str, tuple[Callable[[], io.BytesIO], str]] = {
    "something before it": (
        lambda: io.BytesIO(b"#!/bin/sh\n" + zipped("pdf").getvalue()),
        "before or behind",
    ),
    "something behind it": (
        lambda: io.BytesIO(zipped("pdf").getvalue() + b"more"),
        "something before or behind",
    ),
    "a second end in its comment": (
        lambda: commented(b"PK\5\6" + bytes(18)),
        "something before or behind",
    ),
    "a second disk": (lambda: patched(zipped("pdf"), b"PK\5\6\0", b"PK\5\6\1"), "several parts"),
    "another name in front": (
        lambda: patched(zipped("pdf"), b"SKILL.md", b"SKILL.me", 1),
        "described in two ways",
    ),
    "another method in front": (
        lambda: patched(zipped("pdf"), b"\4\x14\0\0\0\x08", b"\4\x14\0\0\0\0"),
        "two ways",
    ),
    "a block device": (lambda: with_entry(entry("x", stat.S_IFBLK)), "'x' is a link or a device"),
    "a link made on Windows": (
        lambda: with_entry(entry("x", stat.S_IFLNK, 0)),
        "'x' is a link or a device",
    ),
    "a reparse point": (lambda: with_entry(windows("x", 0x400)), "'x' is a link or a device"),
    "a folder with content": (lambda: zipped("pdf", **{"x/": b"x"}), "a folder and a file"),
    "a folder that is a file by its mode": (
        lambda: with_entry(entry("x", stat.S_IFDIR)),
        "a folder and a file",
    ),
    "a file that is a folder too": (
        lambda: zipped("pdf", **{"pdf/a": b"x", "pdf/A/b": b"x"}),
        "a folder and a file",
    ),
    "a method that few know": (lambda: method(zipfile.ZIP_BZIP2), "packed in a way"),
    "a wrong checksum": (
        lambda: patched(zipped("pdf"), crc("pdf"), b"\1\2\3\4"),
        "what the directory says",
    ),
    "a shorter size": (
        lambda: patched(zipped("pdf"), size("pdf"), struct.pack("<L", 5)),
        "what the directory says",
    ),
    "a longer size": (
        lambda: patched(zipped("pdf"), size("pdf"), struct.pack("<L", 500)),
        "what the directory says",
    ),
    "bytes behind a file": (
        lambda: handmade("pdf/SKILL.md", MAIN.format("pdf").encode(), b"more"),
        "is damaged",
    ),
    "damaged bytes": (lambda: damaged(zipped("pdf")), "is damaged"),
    "an end that counts none": (
        lambda: patched(zipped("pdf"), END + b"\1\0\1", END + bytes(3)),
        "other entries",
    ),
    "an end that counts twice": (
        lambda: patched(zipped("pdf"), END + b"\1", END + b"\2"),
        "directory is damaged",
    ),
    "an entry inside another": (lambda: quoted(), "its entries overlap"),
    "the format for huge archives": (lambda: huge(), "zip64"),
    "nothing": (lambda: io.BytesIO(), "it is no zip"),
    "text": (lambda: io.BytesIO(b"hello" * 100), "it is no zip"),
    "an empty zip": (lambda: packed([]), "it has no folder with"),
}


def with_entry(info: zipfile.ZipInfo) -> io.BytesIO:
    return packed([("pdf/SKILL.md", MAIN.format("pdf").encode()), (info, b"")])


def handmade(name: str, data: bytes, more: bytes) -> io.BytesIO:
    """Returns a zip with one file, behind whose packed bytes there are more."""
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = packing.compress(data) + packing.flush() + more
    both = struct.pack("<3L", zlib.crc32(data), len(body), len(data)) + struct.pack(
        "<2H", len(name), 0
    )
    local = b"PK\3\4" + struct.pack("<5H", 20, 0, 8, 0, 0) + both + name.encode()
    central = b"PK\1\2" + struct.pack("<6H", 20, 20, 0, 8, 0, 0) + both + bytes(14) + name.encode()
    end = END + struct.pack("<2H2LH", 1, 1, len(central), len(local + body), 0)
    return io.BytesIO(local + body + central + end)


def commented(comment: bytes) -> io.BytesIO:
    stream = zipped("pdf")
    with zipfile.ZipFile(stream, "a") as archive:
        archive.comment = comment
    return stream


def windows(name: str, attributes: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.create_system = attributes, 0
    return info


def method(number: int) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", number) as archive:
        archive.writestr("pdf/SKILL.md", MAIN.format("pdf"))
    return stream


def crc(name: str) -> bytes:
    return struct.pack("<L", zlib.crc32(MAIN.format(name).encode()))


def size(name: str) -> bytes:
    return struct.pack("<L", len(MAIN.format(name)))


def quoted() -> io.BytesIO:
    """Returns a zip with an entry whose header and bytes are the content of another."""
    inner = packed([(zipfile.ZipInfo("y"), b"1" * 50)]).getvalue()
    inside = inner[: inner.index(b"PK\1\2")]
    main = ("pdf/SKILL.md", MAIN.format("pdf").encode())
    stream = packed([main, (zipfile.ZipInfo("x"), inside), (zipfile.ZipInfo("y"), b"1" * 50)])
    with zipfile.ZipFile(stream) as archive:
        x, y = (archive.getinfo(name).header_offset for name in "xy")
    return patched(stream, struct.pack("<L", y) + b"y", struct.pack("<L", x + 31) + b"y")


def damaged(stream: io.BytesIO) -> io.BytesIO:
    content = bytearray(stream.getvalue())
    content[45] ^= 0xFF
    return io.BytesIO(content)


def huge() -> io.BytesIO:
    content = zipped("pdf").getvalue()
    end = content.rindex(b"PK\5\6")
    with_locator = content[:end] + b"PK\6\7" + bytes(16) + content[end:]
    length = struct.unpack_from("<L", content, end + 12)[0] + 20
    return io.BytesIO(
        with_locator[: end + 32] + struct.pack("<L", length) + with_locator[end + 36 :]
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_what_can_be_read_in_two_ways_is_not_read(store: Store, name: str) -> None:
    stream, why = HOSTILE[name]
    with pytest.raises(InvalidArchive, match=why):
        import_zip(store, stream())
    assert store.sequence() == 0


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.booleans())
def test_a_broken_byte_never_breaks_the_reader(
    store: Store, at: int, value: int, cut: bool
) -> None:
    """Whatever stands in it: the zip is taken, or refused with a reason."""
    content = bytearray(zipped("pdf", "docx", other=b"x").getvalue())
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] = value
    try:
        result = import_zip(store, io.BytesIO(content))
    except Invalid as error:
        assert error.hint
    else:
        assert len(result.added) + len(result.unchanged) + len(result.refused) >= 1
    for head in store.heads():
        assert store.files(head)
