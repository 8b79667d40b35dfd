"""The difference of two programs, by which a person decides: nothing that changed is
missing in it.
"""

import hashlib

import pytest

from evolvable_evolve.evolution.candidates.programs import (
    Program,
    diff_programs,
    make_part,
    make_program,
)
from evolvable_evolve.evolution.candidates.static_gate import review_change
from evolvable_store.resource import Kind


def holding(data: bytes | None) -> Program:
    files = {"SKILL.md": b"# Forms\n"} | ({} if data is None else {"run": data})
    return make_program([make_part(Kind.SKILL, "forms", files)])


def not_text(data: bytes) -> str:
    return f"[not text: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\0one", b"\0two"),
        (b"caf\xe9\n", b"caf\xe8\n"),
        (b"text\n", b"\0two"),
        (b"\0one", b"text\n"),
    ],
    ids=["nul", "latin-1", "from text", "to text"],
)
def test_a_change_of_a_file_that_is_not_text_is_shown_by_size_and_hash(
    before: bytes, after: bytes
) -> None:
    shown = review_change(holding(before), holding(after)).diff

    one, other = ("text" if data == b"text\n" else not_text(data) for data in (before, after))
    assert (
        shown == f"--- a/skill/forms/run\n+++ b/skill/forms/run\n@@ -1,1 +1,1 @@\n-{one}\n+{other}"
    )


def test_a_text_that_says_what_is_shown_of_another_file_does_not_hide_it() -> None:
    data = b"\0rm -r"

    shown = diff_programs(holding(not_text(data).encode() + b"\n"), holding(data))

    assert shown.splitlines()[-2:] == [f"-{not_text(data)}", f"+{not_text(data)}"]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (b"a\r\n", b"a\n", ["-a\r", "+a"]),
        (b"a\nb\n", b"a\x0bb\n", ["-a", "-b", "+a\x0bb"]),
        (b"a\nb\n", "a\u2028b\n".encode(), ["-a", "-b", "+a\u2028b"]),
        (b"a\n", b"a", ["-a", "+a", "\\ No newline at end of file"]),
    ],
    ids=["crlf", "vertical tab", "line separator", "last line end"],
)
def test_a_change_of_line_ends_alone_is_shown(
    before: bytes, after: bytes, lines: list[str]
) -> None:
    """They decide whether a script runs, and what of it is a comment."""
    assert diff_programs(holding(before), holding(after)).split("\n")[3:] == lines


def test_an_empty_file_that_comes_or_goes_is_named() -> None:
    assert diff_programs(holding(None), holding(b"")) == "--- /dev/null\n+++ b/skill/forms/run"
    assert diff_programs(holding(b""), holding(None)) == "--- a/skill/forms/run\n+++ /dev/null"
