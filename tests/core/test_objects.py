"""Files, manifests and versions: what identifies content, and what no resource may hold."""

import contextlib
import hashlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import attacks

from evolvable_store import objects
from evolvable_store.errors import InvalidPath, TooLarge
from evolvable_store.objects import (
    EXECUTABLE,
    MAX_FILE,
    MAX_FILES,
    MAX_RESOURCE,
    PLAIN,
    File,
    Manifest,
    TreeEntry,
    Version,
    blob_hash,
    chain_hash,
    make_manifest,
)

# No name of these letters is a device on Windows, such as con or lpt1.
PATHS = st.from_regex(r"[d-k][a-z0-9]{0,5}/[d-k][a-z0-9]{0,5}\.md", fullmatch=True)
FILES = st.dictionaries(
    PATHS, st.builds(File, st.binary(max_size=50), st.sampled_from([PLAIN, EXECUTABLE])), max_size=6
)


def test_a_blob_is_named_by_the_sha256_of_its_bytes() -> None:
    assert blob_hash(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_manifest_lists_hash_size_and_mode_of_every_file() -> None:
    manifest = make_manifest({"SKILL.md": File(b"abc"), "scripts/run.sh": File(b"", EXECUTABLE)})
    assert dict(manifest) == {
        "SKILL.md": TreeEntry(blob_hash(b"abc"), 3, PLAIN),
        "scripts/run.sh": TreeEntry(blob_hash(b""), 0, EXECUTABLE),
    }
    assert manifest.size == 3


def test_a_tree_is_the_sha256_of_sorted_lines() -> None:
    """The format is kept for ever: `mode sha256 size path`, one line each, sorted by path."""
    manifest = make_manifest({"b.md": File(b"B"), "a.md": File(b"A", EXECUTABLE)})
    text = f"755 {blob_hash(b'A')} 1 a.md\n644 {blob_hash(b'B')} 1 b.md\n"
    assert manifest.tree == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.process
@given(files=FILES)
def test_the_order_of_files_does_not_matter(files: dict[str, File]) -> None:
    backwards = dict(reversed(files.items()))
    assert make_manifest(files) == make_manifest(backwards)
    assert hash(make_manifest(files)) == hash(make_manifest(backwards))


@pytest.mark.process
@given(one=FILES, other=FILES)
def test_manifests_are_equal_exactly_when_the_files_are(
    one: dict[str, File], other: dict[str, File]
) -> None:
    assert (make_manifest(one) == make_manifest(other)) == (one == other)


@pytest.mark.process
@given(files=FILES)
def test_a_stored_manifest_is_read_back_the_same(files: dict[str, File]) -> None:
    manifest = make_manifest(files)
    again = Manifest.from_json(manifest.to_json())
    assert again == manifest
    assert dict(again) == dict(manifest)


def test_a_stored_manifest_is_plain_json() -> None:
    stored = make_manifest({"a.md": File(b"A")}).to_json()
    assert json.loads(stored) == {"a.md": [blob_hash(b"A"), 1, PLAIN]}


@pytest.mark.parametrize(
    ("mode", "kept"),
    [(0o600, PLAIN), (0o664, PLAIN), (0o100644, PLAIN), (0o700, EXECUTABLE), (0o4755, EXECUTABLE)],
)
def test_any_mode_is_brought_to_one_of_the_two(mode: int, kept: int) -> None:
    assert make_manifest({"a.sh": File(b"", mode)})["a.sh"].mode == kept


@pytest.mark.parametrize("case", attacks("path", "reject"), ids=lambda case: case["id"])
def test_a_hostile_path_is_refused(case: dict[str, Any]) -> None:
    """attacks.json, category path.

    A lone skill.md is what some people's skills have; beside SKILL.md it is hostile.
    """
    with pytest.raises(InvalidPath):
        make_manifest({"SKILL.md": File(b"x"), case["input"]: File(b"x")})


@pytest.mark.parametrize("case", attacks("path", "accept"), ids=lambda case: case["id"])
def test_an_honest_path_is_taken(case: dict[str, Any]) -> None:
    assert case["input"] in make_manifest({"SKILL.md": File(b"x"), case["input"]: File(b"x")})


@pytest.mark.parametrize(
    "paths",
    [
        ("a.md", "A.md"),
        ("docs/a.md", "Docs/b.md"),
        ("a", "a/b.md"),
        ("x/A", "x/a/b/c.md"),
        ("straße", "STRASSE"),
    ],
)
def test_files_that_some_disk_cannot_hold_side_by_side_are_refused(paths: tuple[str, ...]) -> None:
    for order in (paths, paths[::-1]):
        with pytest.raises(InvalidPath):
            make_manifest({path: File(b"") for path in order})


def test_a_file_may_have_five_mebibytes_and_no_more() -> None:
    make_manifest({"a": File(bytes(MAX_FILE))})
    with pytest.raises(TooLarge, match="5,242,881"):
        make_manifest({"a": File(bytes(MAX_FILE + 1))})


def test_a_resource_may_have_five_hundred_files_and_no_more() -> None:
    files = {f"f{number}": File(b"") for number in range(MAX_FILES)}
    make_manifest(files)
    with pytest.raises(TooLarge, match="501 files"):
        make_manifest({**files, "one-more": File(b"")})


def test_a_resource_may_have_sixteen_mebibytes_and_no_more() -> None:
    """SEP-2640's limit for serving a skill."""
    quarter = bytes(MAX_RESOURCE // 4)
    files = {name: File(quarter) for name in "abcd"}
    make_manifest(files)
    with pytest.raises(TooLarge, match="16,777,217"):
        make_manifest({**files, "e": File(b"!")})


def test_a_chain_hash_covers_parent_number_tree_and_operation() -> None:
    """The format is kept for ever; one part changed gives another hash."""
    text = "evolvable version 1\nparent\n2\ntree\noperation\n"
    assert chain_hash("parent", 2, "tree", "operation") == hashlib.sha256(text.encode()).hexdigest()
    others = {
        chain_hash("other", 2, "tree", "operation"),
        chain_hash("parent", 3, "tree", "operation"),
        chain_hash("parent", 2, "other", "operation"),
        chain_hash("parent", 2, "tree", "other"),
    }
    assert len(others) == 4


def test_the_parent_of_a_version_is_the_one_before() -> None:
    assert Version(3, "", "", 1).parent == 2
    assert Version(1, "", "", 1).parent is None


# Packing


@given(data=st.binary(max_size=3_000) | st.binary(max_size=20).map(lambda data: data * 500))
def test_what_was_packed_is_unpacked_by_us_and_by_zlib(data: bytes) -> None:
    packed, codec = objects.pack(data)
    assert objects.unpack(packed, codec) == data
    assert codec == "raw" and packed == data or zlib.decompress(packed) == data
    assert objects.unpack(zlib.compress(data), "zlib") == data


@pytest.mark.process
@settings(max_examples=300)
@given(
    data=st.binary(min_size=40, max_size=400),
    flipped=st.sets(st.integers(0, 60 * 8), min_size=1, max_size=4),
)
def test_packed_bytes_that_are_damaged_are_refused_or_what_they_were(
    data: bytes, flipped: set[int]
) -> None:
    packed = bytearray(objects.pack(data * 4)[0])
    for bit in flipped:
        packed[bit // 8 % len(packed)] ^= 1 << bit % 8
    with contextlib.suppress(zlib.error):
        assert objects.unpack(bytes(packed), "zlib") == data * 4
