"""What a person's own folder may hold goes out of a library by every form of export, and comes into
an empty one.
"""

import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from evolvable_store.bundle import (
    export_folders,
    export_json,
    export_zip,
    import_folders,
    import_json,
    import_zip,
)
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.store import Store
from evolvable_store.workingcopy.sync_plan import reasons_against
from evolvable_store.workingcopy.tree_reader import read_folder

MAIN = "---\nname: odd\ndescription: Does odd things.\n---\n\nDo it.\n"

ODD = {
    "a tag in the description": MAIN.replace("odd things", "`check <model>.json`"),
    "a description that is too long": MAIN.replace("odd things", "odd things " * 200),
    "no description": MAIN.replace("description: Does odd things.\n", ""),
    "no name": MAIN.replace("name: odd\n", ""),
    "another name": MAIN.replace("name: odd", "name: even"),
    "a name in capitals": MAIN.replace("name: odd", "name: Odd Skill"),
    "a name that is a number": MAIN.replace("name: odd", "name: 31"),
    "a key twice": MAIN.replace("name: odd\n", "name: odd\nname: odd\n"),
    "no frontmatter": "# Odd\n\nDo it.\n",
    "a frontmatter without an end": "---\nname: odd\ndescription: Does odd things.\n\nDo it.\n",
    "yaml that breaks": MAIN.replace("Does odd", "Use when: does odd"),
    "no body": "---\nname: odd\ndescription: Does odd things.\n---\n",
    "a byte order mark": "\ufeff" + MAIN,
    "line ends of Windows": MAIN.replace("\n", "\r\n"),
    "unknown keys": MAIN.replace("---\n\n", "color: red\nhooks: {a: b}\n---\n\n"),
    "a frozen one": MAIN.replace("---\n\n", 'metadata:\n  evolvable: "false"\n---\n\n'),
}

FORMS = ("zip", "json", "folders")


def write(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def carried(source: Store, target: Store, form: str, place: Path) -> None:
    """Export by one form and import it. Fails when anything is refused."""
    if form == "folders":
        export_folders(source, place / "out")
        done = import_folders(target, place / "out")
    else:
        stream = io.BytesIO()
        write_to, read = (export_zip, import_zip) if form == "zip" else (export_json, import_json)
        write_to(source, stream)
        stream.seek(0)
        done = read(target, stream)
    assert done.refused == []


def check_round_trips(place: Path, name: str, files: dict[str, bytes]) -> bool:
    """Return whether a person's folder is accepted; then it comes back from every form, byte for
    byte.
    """
    write(place / "own" / name, files)
    reading = read_folder(place / "own" / name)
    if reasons_against(Kind.SKILL, slugify(name), reading) or not slugify(name):
        return False
    with Store.open(place / "first", create=True) as source:
        with source.transaction(Actor.HUMAN, "imported") as tx:
            tx.put(ref := Ref(Kind.SKILL, slugify(name), "user"), reading.files)
        tree = source.head(ref).tree
        for form in FORMS:
            with Store.open(place / form, create=True) as target:
                carried(source, target, form, place)
                head = target.head(ref)
                assert head.tree == tree, form
                assert target.files(head) == reading.files, form
    return True


@pytest.mark.parametrize("what", ODD)
def test_a_skill_with_this_is_accepted_and_comes_back(tmp_path: Path, what: str) -> None:
    assert check_round_trips(tmp_path, "odd", {"SKILL.md": ODD[what].encode()})


def test_a_lower_case_skill_md_is_accepted_and_comes_back(tmp_path: Path) -> None:
    assert check_round_trips(tmp_path, "odd", {"skill.md": MAIN.encode()})


def test_files_that_compress_very_well_come_back(tmp_path: Path) -> None:
    """An archive that unpacks to more than a hundred times its size is refused as a bomb."""
    zeros = {f"data/{number}.bin": bytes(5_000_000) for number in range(3)}
    with Store.open(tmp_path / "first", create=True) as source:
        for name in ("odd", "even"):
            files = {
                path: File(data) for path, data in {"SKILL.md": MAIN.encode(), **zeros}.items()
            }
            with source.transaction(Actor.HUMAN, "imported") as tx:
                tx.put(Ref(Kind.SKILL, name, "user"), files)
        with Store.open(tmp_path / "second", create=True) as target:
            carried(source, target, "zip", tmp_path)
            assert [head.name for head in target.heads()] == ["even", "odd"]


@pytest.mark.parametrize("form", FORMS)
def test_an_import_says_how_far_it_came(tmp_path: Path, form: str) -> None:
    with (
        Store.open(tmp_path / "first", create=True) as source,
        Store.open(tmp_path / "second", create=True) as target,
    ):
        for name in ("odd", "even"):
            with source.transaction(Actor.HUMAN, "imported") as tx:
                tx.put(Ref(Kind.SKILL, name, "user"), {"SKILL.md": File(MAIN.encode())})
        seen: list[tuple[int, int]] = []
        if form == "folders":
            export_folders(source, tmp_path / "out")
            import_folders(
                target, tmp_path / "out", progress=lambda done, total: seen.append((done, total))
            )
        else:
            stream = io.BytesIO()
            write_to, read = (
                (export_zip, import_zip) if form == "zip" else (export_json, import_json)
            )
            write_to(source, stream)
            stream.seek(0)
            read(target, stream, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


YAML = st.text(alphabet=st.sampled_from(list("abc \n:-#\"'[]{}<>&*!|%@`é翻\t\r.~0")), max_size=60)
HEADS = st.one_of(
    YAML,
    st.lists(
        st.tuples(
            st.sampled_from(["name", "description", "license", "metadata", "allowed-tools", "x"]),
            YAML,
        ),
        max_size=6,
    ).map(lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs)),
)
MAINS = st.tuples(
    st.sampled_from(["", "\ufeff", "\n\n"]),
    HEADS,
    st.sampled_from(["\n---\n", "\n", "\r\n---\r\n"]),
    YAML,
)
NAMES = st.text(
    alphabet=st.sampled_from(list("aAbß é翻Ж-_. 1'()+&$#@,;=~")), min_size=1, max_size=12
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.mark.process
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    main=MAINS.map(lambda parts: f"{parts[0]}---\n{parts[1]}{parts[2]}{parts[3]}".encode()),
    name=NAMES,
    others=st.dictionaries(PATHS, st.binary(max_size=80), max_size=4),
)
@example(main=MAIN.encode(), name="Two Words", others={"a b/ünder.txt": b"\0"})
def test_every_odd_folder_that_is_accepted_comes_back_byte_for_byte(
    main: bytes, name: str, others: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        try:
            check_round_trips(Path(place), name.strip("/") or "x", {"SKILL.md": main, **others})
        except (FileExistsError, NotADirectoryError, IsADirectoryError, FileNotFoundError):
            return  # no file system holds these two paths
