import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evolvable_store.merge import MergeResult, Overlap, merge_files, merge_text
from evolvable_store.objects import EXECUTABLE, PLAIN, File, make_manifest

TEXTS = st.lists(st.sampled_from(["", "a", "b", "- item", "text", "tail\r"]), max_size=12).map(
    "\n".join
)
PATHS = st.sampled_from(["SKILL.md", "a", "a/b", "A", "x.bin", "references/one.md"])
FILES = st.dictionaries(
    PATHS, st.builds(File, TEXTS.map(str.encode), st.sampled_from([PLAIN, EXECUTABLE])), max_size=4
)


def numbered(*numbers: int) -> str:
    return "".join(f"line {number}\n" for number in numbers)


@pytest.mark.process
@given(TEXTS, TEXTS)
def test_a_side_that_changed_nothing_adds_nothing(base: str, changed: str) -> None:
    assert merge_text(base, changed, base) == changed
    assert merge_text(base, base, changed) == changed
    assert merge_text(base, changed, changed) == changed


@pytest.mark.process
@given(TEXTS, TEXTS, TEXTS)
def test_the_sides_can_be_exchanged(base: str, ours: str, theirs: str) -> None:
    assert merge_text(base, ours, theirs) == merge_text(base, theirs, ours)


@given(st.integers(0, 17), st.integers(20, 39), TEXTS, TEXTS)
def test_edits_far_apart_both_survive(first: int, second: int, one: str, other: str) -> None:
    base = [f"line {number}\n" for number in range(40)]
    ours, theirs, both = list(base), list(base), list(base)
    ours[first] = both[first] = f"one {one}\n"
    theirs[second] = both[second] = f"other {other}\n"
    assert merge_text("".join(base), "".join(ours), "".join(theirs)) == "".join(both)


def test_different_edits_of_one_line_overlap() -> None:
    assert merge_text("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n") is None


def test_edits_of_neighbouring_lines_overlap_as_in_git() -> None:
    assert merge_text("a\nb\nc\n", "A\nb\nc\n", "a\nB\nc\n") is None


def test_edits_with_one_line_between_do_not_overlap() -> None:
    assert merge_text("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n") == "A\nb\nC\n"


def test_a_change_among_equal_lines_stands_as_far_down_as_it_can() -> None:
    """As in git: so both sides mean the same place when one blank line of several is taken away."""
    base = "h\na\n\n\nb\n"
    assert merge_text(base, "H\na\n\nb\n", "h\na\n\n\nX\nb\n") is None
    assert merge_text(base, "H\na\n\nb\n", "h\na\nX\n\n\nb\n") == "H\na\nX\n\nb\n"


def test_two_different_lines_added_at_one_place_overlap() -> None:
    assert merge_text("a\n", "a\nours\n", "a\ntheirs\n") is None


def test_an_equal_change_on_both_sides_counts_once() -> None:
    base = numbered(*range(9))
    ours = "new\n" + numbered(*range(1, 8), 88)
    theirs = "new\n" + numbered(1, 2, 33, *range(4, 9))
    assert merge_text(base, ours, theirs) == "new\n" + numbered(1, 2, 33, 4, 5, 6, 7, 88)


def test_a_line_without_its_end_is_not_glued_to_another() -> None:
    assert merge_text("a\nb", "a\nb\nours", "a\nb\ntheirs") is None
    assert merge_text("a\nb\nc\nd", "A\nb\nc\nd", "a\nb\nc\nd\n") == "A\nb\nc\nd\n"


def test_only_line_feeds_end_a_line() -> None:
    assert merge_text("a\u2028b\nc\nd\n", "a\u2028B\nc\nd\n", "A\u2028b\nc\nd\n") is None
    assert merge_text("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n") == "A\r\nb\r\nC\r\n"


@pytest.mark.process
def test_a_huge_text_is_merged_in_bounded_time() -> None:
    """A stretch of changes too long to compare counts as one change; edits outside of it still
    merge.
    """
    base = numbered(*range(100_000))
    ours = "".join(
        f"line {n if n % 2 else -n}\n" if 10 < n < 90_000 else f"line {n}\n" for n in range(100_000)
    )
    theirs = base.replace("line 99999\n", "line 99999, edited\n")
    assert merge_text(base, ours, theirs) == ours.replace("line 99999\n", "line 99999, edited\n")
    assert merge_text(base, ours, base.replace("line 500\n", "line 500, edited\n")) is None


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("paragraphs", [5, 25])
def test_documents_merge_as_git_merges_them(tmp_path: Path, paragraphs: int) -> None:
    """Where git finds no conflict, the result is git's, or None: stricter is allowed, another text
    never.

    Stricter happens rarely, when equal lines let git's diff choose another alignment.
    """
    rng = random.Random(paragraphs)
    agreed = 0
    for _ in range(60):
        base = document(rng, paragraphs)
        texts = ["".join(lines) for lines in (base, edited(rng, base), edited(rng, base))]
        ours, theirs = merge_text(*texts), git_merge(tmp_path, *texts)
        assert theirs is None or ours in (None, theirs)
        agreed += ours == theirs
    assert agreed >= 59


def document(rng: random.Random, paragraphs: int) -> list[str]:
    lines = []
    for _ in range(paragraphs):
        kind = rng.choice(["heading", "code", "list", "text"])
        number = rng.randrange(10**6)
        if kind == "code":
            lines += ["```\n", f"run {number}\n", "```\n"]
        elif kind == "list":
            lines += [f"- item {number + n}\n" for n in range(rng.randint(2, 5))]
        else:
            lines.append(f"## {number}\n" if kind == "heading" else f"text {number}\n")
        lines.append("\n")
    return lines


def edited(rng: random.Random, lines: list[str]) -> list[str]:
    lines = list(lines)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(lines) or 1)
        kind = rng.choice(["change", "paragraph", "line", "delete"])
        if kind == "change":
            lines[place : place + 1] = [f"edited {rng.randrange(10**6)}\n"]
        elif kind == "delete":
            del lines[place : place + rng.randint(1, 4)]
        else:
            lines[place:place] = (
                document(rng, 1) if kind == "paragraph" else [f"one {rng.randrange(10**6)}\n"]
            )
    return lines


def git_merge(folder: Path, base: str, ours: str, theirs: str, *options: str) -> str | None:
    for name, text in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(text.encode("utf-8"))
    command = ["git", "merge-file", "-p", "-q", *options, "ours", "base", "theirs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=20, check=False)
    return done.stdout.decode("utf-8") if done.returncode == 0 else None


def text(content: str, mode: int = PLAIN) -> File:
    return File(content.encode("utf-8"), mode)


BASE = {"SKILL.md": text("a\nb\nc\n"), "run.sh": text("echo\n")}


def test_different_files_changed_by_different_sides_merge() -> None:
    ours = {**BASE, "SKILL.md": text("A\nb\nc\n"), "new.md": text("new")}
    theirs = {"SKILL.md": BASE["SKILL.md"]}
    assert merge_files(BASE, ours, theirs) == MergeResult(
        {"SKILL.md": text("A\nb\nc\n"), "new.md": text("new")}, ()
    )


def test_one_file_changed_by_both_sides_is_merged_by_lines() -> None:
    ours, theirs = {**BASE, "SKILL.md": text("A\nb\nc\n")}, {**BASE, "SKILL.md": text("a\nb\nC\n")}
    assert merge_files(BASE, ours, theirs) == MergeResult(
        {**BASE, "SKILL.md": text("A\nb\nC\n")}, ()
    )


def test_in_a_conflict_the_persons_lines_stay_and_both_sides_are_named() -> None:
    ours, theirs = {**BASE, "SKILL.md": text("X\n")}, {**BASE, "SKILL.md": text("Y\n")}
    overlap = Overlap("SKILL.md", 1, "X\n", 1, "Y\n")
    assert merge_files(BASE, ours, theirs) == MergeResult(theirs, ("SKILL.md",), (overlap,))


def test_one_overlapping_line_drops_nothing_else_of_either_side() -> None:
    base = {"SKILL.md": text(numbered(*range(1, 41)))}
    library = (
        numbered(*range(1, 41))
        .replace("line 3\n", "new\nline 3, library\n")
        .replace("line 20\n", "LIBRARY\n")
    )
    disk = (
        numbered(*range(1, 41))
        .replace("line 20\n", "DISK\n")
        .replace("line 30\n", "")
        .replace("40", "40, disk")
    )
    merged = merge_files(base, {"SKILL.md": text(library)}, {"SKILL.md": text(disk)})
    assert merged.files["SKILL.md"] == text(disk.replace("line 3\n", "new\nline 3, library\n"))
    assert merged.conflicts == ("SKILL.md",)
    assert merged.overlaps == (Overlap("SKILL.md", 21, "LIBRARY\n", 20, "DISK\n"),)


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("paragraphs", [5, 25])
def test_overlapping_documents_resolve_as_git_does_with_one_side(
    tmp_path: Path, paragraphs: int
) -> None:
    """Where git and we see the same overlaps, the text is git's.

    Our stricter alignment may drop more of a place.
    """
    rng = random.Random(paragraphs + 1)
    agreed = overlapping = 0
    for _ in range(60):
        base = document(rng, paragraphs)
        texts = ["".join(lines) for lines in (base, edited(rng, base), edited(rng, base))]
        sides = [{"SKILL.md": text(one)} for one in texts]
        merged = merge_files(*sides)
        overlapping += bool(merged.conflicts)
        mine = merged.files["SKILL.md"].data.decode()
        agreed += mine == git_merge(tmp_path, texts[0], texts[2], texts[1], "--ours")
        assert all(one.theirs in mine for one in merged.overlaps)
    assert agreed >= 58 and overlapping >= 5


@pytest.mark.process
@given(TEXTS, TEXTS, TEXTS)
def test_both_sides_of_an_overlap_stand_where_it_says(base: str, ours: str, theirs: str) -> None:
    merged = merge_files(*({"SKILL.md": text(one)} for one in (base, ours, theirs)))
    assert bool(merged.conflicts) == (merge_text(base, ours, theirs) is None)
    for one in merged.overlaps:
        for line, there, side in (
            (one.ours_line, one.ours, ours),
            (one.theirs_line, one.theirs, theirs),
        ):
            assert "".join(side.splitlines(keepends=True)[line - 1 :]).startswith(there)
        assert one.theirs in merged.files["SKILL.md"].data.decode()


def test_a_binary_file_changed_by_both_sides_is_a_conflict() -> None:
    base, ours, theirs = (
        {"x": File(b"1\n\0\n\n" + tail)} for tail in (b"a\nb\nc", b"A\nb\nc", b"a\nb\nC")
    )
    assert merge_files(base, ours, theirs) == MergeResult(theirs, ("x",))
    base, ours, theirs = (
        {"x": File(b"\xff\n\n" + tail)} for tail in (b"a\nb\nc", b"A\nb\nc", b"a\nb\nC")
    )
    assert merge_files(base, ours, theirs) == MergeResult(theirs, ("x",))


def test_deleting_what_the_other_side_changed_is_a_conflict() -> None:
    changed, deleted = {**BASE, "run.sh": text("echo 2\n")}, {"SKILL.md": BASE["SKILL.md"]}
    assert merge_files(BASE, changed, deleted) == MergeResult(deleted, ("run.sh",))
    assert merge_files(BASE, deleted, changed) == MergeResult(changed, ("run.sh",))


def test_modes_merge_apart_from_content() -> None:
    ours, theirs = (
        {**BASE, "run.sh": text("echo\n", EXECUTABLE)},
        {**BASE, "run.sh": text("echo 2\n")},
    )
    assert merge_files(BASE, ours, theirs) == MergeResult(
        {**BASE, "run.sh": text("echo 2\n", EXECUTABLE)}, ()
    )
    assert merge_files(BASE, theirs, ours) == MergeResult(
        {**BASE, "run.sh": text("echo 2\n", EXECUTABLE)}, ()
    )


def test_a_file_and_a_folder_of_one_name_are_a_conflict() -> None:
    ours, theirs = {**BASE, "notes": text("a file")}, {**BASE, "notes/a.md": text("in a folder")}
    assert merge_files(BASE, ours, theirs) == MergeResult(theirs, ("notes",))
    assert merge_files(BASE, theirs, ours) == MergeResult(ours, ("notes/a.md",))


def test_names_that_differ_only_by_case_are_a_conflict() -> None:
    ours, theirs = {**BASE, "README.md": text("ours")}, {**BASE, "readme.md": text("theirs")}
    assert merge_files(BASE, ours, theirs) == MergeResult(theirs, ("README.md",))


@pytest.mark.process
@given(FILES, FILES)
def test_files_of_a_side_that_changed_nothing_add_nothing(
    base: dict[str, File], changed: dict[str, File]
) -> None:
    assert merge_files(base, base, changed) == MergeResult(changed, ())
    assert merge_files(base, changed, changed) == MergeResult(changed, ())
    if possible(changed) and possible(base):
        assert merge_files(base, changed, base) == MergeResult(changed, ())


@pytest.mark.process
@given(FILES, FILES, FILES)
def test_a_merge_of_files_can_be_written_and_is_symmetric_when_clean(
    base: dict[str, File], ours: dict[str, File], theirs: dict[str, File]
) -> None:
    assume(possible(base) and possible(ours) and possible(theirs))
    merged = merge_files(base, ours, theirs)
    assert possible(merged.files)
    assert merged.conflicts or merge_files(base, theirs, ours) == merged
    # Of a text, theirs wins in the overlapping lines alone; ours stays elsewhere.
    for path in set(merged.conflicts) - {overlap.path for overlap in merged.overlaps}:
        kept, wanted = merged.files.get(path), theirs.get(path)
        assert (kept and kept.data) == (wanted and wanted.data)
    for overlap in merged.overlaps:
        assert overlap.theirs.encode() in merged.files[overlap.path].data


def test_of_a_text_theirs_wins_in_the_overlapping_lines_and_ours_stays_elsewhere() -> None:
    base, ours, theirs = (
        {"SKILL.md": File(data, 0o644)} for data in (b"a\n\n\n", b"\na", b"a\n\n")
    )
    merged = merge_files(base, ours, theirs)
    assert merged.files == {"SKILL.md": File(b"\n", 0o644)} and merged.conflicts == ("SKILL.md",)


def possible(files: dict[str, File]) -> bool:
    """Returns whether one folder can hold these names."""
    folded = [path.casefold() for path in files]
    if len(set(folded)) < len(folded) or any(f"{one}/b" in folded for one in folded):
        return False
    return bool(make_manifest(files)) or not files
