"""The address of a library in PostgreSQL, and the folder that stands for it on one machine.

The folder is a home like any other: it holds the word index, the person's approval key, moved files
and runs. In place of `library.db` it has a file with the address. So every program that takes a
home takes such a library.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from evolvable_store.errors import InvalidArgument, LibraryCorrupt, UntrustedHome
from evolvable_store.paths import ADDRESS_FILE, CONFIGURATION, check_home, is_address
from evolvable_store.regular_files import private_file, read_regular

PROJECT = "library"
"""The project of an address that names none."""

# Stands unquoted in URLs and messages.
_PROJECT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# libpq has more, among them `options` and `passfile`, by which an address could change settings or
# have files read.
_TLS_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_OPTIONS = frozenset(("host", "port", "user", "dbname", *_TLS_OPTIONS, "connect_timeout"))
# As secrets.token_hex(16) writes it.
_HOME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Address:
    """A database and a project in it.

    url: without the project, and with the password where it has one.
    """

    url: str
    project: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a URL says.

        Raises InvalidArgument, and never quotes the password.
        """
        try:
            parts = urlsplit(text)
            options = dict(
                parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            )
            # Reading the property checks the port; libpq also takes several hosts with commas,
            # which urlsplit does not.
            _ = parts.port if "," not in parts.netloc else None
        except ValueError as error:
            raise InvalidArgument("The address of the library is no URL.", _LIKE) from error
        project = options.pop("project", PROJECT)
        # A "#" in a password that was not encoded would cut the address there.
        if not is_address(text) or parts.fragment:
            raise InvalidArgument("The address of the library is no URL of PostgreSQL.", _LIKE)
        if not _PROJECT.fullmatch(project):
            raise InvalidArgument(
                f"{ascii(project[:80])} is no name of a project.", "Use a-z, 0-9, '.', '_' and '-'."
            )
        if unknown := sorted(set(options) - _OPTIONS):
            raise InvalidArgument(
                f"The address of the library has the option {ascii(unknown[0][:40])}, which is "
                "not allowed.",
                f"Allowed are project, {', '.join(sorted(_OPTIONS))}.",
            )
        if len(unquote(parts.path)) < 2 and "dbname" not in options:
            raise InvalidArgument("The address of the library names no database.", _LIKE)
        query = f"?{urlencode(options)}" if options else ""
        return cls(f"postgresql://{parts.netloc}{parts.path}{query}", project)

    @property
    def name(self) -> str:
        """The address with its project and without its password, as it is shown and registered."""
        parts = urlsplit(self.url)
        user, at, hosts = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query))
        if self.project != PROJECT:
            options["project"] = self.project
        query = f"?{urlencode(options, quote_via=quote, safe='/')}" if options else ""
        return f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}{query}"

    @property
    def key(self) -> str:
        """A short name of it for a folder."""
        # Of the name without the password, so that a new password leads to the same folder.
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]


_LIKE = "It looks like postgresql://user@host/database?project=library."


@dataclass(frozen=True, slots=True)
class PostgresHome:
    """The content of the address file. name: the random name of the folder in the library."""

    address: Address
    name: str


def read_home(home: Path) -> PostgresHome:
    """Return the content of the address file of a home. Raises LibraryCorrupt."""
    path = home / ADDRESS_FILE
    try:
        fields = json.loads(read_regular(path))
        stored = PostgresHome(Address.parse(fields["url"]), fields["home"])
        if not _HOME.fullmatch(stored.name):
            raise ValueError("home")
    except (OSError, ValueError, KeyError, TypeError, InvalidArgument) as error:
        raise LibraryCorrupt(
            f"{path} cannot be read.", "Remove it, and open the library by its URL again."
        ) from error
    return stored


def home_of(url: str, base: Path, registered: Callable[[], Iterable[str]]) -> Path:
    """Return the folder below `base` that stands for a library, made when it is missing.

    registered: returns the addresses that the person registered, without passwords. Raises
    UntrustedHome for another one: an environment variable that a project sets must not choose where
    an agent's instructions come from.
    """
    address = Address.parse(url)
    # Compared without passwords, which the configuration does not have.
    if address.name not in {_address_name(text) for text in registered()}:
        raise UntrustedHome(
            f"{address.name} is not one of your libraries.",
            f"If it is yours, add it to `homes` in {CONFIGURATION}; else unset EVOLVABLE_HOME.",
        )
    home = base / address.key
    check_home(home, create=True)
    save_address(home, address)
    return home


def save_address(home: Path, address: Address) -> None:
    """Write the address file of a home, which keeps its name."""
    path = home / ADDRESS_FILE
    name = secrets.token_hex(16)
    if path.exists():
        stored = read_home(home)
        # Written only when it changed, since several processes open a library at once.
        if stored.address == address:
            return
        name = stored.name
    text = json.dumps({"url": _with_project(address), "home": name}, indent=1)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    # A process of the same number may have left one behind.
    draft.unlink(missing_ok=True)
    with open(draft, "w", encoding="utf-8", opener=private_file) as stream:
        stream.write(f"{text}\n")
    if path.exists():
        draft.replace(path)
        return
    try:
        # A link fails where the file exists: of two processes, both use the name of the first.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _with_project(address: Address) -> str:
    return f"{address.url}{'&' if '?' in address.url else '?'}project={address.project}"


def _address_name(text: str) -> str:
    """Return the name of an address, '' for a text that is none."""
    try:
        return Address.parse(text).name
    except InvalidArgument:
        return ""
