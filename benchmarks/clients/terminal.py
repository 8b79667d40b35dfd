"""A client on a terminal, as a person has it: keys are pressed, and each approval question is
answered.

tmux is the terminal. It answers what a client asks its terminal, and gives the screen as a person
sees it, however the client draws it. The client is not told of tmux.
"""

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from model import Model, Use
from place import wait_for

START, TURN, END = 240, 400, 30
"""Seconds for the start, for everything after the prompt, and for the end of the client."""

AGAIN = 20
"""Seconds after which a prompt that did nothing is sent again."""

END_WORD = "DONE"
"""What the model says last."""


class Screen:
    """A program in a terminal of 160 columns and 50 lines. Close it in the end."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, socket: Path
    ) -> None:
        program = shutil.which("tmux")
        if program is None:
            raise FileNotFoundError("tmux drives clients on a terminal: install it")
        self._tmux = (program, "-S", str(socket), "-f", "/dev/null")
        named = [f"{name}={value}" for name, value in environment.items()]
        command = shlex.join(["env", "-i", *named, *words])
        size = ("-x", "160", "-y", "50")
        self._run(
            "new-session",
            "-d",
            *size,
            "-c",
            str(folder),
            f"exec {command}",
            ";",
            "set",
            "status",
            "off",
        )

    def _run(self, *words: str) -> str:
        return self._ran(*words).stdout

    def _ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, timeout=30, check=False
        )

    @property
    def ended(self) -> bool:
        """Whether the program has ended, also where it showed nothing."""
        return self._ran("has-session").returncode != 0

    @property
    def text(self) -> str:
        """What the screen shows now, '' once the program has ended."""
        return self._run("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux: Enter, Down, Escape."""
        for key in keys:
            self._run("send-keys", key)
            time.sleep(0.2)  # an Escape with a key right after it is another key

    def type(self, text: str) -> None:
        """Type a line and send it."""
        self._run("send-keys", "-l", "--", text)
        time.sleep(0.5)  # what comes at once counts as pasted, and its newline does not send it
        self._run("send-keys", "Enter")

    def close(self) -> None:
        self._run("kill-server")


@dataclass(frozen=True)
class Dialogue:
    """How a client is spoken to on a terminal.

    options: what it is started with. ready: what its screen shows when it can be typed to.
    question: what an approval question shows above its answers. asides: whatever else it shows that
    waits for keys, with the keys of a person who wants to go on in the default approvals. leave:
    what ends it. environment: what it has besides on a terminal.
    """

    ready: str
    question: str
    options: tuple[str, ...] = ()
    asides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leave: str = "/exit"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Person:
    """Sits at the terminal: types a prompt, answers yes to each approval question, and notes what
    each was about.
    """

    screen: Screen
    dialogue: Dialogue
    model: Model
    asked: list[str] = field(default_factory=list)
    """The tools about which the client asked, in order."""

    last: str = ""
    """The screen when it was looked at last."""

    def converse(self, prompt: str) -> None:
        """Hold the session to its end.

        Raises TimeoutError with the screen where it does not get there.
        """
        self._until(lambda text: re.search(self.dialogue.ready, text), START)
        self._send(prompt)
        self._until(lambda text: self.model.ended and END_WORD in text, TURN)
        self.screen.type(self.dialogue.leave)
        with suppress(TimeoutError):
            wait_for(lambda: self.screen.ended, "it did not end", END)

    def _send(self, prompt: str) -> None:
        """Type the prompt, and send it again while nothing comes of it: a busy client may not take
        the first Enter.
        """
        self.screen.type(prompt)
        for _ in range(START // AGAIN):
            with suppress(TimeoutError):
                wait_for(lambda: self.model.asked, "the model was not asked", AGAIN)
                return
            self.screen.press("Enter")

    def _until(self, reached: Callable[[str], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            text = self.screen.text
            if not text and self.screen.ended:
                raise AssertionError(f"it ended; the screen showed:\n{self.last}")
            self.last = text or self.last
            aside = next(
                (keys for shown, keys in self.dialogue.asides.items() if re.search(shown, text)),
                None,
            )
            if re.search(self.dialogue.question, text):
                self._agree(text)
            elif aside is not None:
                self.screen.press(*aside)
                time.sleep(1)  # it draws what comes next
            elif reached(text):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {self.asked} the screen shows:\n{text}")
            time.sleep(0.2)

    def _agree(self, text: str) -> None:
        """Move to the first answer that begins with Yes, choose it, and wait until the question is
        gone.
        """
        use = self.model.said[-1] if self.model.said else None
        if not isinstance(use, Use) or not _names(text, use.tool):
            raise AssertionError(f"a question about something else than {use}:\n{text}")
        number = len(self.model.said)
        mark, yes = _answers(text, self.dialogue.question)
        self.screen.press(*["Down" if yes > mark else "Up"] * abs(yes - mark))

        def at_yes() -> bool:
            return len(set(_answers(self.screen.text, self.dialogue.question))) == 1

        def gone() -> bool:
            return len(self.model.said) > number or not re.search(
                self.dialogue.question, self.screen.text
            )

        wait_for(at_yes, f"Yes was not chosen:\n{text}", 5)
        self.screen.press("Enter")
        self.asked.append(use.tool)
        wait_for(gone, f"the answer changed nothing:\n{text}", 30)


def _names(text: str, tool: str) -> bool:
    """Return whether the screen names a tool, by its name or by its title."""
    return tool in text or tool.replace("_", " ") in text.lower()


_ANSWER = re.compile(
    r"^[\s│┃|]*(?P<mark>[❯›>●]?)\s*(?:\d+[.)]\s*)?(?P<words>(?:Yes|No|Allow|Switch)\b.*)$"
)


def _answers(text: str, question: str) -> tuple[int, int]:
    """Return where the mark is among the answers below a question, and where the first is that
    begins with Yes.

    Where none has a mark, colour shows the chosen one, which is the first.
    """
    below = text[max(one.end() for one in re.finditer(question, text)) :].splitlines()
    answers = [found for line in below if (found := _ANSWER.match(line))]
    marked = [number for number, one in enumerate(answers) if one["mark"]] or [0]
    agreeing = [number for number, one in enumerate(answers) if one["words"].startswith("Yes")]
    if not agreeing:
        raise AssertionError(f"a question whose answers cannot be read:\n{text}")
    return marked[0], agreeing[0]
