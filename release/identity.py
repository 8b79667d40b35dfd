"""Read release/identity.toml, the only source of the names and addresses of a release."""

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("identity.toml")

_ADDRESS = r"https://[a-z0-9.-]+\.[a-z]{2,}(?:/[\w.~-]+)*"
_FORMS = {
    "index_name": r"[a-z0-9]+(?:-[a-z0-9]+)*",
    "repository": r"https://[a-z0-9.-]+\.[a-z]{2,}/[\w.-]+/[\w.-]+",
    "namespace": r"[a-z0-9-]+(?:\.[a-z0-9-]+)+",
    "docs": _ADDRESS,
    "contact": rf"[\w.+-]+@[a-z0-9.-]+\.[a-z]{{2,}}|{_ADDRESS}",
}

NEEDED_BY = {
    "index_name": (
        "the commands that install from an index, the pinned entries of clients, the "
        "registry's package"
    ),
    "repository": (
        "[project.urls], links and pictures for the index, plugin manifests, the container"
    ),
    "namespace": (
        "the name in the MCP registry, and the line that proves it in the text for the index"
    ),
    "docs": (
        "the site's own address (canonical links, sitemap, llms.txt) and the link to it in "
        "[project.urls]"
    ),
    "contact": "the address in the code of conduct and in SECURITY.md",
}
"""Value -> what is left out while it is empty."""


class IdentityError(Exception):
    """The file has a value that nobody could hold, or a key that is not known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The names and addresses of a release. Empty: nobody holds it yet."""

    published: bool
    index_name: str
    repository: str
    namespace: str
    docs: str
    contact: str

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the values that are empty."""
        return tuple(name for name in _FORMS if not getattr(self, name))

    @property
    def image(self) -> str:
        """Return the container's name at the registry of the repository's host, '' without a
        repository there.
        """
        host, _, path = self.repository.removeprefix("https://").partition("/")
        return f"ghcr.io/{path.lower()}" if host == "github.com" else ""


def read_identity(file: Path = FILE) -> Identity:
    """Return what the file says. Raises IdentityError for a value of another form."""
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    return check_identity(values, file)


def check_identity(values: dict[str, Any], file: Path = FILE) -> Identity:
    """Return the identity of these values. Raises IdentityError as `read_identity`."""
    names = {field.name for field in fields(Identity)}
    if wrong := names ^ values.keys():
        raise IdentityError(f"{file}: {', '.join(sorted(wrong))} is missing, or not known.")
    if not isinstance(values["published"], bool):
        raise IdentityError(f"{file}: published is true or false.")
    for name, form in _FORMS.items():
        value = values[name]
        if not isinstance(value, str) or (value and not re.fullmatch(form, value)):
            raise IdentityError(
                f"{file}: {name} = {value!r} does not have the form that the comment above it says."
            )
    identity = Identity(**values)
    if identity.published and identity.missing:
        raise IdentityError(
            f"{file}: published = true, but {', '.join(identity.missing)} is empty."
        )
    return identity
