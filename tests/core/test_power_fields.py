"""The keys of a head that give power: which two files differ in, and heads that exchange them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolvable_store.power_fields import (
    WHOLE,
    different_powers,
    power_values,
    restore_powers,
    with_powers,
)

BASE = b"---\nname: csv\nallowed-tools: Read\ndescription: Works.\n---\n\nbody\n"


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("allowed-tools: Read\ndescription: Other.\n", []),
        ("description: Works.\nallowed-tools: 'Read'\n", []),
        ("allowed-tools: Read, Write\n", ["allowedtools"]),
        ("allowed_tools: Read\n", ["allowedtools"]),
        ("", ["allowedtools"]),
        ("allowed-tools: Read\nModel: opus\nHOOKS: {}\n", ["hooks", "model"]),
        ("allowed-tools: Read\nallowed-tools: Read\n", [WHOLE]),
        ("allowed-tools: !!set {Read}\n", [WHOLE]),
        ("description: a: b\ntools: Bash\n", [WHOLE]),
        ("description: a: b\n", ["allowedtools"]),
        ("allowed-tools: Read\ndescription: it says which tools to use\n", []),
    ],
)
def test_the_powers_that_two_files_differ_in_are_found_in_every_spelling(
    head: str, names: list[str]
) -> None:
    assert different_powers(f"---\nname: csv\n{head}---\n\nbody\n".encode(), BASE) == names


LINES = st.lists(
    st.sampled_from(
        (
            "name: csv",
            "description: Works.",
            "description: a: b",
            "allowed-tools: Bash",
            "'allowed-tools': [Read]",
            "allowed_tools:\n  - Bash",
            "? tools\n: Bash",
            "tools: >\n  Read\n\n  Bash",
            '"\\x6dodel": opus',
            "hooks:\n  Stop:\n    - command: x\n# a comment",
            "{tools: Bash}",
            "permissionMode: plan",
            "metadata:\n  tools: Bash",
            "# tools: Bash",
            "",
            "---",
        )
    ),
    max_size=7,
)


def document(lines: list[str], *, ending: str = "\n") -> bytes:
    return ending.join(["---", *lines, "---", "", "body", ""]).encode()


@given(now=LINES, base=LINES, ending=st.sampled_from(("\n", "\r\n")))
def test_a_file_with_the_powers_of_another_differs_from_it_in_none(
    now: list[str], base: list[str], ending: str
) -> None:
    first, second = document(now, ending=ending), document(base)
    names = different_powers(first, second)
    given = with_powers(first, second, names)
    assert not set(different_powers(given, second)) - {WHOLE}
    assert WHOLE not in power_values(given) or WHOLE in power_values(second)
    assert given.endswith(f"body{ending}".encode())
    assert restore_powers(given, given, first, names) == first
    changed = given.replace(b"body", b"more")
    assert restore_powers(changed, given, first, names) == first.replace(b"body", b"more")


def test_a_power_that_the_person_changed_is_the_persons_and_the_others_are_restored() -> None:
    now = b"---\nmodel: opus\nname: csv\nallowed-tools: Bash\ndescription: Works.\n---\n\nbody\n"
    given = with_powers(now, BASE, ["allowedtools", "model"])
    assert given == BASE.replace(b"---\nname", b"---\nname")
    edited = given.replace(b"Read", b"Write").replace(b"Works", b"Reads")
    restored = restore_powers(edited, given, now, ["allowedtools", "model"])
    assert power_values(restored) == {
        "model": (("model", '"opus"'),),
        "allowedtools": (("allowed-tools", '"Write"'),),
    }
    assert b"description: Reads." in restored
