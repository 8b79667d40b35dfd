"""A person's machine as an older version left it, moved below a folder of this test; see
tests/data/older/make.py.
"""

import json
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line import CommandLine

FOLDER = Path(__file__).parents[1] / "data/older"
COMMITS = {
    "fac0cda": "before the trust issue",
    "4329b64": "after the trust issue",
    "c20e95c6": "before the core and the annexes were packages of their own",
}


# Python 3.11.0 to 3.11.3 have no filters; the archives are our own.
_SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class OlderMachine(CommandLine):
    """The machine of one archive.

    said: what the older version answered, by the question's name. runs: the ids of the runs
    FINISHED and WAITING.
    """

    def __init__(self, root: Path, commit: str) -> None:
        with tarfile.open(FOLDER / f"{commit}.tar.xz") as archive:
            archive.extractall(root, **_SAFELY)
        self.root, self.user, self.home, self.project = (
            root,
            root / "user",
            root / "library",
            root / "project",
        )
        self.person = True
        made = json.loads((root / "answers.json").read_text(encoding="utf-8"))
        self.runs: Mapping[str, str] = made["runs"]
        self.said: Mapping[str, Any] = made["answers"]
        self._made_at = str(made["root"])
        self._move()

    def _move(self) -> None:
        """Let paths that are still used lie below this machine's folder."""
        named = [
            self.user / ".claude.json",
            self.user / ".codex/config.toml",
            self.project / ".mcp.json",
        ]
        for path in [*named, *self.home.glob("*copies.json*")]:
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(self._made_at, str(self.root)), encoding="utf-8")
        for library in (self.home, self.root / "backup"):
            db = sqlite3.connect(library / "library.db")
            db.execute(
                "UPDATE folder SET path = replace(path, ?, ?)", (self._made_at, str(self.root))
            )
            db.commit()
            db.close()

    def ask(self, words: Sequence[str]) -> Any:
        """Return what a command of QUESTIONS says now, with the paths that the machine was made
        with.
        """
        ran = self(*(self.runs.get(word, word) for word in words), "--json", code=None)
        out = ran.out.replace(str(self.root), self._made_at)
        return json.loads(out) if out.strip().startswith(("{", "[")) else out


def key_paths(value: Any, at: str = "") -> Iterator[str]:
    """Yield the path of every key in a JSON value; the items of a list share one path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{at}.{key}"
            yield from key_paths(item, f"{at}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from key_paths(item, f"{at}[]")
