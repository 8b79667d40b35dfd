"""Run and report the checks of a release: a line for each, the output of one that fails, a table
with the date.
"""

import datetime
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).with_name("results.md")

HEADER = """\
# What `release/check` found

`release/check --record` adds a row for each check that it runs, in place of the row of before.

| check | date | machine | result |
|---|---|---|---|
"""


class Failed(Exception):
    """A check did not hold. The text says what, where, and what to do."""


class NotHere(Exception):
    """A check cannot be run on this machine. The text says what it lacks."""


@dataclass
class Report:
    """The results of a run, in order: name, `ok`, `FAILED` or `not run`, and one line of detail.

    table: where each result is written down with the date, as soon as it is there; None: nowhere.
    """

    table: Path | None = None
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def check(self, name: str, run: Callable[[], str]) -> None:
        """Run one check, which returns a line of detail; print and keep its result."""
        began = time.monotonic()
        try:
            state, detail = "ok", run()
        except NotHere as lack:
            state, detail = "not run", str(lack)
        except Failed as failure:
            state, detail = "FAILED", str(failure)
        seconds = time.monotonic() - began
        first, _, rest = detail.partition("\n")
        self.rows.append((name, state, f"{first} ({seconds:.0f} s)"))
        if self.table is not None:
            self._record(self.table)
        print(
            f"{state:8}{name}: {first} ({seconds:.0f} s)",
            *([rest] if rest else []),
            sep="\n",
            flush=True,
        )

    @property
    def failed(self) -> bool:
        """Return whether one of them failed."""
        return any(state == "FAILED" for _, state, _ in self.rows)

    def _record(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8") if file.exists() else HEADER
        rows = {
            line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")
        }
        rows.pop("check", None)
        today, machine = (
            datetime.datetime.now(datetime.UTC).date(),
            f"{platform.system()} {platform.machine()}",
        )
        for name, state, detail in self.rows:
            rows[name] = f"| {name} | {today} | {machine} | {state}: {detail} |"
        file.write_text(HEADER + "".join(f"{row}\n" for row in rows.values()), encoding="utf-8")


def find_tool(name: str) -> str:
    """Return the path of a program. Raises NotHere without it."""
    found = shutil.which(name)
    if found is None:
        raise NotHere(
            f"there is no {name}; `pip install -r release/requirements.txt` brings the tools"
        )
    return found


def run(command: Sequence[str | os.PathLike[str]], seconds: float = 600, **options: object) -> str:
    """Run a command; return its output.

    Raises Failed with the output when it does not end with 0.
    """
    words = [os.fspath(word) for word in command]
    done = subprocess.run(  # type: ignore[call-overload]
        words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds, **options
    )
    if done.returncode:
        raise Failed(
            f"{Path(words[0]).name} {' '.join(words[1:4])} ended with {done.returncode}\n"
            f"{done.stdout}{done.stderr}"
        )
    return str(done.stdout) + str(done.stderr)
