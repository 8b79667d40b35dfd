"""Run the commands of the tutorial on a terminal, and draw what they print.

    python docs/make_pictures.py            run every command of docs/tutorial.md, write
                                            docs/pictures/*.svg and a recording of all of them,
                                            docs/pictures/recording.svg
    python docs/make_pictures.py --check    run them and write nothing; exit code 1 when one fails

The commands are the lines of the blocks marked `console`; a line with `> ` continues the one
before. A block that an image follows (`![...](pictures/NAME.svg)`) is drawn. All commands share one
fresh home folder and run in order after `evolvable setup`, as a person at a terminal of 98 columns.
Needs a POSIX system.
"""

import argparse
import fcntl
import io
import os
import pty
import re
import secrets
import shutil
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "docs/tutorial.md"
PICTURES = ROOT / "docs/pictures"
WIDTH = 98
HOME = "/home/ada"
"""The home folder in the pictures; as long as the real one, so that tables keep their layout."""

TYPED_SECONDS, SHOWN_SECONDS = 1.5, 5.0
"""How long the recording shows the commands of a block, and then what they printed."""

_BLOCK = re.compile(
    r"^```console\n(?P<body>.*?)^```\n(?:\n!\[[^\]]*\]\(pictures/(?P<name>[a-z-]+)\.svg\))?",
    re.MULTILINE | re.DOTALL,
)
_CURSOR = re.compile(r"\x1b\[\?25[lh]")
_FONTS = re.compile(r"^\s*@font-face \{.*?\}\n", re.M | re.S)


@dataclass(frozen=True)
class Scene:
    """One block of the tutorial. name: of its picture, None for a block without one."""

    name: str | None
    commands: tuple[str, ...]


INSTALLED = Scene(None, ("evolvable setup",))
"""What the first step of the tutorial ran, once the program was installed."""


def read_scenes(page: Path) -> list[Scene]:
    """Return the blocks of a page in their order."""
    return [
        Scene(block["name"], tuple(_commands(block["body"])))
        for block in _BLOCK.finditer(page.read_text("utf-8"))
    ]


def _commands(body: str) -> list[str]:
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith(">") and found:
            found[-1] += "\n" + line[1:].removeprefix(" ")
    return found


def run_on_terminal(command: str, home: Path) -> tuple[int, str]:
    """Run one command in a shell on a pseudo-terminal; return its exit code and what it printed,
    with colours.

    Each question is answered by Enter, as the page says.
    """
    keyboard, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    scripts = str(Path(sys.executable).parent)
    environment = {
        "HOME": str(home),
        "PATH": f"{scripts}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "EVOLVABLE_EMBEDDER": "off",  # it would fetch a model
        # The account's configuration lies in this home too, not in the one of the account that
        # draws.
        "PYTHONPATH": str(ROOT / "tests/support/account"),
        "EVOLVABLE_TEST_ACCOUNT": str(home),
    }
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        cwd=home,
    )
    os.close(terminal)
    printed = bytearray()
    while True:
        try:
            piece = os.read(keyboard, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            break
        if not piece:
            break
        printed += piece
        if printed.endswith(b"]: "):
            os.write(keyboard, b"\n")
    os.close(keyboard)
    text = _CURSOR.sub("", printed.decode("utf-8", "replace").replace("\r\n", "\n"))
    return process.wait(), text.replace(str(home), HOME)


def draw(scene: Scene, outputs: list[str], part: str = "picture") -> str:
    """Return the picture of a block: each command with its output. part: begins the ids in it."""
    # Without the environment of the one who draws: with TERM=dumb the width would be ignored.
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        _environ={},
    )
    for command, output in zip(scene.commands, outputs, strict=True):
        typed = Text("$ ", style="bold green")
        typed.append(command.replace("\n", "\n> "), style="bold")
        console.print(typed, highlight=False, soft_wrap=False)
        console.print(Text.from_ansi(output.rstrip("\n")), highlight=False)
    svg = console.export_svg(title="evolvable", unique_id=f"{part}-{scene.name}")
    # Without fonts from the network the reader's own monospaced font is used; no page of ours loads
    # foreign files.
    return _FONTS.sub("", svg).replace(" \n", "\n")


def record(scenes: list[tuple[Scene, list[str]]]) -> str:
    """Return one animated picture: of each block its first command, then all commands with their
    output.
    """
    shown: list[tuple[str, float]] = []
    for scene, outputs in scenes:
        first = Scene(scene.name, scene.commands[:1])
        shown += [
            (draw(first, [""], "typed"), TYPED_SECONDS),
            (draw(scene, outputs, "shown"), SHOWN_SECONDS),
        ]
    sizes = [re.search(r'viewBox="0 0 (\S+) (\S+)"', svg) for svg, _ in shown]
    width, height = (max(float(size[side]) for size in sizes if size) for side in (1, 2))
    total, begun, rules, frames = sum(seconds for _, seconds in shown), 0.0, [], []
    for number, (svg, seconds) in enumerate(shown):
        begin, end = 100 * begun / total, 100 * (begun + seconds) / total
        hidden = "0% { visibility: hidden } " if number else ""
        rules.append(
            f"@keyframes frame-{number} {{ {hidden}{begin:.3f}% {{ visibility: visible }} "
            f"{end:.3f}%, 100% {{ visibility: hidden }} }}\n"
            f"#frame-{number} {{ animation: frame-{number} {total:g}s step-end infinite }}"
        )
        # A frame keeps its size; a nested picture without one would fill the whole.
        size = sizes[number]
        sized = (
            f'<svg id="frame-{number}" class="frame" width="{size[1]}" height="{size[2]}" '
            if size
            else "<svg "
        )
        frames.append(svg.replace("<svg ", sized, 1).replace('class="rich-terminal" ', "", 1))
        begun += seconds
    still = ".frame { animation: none !important } #frame-1 { visibility: visible }"
    style = "\n".join(
        [
            ".frame { visibility: hidden }",
            *rules,
            f"@media (prefers-reduced-motion: reduce) {{ {still} }}",
        ]
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
    # Of one height, behind each frame.
    window = f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#292929"/>'
    return "\n".join([head, f"<style>\n{style}\n</style>", window, *frames, "</svg>\n"])


def main() -> int:
    """Run the tutorial; return 1 when one of its commands fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="run the commands and write no pictures"
    )
    options = parser.parse_args()
    home = Path("/tmp", secrets.token_hex(2))  # as long as HOME
    home.mkdir(mode=0o700)
    failed, pictured = 0, list[tuple[Scene, list[str]]]()
    try:
        for scene in [INSTALLED, *read_scenes(TUTORIAL)]:
            outputs = []
            for command in scene.commands:
                code, output = run_on_terminal(command, home)
                outputs.append(output)
                if code:
                    failed = 1
                    print(f"exit code {code}: {command}\n{output}", file=sys.stderr)
            if scene.name and not options.check:
                (PICTURES / f"{scene.name}.svg").write_text(draw(scene, outputs), encoding="utf-8")
                print(f"docs/pictures/{scene.name}.svg")
                pictured.append((scene, outputs))
        if pictured:
            (PICTURES / "recording.svg").write_text(record(pictured), encoding="utf-8")
            print("docs/pictures/recording.svg")
    finally:
        shutil.rmtree(home)
    return failed


if __name__ == "__main__":
    sys.exit(main())
