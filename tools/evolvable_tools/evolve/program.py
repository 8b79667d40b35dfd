"""A program: the versions of resources that are evaluated together."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.resource import Kind


@dataclass(frozen=True, slots=True)
class Part:
    """One resource of a program with all its files; `tree` is the hash of their manifest."""

    kind: Kind
    name: str
    files: Mapping[str, bytes]
    tree: str

    @property
    def ref(self) -> str:
        """How the part is written, such as `skill:pdf`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Program:
    """Parts in the order of their refs, one of each; a program without parts is the no-skill arm, literally empty."""

    parts: tuple[Part, ...] = ()

    @property
    def digest(self) -> str:
        """The sha256 that names the program: equal digests are equal bytes."""
        lines = "\n".join(f"{part.ref} {part.tree}" for part in self.parts)
        return hashlib.sha256(lines.encode()).hexdigest()
