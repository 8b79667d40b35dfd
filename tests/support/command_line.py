"""The command line as a person uses it: in this process, as a process of its own, and on a
terminal.
"""

import contextlib
import io
import json
import os
import re
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evolvable_server.cli.command_line import cli
from evolvable_server.config import MARKS

_OURS = (
    *("EVOLVABLE_SCOPE", "EVOLVABLE_SESSION", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID"),
    *("EVOLVABLE_APPROVE", *MARKS),
)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str
    data: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


_ERASE = "\r\x1b[2K"
_DRAWN = re.compile(re.escape(_ERASE) + r"[^\r\n\x1b]*  \d+:\d\d(?=[\r\n\x1b]|$)")


class Talk:
    """A command on a terminal: what it wrote so far, and a keyboard.

    progress: whether the line that says how long it works is kept; a slow machine shows some that a
    fast one does not.
    """

    def __init__(
        self, process: "subprocess.Popen[str]", keyboard: int, progress: bool = False
    ) -> None:
        self._process, self._keyboard, self._progress = process, keyboard, progress
        self.written = ""
        self._read = 0

    def until(self, text: str) -> str:
        """Wait until the command wrote this; return what it wrote since the last wait."""
        while (at := self.written.find(text, self._read)) < 0:
            assert self._more(), f"ended before {text!r}: {self.written}"
        begun, self._read = self._read, at + len(text)
        return self.written[begun : self._read]

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode("utf-8"))

    def end(self) -> str:
        """Wait until the command ended; return all that it wrote."""
        while self._more():
            pass
        os.close(self._keyboard)
        self.code = self._process.wait(timeout=60)
        return self.written

    def interrupt(self) -> str:
        """Press Ctrl-C until the command ended; return all that it wrote.

        CPython loses an interrupt that comes after its last look at signals and before readline
        waits for a key.
        """
        for _ in range(60):
            with contextlib.suppress(OSError):  # it has ended
                os.write(self._keyboard, b"\x03")
            while select.select([self._keyboard], [], [], 1)[0]:
                if not self._more():
                    return self.end()
        raise AssertionError(f"no end after a minute: {self.written}")

    def _more(self) -> bool:
        assert select.select([self._keyboard], [], [], 60)[0], (
            f"nothing more within 60 seconds: {self.written}"
        )
        try:
            part = os.read(self._keyboard, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        text = part.decode("utf-8", "replace").replace("\r\n", "\n")
        self.written += text if self._progress else _DRAWN.sub("", text).replace(_ERASE, "")
        return bool(part)


class CommandLine:
    """A person's machine below `root`: a home folder, a project that is open, and a library that is
    not made yet.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.user, self.home, self.project = (
            root,
            root / "user",
            root / "library",
            root / "project",
        )
        self.person = True
        """Whether commands run at a person's terminal; else as an agent's shell runs them."""
        self.user.mkdir()
        self.project.mkdir()

    def __call__(
        self, *arguments: object, stdin: str | bytes | None = None, code: int | None = 0, **env: str
    ) -> Ran:
        """Run one command in this process. Fails unless it ends with `code`; None accepts any."""
        settings: dict[str, str | None] = {**dict.fromkeys(_OURS), **self._own(), **env}
        if stdin is None and self.person and "init" in arguments[:1]:
            stdin = "y\n" * 20  # the person says yes to each folder
        result = CliRunner().invoke(
            cli, [str(argument) for argument in arguments], input=stdin, env=settings
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code in (None, result.exit_code), result.output
        return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)

    def on_screen(self, *arguments: object, columns: int = 80, code: int | None = 0) -> str:
        """Return what a command of this process writes to a screen of this width,
        without colours.
        """
        page = _Screen()
        settings = {
            **dict.fromkeys(_OURS),
            **self._own(),
            "COLUMNS": str(columns),
            "LINES": "1000",
            "NO_COLOR": "1",
        }
        with (
            CliRunner().isolation(env=settings),
            contextlib.redirect_stdout(page),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main([str(argument) for argument in arguments], prog_name="evolvable")
        assert code in (None, ended.value.code), page.getvalue()
        return page.getvalue()

    def _own(self) -> dict[str, str]:
        user, home = str(self.user), str(self.home)
        own = {"HOME": user, "USERPROFILE": user, "EVOLVABLE_HOME": home, "COLUMNS": ""}
        own |= {
            "EVOLVABLE_TEST_ACCOUNT": user,
            "EVOLVABLE_TEST_TERMINAL": "1" if self.person else "",
        }
        # It would outlive the command and ask the network.
        return {**own, "EVOLVABLE_EMBEDDER": "off"}

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a process of its own."""
        kept = ("PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMP")
        return {**{name: os.environ[name] for name in kept if name in os.environ}, **self._own()}

    def start(
        self, *arguments: object, flags: tuple[str, ...] = (), **options: Any
    ) -> "subprocess.Popen[str]":
        """Start a command as a process of its own, in the project's folder."""
        command = [sys.executable, "-P", *flags, "-m", "evolvable_server", *map(str, arguments)]
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        given |= {"env": self.environment, "cwd": self.project, "encoding": "utf-8"}
        return subprocess.Popen(command, **{**given, **options})

    def process(self, *arguments: object, **options: Any) -> Ran:
        """Run a command as a process of its own."""
        with self.start(*arguments, **options) as process:
            out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out or "", err or "")

    def on_terminal(self, *arguments: object, columns: int = 80, typed: str = "") -> str:
        """Return what a command writes to a terminal of this width, where this is typed.

        POSIX only.
        """
        terminal = self.talk(*arguments, columns=columns)
        terminal.type(typed)
        return terminal.end()

    def talk(
        self, *arguments: object, columns: int = 80, progress: bool = False, **env: str
    ) -> "Talk":
        """Start a command on a terminal of this width, to be answered as it asks. POSIX only."""
        import fcntl
        import pty
        import struct
        import termios

        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**self.environment, "TERM": "xterm-256color", "PAGER": "cat"}
        environment |= env
        del environment["COLUMNS"]
        # A session of its own with this terminal, so that Ctrl-C reaches the command and nothing
        # else.
        options = {
            "start_new_session": True,
            "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        }
        process = self.start(
            *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, **options
        )
        os.close(theirs)
        return Talk(process, ours, progress)

    def configure(self, text: str) -> None:
        """Write the person's configuration of this machine's account."""
        path = self.user / ".config/evolvable/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def save(self, folder: Path, name: str, text: str, path: str = "SKILL.md") -> Path:
        """Write a file of the skill `name` below `folder`; return the skill's folder."""
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return folder / name


def skill_text(
    name: str, description: str = "", body: str = "one\n\ntwo\n\nthree", more: str = ""
) -> str:
    """Return a SKILL.md; `more` goes into its frontmatter."""
    return (
        f"---\nname: {name}\ndescription: {description or f'Works with {name} files.'}\n"
        f"{more}---\n\n{body}\n"
    )
