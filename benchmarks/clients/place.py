"""A home of its own for a client and a library: nothing of the user's is read or written."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from evolvable_store.operation import Head, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies

BODY = "Zebras count the pages first."
"""A sentence of the skill that only its text can have told."""

TOLD = "Merge, split and fill PDF forms."
"""The description of that skill: whoever has it was told of the skill."""

KEY = "sk-ant-local-dummy-0000000000"
PLUGIN = Path(__file__).parents[2] / "plugins" / "evolvable"
ACCOUNT = Path(__file__).parents[2] / "tests" / "support" / "account"
"""What makes the account, and a terminal, of every Python process here."""

PERSON = {"EVOLVABLE_TEST_TERMINAL": "1"}
"""What makes a command of ours a person's. No client is started with it."""


def skill(name: str, description: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n\n{body}\n"


class Place:
    """A home folder of an account, a project, a library, and a folder of a person's skills that the
    library follows.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.project = root, root / "home", root / "project"
        self.library, self.skills = root / "library", root / "skills"
        for folder in (self.home, self.project, self.skills):
            folder.mkdir(parents=True)
        self.save("pdf", skill("pdf", TOLD, BODY))
        self.save("csv", skill("csv", "Clean and summarise CSV tables.", "Look at the header."))
        with Store.open(self.library, create=True) as store:
            WorkingCopies(store).add(self.skills, identity=Identity(Principal.PERSON, "terminal"))

    @property
    def environment(self) -> dict[str, str]:
        """What a client is started with. The commands of this Python come first on the path."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"HOME": str(self.home), "PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        python = os.pathsep.join(filter(None, (str(ACCOUNT), os.environ.get("PYTHONPATH", ""))))
        account = {"PYTHONPATH": python, "EVOLVABLE_TEST_ACCOUNT": str(self.home)}
        return own | account | {"EVOLVABLE_HOME": str(self.library), "EVOLVABLE_EMBEDDER": "off"}

    def address(self, url: str, provider: str = "anthropic") -> None:
        """Say in the person's configuration where the models of a provider are asked."""
        path = self.home / ".config" / "evolvable" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f'{text}\n[models]\n{provider} = "{url}"\n', encoding="utf-8")
        path.chmod(0o600)

    def save(self, name: str, text: str) -> None:
        """Save a skill as a person would, with an editor."""
        path = self.skills / name / "SKILL.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def save_and_wait(self, name: str, text: str) -> None:
        """Save a skill and return when some server has taken it in.

        Raises TimeoutError after ten seconds.
        """
        self.save(name, text)
        wait_for(lambda: name in self.heads(), f"no server took {name} in", 10)

    def heads(self) -> dict[str, int]:
        """Return the version of every resource in the library."""
        with Store.open(self.library) as store:
            return {head.name: head.version for head in store.heads()}

    def head(self, name: str) -> Head:
        """Return the newest version of a resource."""
        with Store.open(self.library) as store:
            return store.head(Ref.parse(name))

    def text(self, name: str, version: int) -> str:
        """Return a version's SKILL.md."""
        with Store.open(self.library) as store:
            return store.file(store.head(Ref.parse(name)), "SKILL.md", version).data.decode()

    def queued(self) -> list[dict[str, Any]]:
        """Return the reviews that wait."""
        folder = self.library / "reviews" / "queue"
        return [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
        ]

    def run(
        self, *command: str, seconds: float = 120, typed: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a client's command in the project, without a terminal. Raises TimeoutExpired, by
        default after two minutes. typed: what it reads from standard input.
        """
        return subprocess.run(
            command,
            env=self.environment | environment,
            cwd=self.project,
            input=typed,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], errors: IO[str]
    ) -> "subprocess.Popen[str]":
        """Start a client in the project, to be written to while it runs."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self.project,
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            text=True,
        )

    def person(
        self, *words: str, seconds: float = 120, typed: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one of our commands as a person at a terminal. Raises TimeoutExpired."""
        command = (sys.executable, "-m", "evolvable_server", *words)
        return self.run(*command, seconds=seconds, typed=typed, **(environment | PERSON))


def wait_for(condition: Callable[[], object], otherwise: str, seconds: float) -> None:
    """Return when the condition holds. Raises TimeoutError that says `otherwise`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
