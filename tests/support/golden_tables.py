"""Tables of commands as they were agreed on, in tests/data/terminal; EVOLVABLE_UPDATE_GOLDEN=1
writes them.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from command_line import CommandLine
from wcwidth import width as cell_len

GOLDEN = Path(__file__).parents[1] / "data/terminal"

OWN_LINES = ("[text of another", "description: ")
"""How lines of a shown document begin, which are as wide as they were written."""


def settled(text: str) -> str:
    """Return the text without what differs in each run: times, numbers of marks, and ids of runs
    and of the trash.
    """
    text = re.sub(r"\[(text of another )[0-9a-f]{16}", r"[\1mark", text)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "20261123-120000-abcd", text)
    text = re.sub(r"\d{8}T\d{6}-[0-9a-f]{8}", "20261123T120000-0a1b2c3d", text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-23 12:00", text)


def assert_as_agreed(
    machine: CommandLine, commands: Iterable[Sequence[str]], columns: int, name: str
) -> None:
    """Fail unless each command fits the screen and writes what the golden file has."""
    written = []
    for arguments in commands:
        shown = machine.on_screen(
            *arguments, columns=columns, code=4 if arguments[0] == "diff" else 0
        )
        wide = [line for line in shown.splitlines() if cell_len(line) > columns]
        assert [line for line in wide if not line.startswith(OWN_LINES)] == [], arguments
        written.append(f"$ evolvable {' '.join(arguments)}\n{settled(shown)}")
    golden, text = GOLDEN / f"{name}-{columns}.txt", "\n".join(written)
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")

    assert text == golden.read_text(encoding="utf-8")
