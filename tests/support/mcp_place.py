"""A library with a folder of skills, and the SDK's own client over real stdio in both eras of the
protocol.
"""

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

from evolvable_store.operation import Identity, Principal
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies

PERSON = Identity(Principal.PERSON, "terminal")
"""Who imports the folders of a place.

What is saved in them later is of an unknown principal, as on any machine.
"""

ERAS = {"handshake": "legacy", "modern": "auto"}


def skill_text(name: str, description: str = "", body: str = "one\n\ntwo\n\nthree") -> str:
    return (
        f"---\nname: {name}\ndescription: {description or f'Works with {name} files.'}\n---\n\n"
        f"{body}\n"
    )


class Place:
    """A library's home and a watched folder of skills beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.skills = root, root / "home", root / "skills"
        self.skills.mkdir()
        self.save("pdf", skill_text("pdf", "Merge, split and fill PDF forms."))
        self.save("csv", skill_text("csv", "Clean and summarise CSV tables."))
        with Store.open(self.home, create=True) as store:
            WorkingCopies(store).add(self.skills, identity=PERSON)

    def save(self, name: str, text: str, path: str = "SKILL.md") -> None:
        """Write a file in one step, as editors do: a server that looks in the middle of it would
        see an empty one.
        """
        target = self.skills / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = self.root / "draft"
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a server.

        It starts no embedder: that would outlive it and ask the network.
        """
        own = {"EVOLVABLE_HOME": str(self.home), "EVOLVABLE_EMBEDDER": "off"}
        own |= {
            "HOME": str(self.root),
            "PATH": os.environ["PATH"],
            "EVOLVABLE_TEST_ACCOUNT": str(self.root),
        }
        return own | {
            name: os.environ[name] for name in ("PYTHONPATH", "SYSTEMROOT") if name in os.environ
        }

    def configure(self, text: str) -> None:
        """Write the person's configuration of the account that servers run as."""
        path = self.root / ".config/evolvable/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @contextlib.asynccontextmanager
    async def client(
        self, era: str, *, within: float = 30, **options: object
    ) -> AsyncIterator[Client]:
        """A client of a server of its own; everything inside must be done within so
        many seconds.
        """
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "evolvable_server", "serve"],
            env=self.environment,
            cwd=self.root,
        )
        with anyio.fail_after(within):
            async with Client(command, mode=ERAS[era], **options) as client:
                yield client
