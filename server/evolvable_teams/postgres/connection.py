"""Connections to PostgreSQL: opening, settings of a transaction, translation of errors."""

import contextlib
import select
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    LibraryBusy,
    LibraryCorrupt,
    LibraryError,
    LibraryFull,
    LibraryReadOnly,
    LibraryUnreachable,
)
from evolvable_store.storage import LATEST, POLICY, SEQUENCE, PostgresHome
from evolvable_store.storage.connection import GIVE_UP_SECONDS
from evolvable_teams.postgres import schema, vector_table
from evolvable_teams.postgres.dialect import bind, is_pragma, translate

OLDEST = 160000
"""The oldest version of the server: its subqueries need no name, and it has IS JSON."""

CONNECT_SECONDS = 10
"""How long to wait for the server of each address when a connection is opened."""

# The third argument `true` limits a setting to the transaction, so a pooled connection keeps none.
_CHOOSE = (
    b"SELECT set_config('evolvable.project', $1, true), set_config('evolvable.home', $2, true)"
)
_LOCK = (
    "SELECT "
    "(lock_project()).transaction FROM ("  # evaluated after the settings of its inner query
    f"{_CHOOSE.decode()}, set_config('lock_timeout', '{GIVE_UP_SECONDS:.0f}s', true),"
    " set_config('synchronous_commit', 'on', true), "
    "set_config('idle_in_transaction_session_timeout', '5min', true), "
    f"pg_advisory_xact_lock_shared({schema.MIGRATION_LOCK}), pg_notify($3, "
    "'') OFFSET 0)"  # sent by a commit only
).encode()

_VERSION = b"SELECT max(version) FROM schema_version"
"""Sent after the lock, so that it sees every migration that ended; under the lock none runs."""

_PREFETCHED = {SEQUENCE.encode(): b"INTO change ", POLICY.encode(): b"INTO move "}
"""Queries of nearly every write, sent with the lock to spare a round trip each.

With each query stands a part of the statements that change its answer.
"""


class _WholeNumber(psycopg.adapt.Loader):
    """Reads `numeric`, PostgreSQL's type for sums of bigint, as int where it is a whole number."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def _connection_settings(url: str) -> dict[str, Any]:
    """Return the settings of an address, with the defaults of libpq for those that it leaves out.

    Otherwise libpq would read PGHOSTADDR, PGSSLROOTCERT and the like: variables that a project sets
    must choose neither another server nor the certificates that check it. Only a password comes
    from the environment.
    """
    defaults = (
        (option.keyword.decode(), option)
        for option in psycopg.pq.Conninfo.get_defaults()
        if option.envvar
    )
    libpq_defaults = {
        name: (option.compiled or b"").decode()
        for name, option in defaults
        if name not in _OF_THE_ENVIRONMENT
    }
    ours = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "evolvable",
        "options": "-c search_path=evolvable,pg_temp -c client_encoding=UTF8",
    }
    tls = {"sslmode": "prefer", "sslcertmode": "allow"}
    return {**libpq_defaults, **tls, **ours, **conninfo_to_dict(url)}


_PASSWORDS = ("service", "password", "passfile")
_OF_THE_ENVIRONMENT = frozenset(
    (*_PASSWORDS, "client_encoding", "min_protocol_version", "max_protocol_version")
)
"""Settings that a variable may set: a password, and those that may not be empty and choose neither
server nor certificates.
"""


class PostgresConnection:
    """One connection, with the methods of a SQLite connection that the repositories use."""

    def __init__(self, home: PostgresHome) -> None:
        """Raise LibraryError when the server cannot be reached, or is one that would not separate
        projects.
        """
        self._where = home.address.name
        try:
            self.raw = psycopg.connect(
                **_connection_settings(home.address.url),
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
            )
        except psycopg.Error as error:
            raise library_error(error, self._where) from error
        adapters = self.raw.adapters
        adapters.register_dumper(str, StrDumper)
        # One type for all numbers: otherwise a statement would be prepared once for each size of
        # its values.
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_loader("numeric", _WholeNumber)
        # The policies of the tables compare each row with these two settings.
        self._chosen = [home.address.project, home.name]
        self.notifies = ""
        """The channel on which its commits are announced."""
        # Of a transaction: what closes its pipeline, and the cursors of what goes with the lock.
        self._pipeline: contextlib.ExitStack | None = None
        self._lock: Any = None
        self._version: Any = None
        self._prefetched: dict[bytes, _Result] = {}

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.raw.close()

    @property
    def is_usable(self) -> bool:
        """Whether the connection is open and idle."""
        return (
            not self.raw.closed
            and self.raw.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        )

    def is_alive(self) -> bool:
        """Return whether the connection is open, as far as this machine knows yet."""
        if not self.is_usable:
            return False
        readable, _, _ = select.select([self.raw.fileno()], [], [], 0)
        return not readable  # the server sends nothing on an idle connection but its end

    def query(self, text: bytes, values: Sequence[Any] = ()) -> Any:
        """Run a statement in PostgreSQL's spelling on the chosen project; return its cursor."""
        if self._pipeline is not None:
            if (answer := self._prefetched.pop(text, None)) is not None:
                return answer
            for query in list(self._prefetched):
                if _PREFETCHED[query] in text:
                    del self._prefetched[query]
            return _Result(self.raw.execute(text, values), self._sync)
        with self.raw.pipeline():  # one message in each direction, and one transaction
            self.raw.execute(_CHOOSE, self._chosen)
            return self.raw.execute(text, values)

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run one statement in SQLite's spelling; return its cursor.

        Outside of a transaction it is one by itself.
        """
        if is_pragma(statement):
            return None
        names, plain = bind(values)
        # A bit for each NULL is part of the key of the cache in `translate`.
        nulls = sum(1 << place for place, value in enumerate(plain) if value is None)
        text, order = translate(statement, names, nulls)
        return self.query(text, [plain[place] for place in order])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row, inside a transaction."""
        for row in rows:
            self.execute(statement, row)

    def begin(self, *, write: bool) -> None:
        """Begin a transaction on the chosen project.

        A reading one sees one state; a writing one takes the project's lock. Statements are sent
        together until a result is asked for, so a later statement may report the error of one.
        """
        # Closes the pipeline when BEGIN or the lock fails; `pop_all` keeps it open otherwise.
        with contextlib.ExitStack() as unless_begun:
            unless_begun.enter_context(self.raw.pipeline())
            self.raw.execute(
                b"BEGIN" if write else b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            )
            if not write:
                self.raw.execute(_CHOOSE, self._chosen)
            else:
                self._lock = self.raw.execute(_LOCK, [*self._chosen, self.notifies])
                self._version = self.raw.execute(_VERSION)
                self._prefetched = {
                    text: _Result(self.raw.execute(text), self._sync) for text in _PREFETCHED
                }
            self._pipeline = unless_begun.pop_all()

    def transaction(self) -> str:
        """Return the number of the transaction that holds the project's lock.

        Raises LibraryReadOnly when the role may not write in the project.
        """
        row = self._lock.fetchone()
        if row is None:
            raise LibraryReadOnly(
                f"The role of {self._where} may not write in this project.",
                "Ask the database's owner: SELECT evolvable.add_member(project, role, true).",
            )
        return str(row[0])

    def schema_version(self) -> int:
        """Return the number of the schema, which the transaction with the lock has asked for."""
        return int(self._version.fetchone()[0])

    def commit(self) -> None:
        """Commit, which announces it to the other servers."""
        done = self.raw.execute(b"COMMIT")
        self._leave()
        # PostgreSQL answers ROLLBACK where a statement of the transaction had failed.
        if done.statusmessage != "COMMIT":
            raise psycopg.InternalError(f"the server answered COMMIT with {done.statusmessage}")

    def rollback(self) -> None:
        """Roll back, as far as there is a connection and a transaction."""
        with contextlib.suppress(psycopg.Error):
            self._leave()
        with contextlib.suppress(psycopg.Error):
            if not self.raw.closed and not self.is_usable:
                self.raw.execute(b"ROLLBACK")

    def _leave(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        self._prefetched = {}
        if pipeline is not None:
            pipeline.close()

    def _sync(self) -> None:
        with self.raw.pipeline() as pipeline:
            pipeline.sync()


class _Result:
    """The result of a statement that may not have been sent yet; asking for it sends it."""

    def __init__(self, cursor: Any, sync: Callable[[], None]) -> None:
        self._cursor, self._sync = cursor, sync

    @property
    def rowcount(self) -> int:
        self._sync()
        return int(self._cursor.rowcount)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> Any:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor.fetchall())


def prepare(connection: PostgresConnection, home: PostgresHome, *, create: bool) -> None:
    """Check the server and the role, and bring the tables up to date where the role owns them.

    create: make the tables and the project where there are none. Raises LibraryError or a subclass.
    """
    raw, where = connection.raw, home.address.name
    if raw.info.server_version < OLDEST:
        raise LibraryError(
            f"{where} is PostgreSQL {raw.info.server_version // 10000}.",
            "Version 16 is the oldest.",
        )
    row = raw.execute(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"
    ).fetchone()
    # Such a role would see the rows of every project.
    if row is None or row[0]:
        raise LibraryError(
            f"The role of {where} is a superuser or bypasses row-level security, which separates "
            "the projects.",
            "Name a role without these rights; it may own the database.",
        )
    try:
        version = schema.schema_version(raw)
    except errors.InsufficientPrivilege:
        # A member of no project; `PostgresStorage` raises NoLibrary then.
        return
    if version != LATEST:
        if version == 0 and not create:
            return
        schema.migrate(raw)
    owner = (
        "SELECT pg_has_role(session_user, nspowner, 'MEMBER') FROM pg_namespace "
        "WHERE nspname = 'evolvable'"
    )
    row = raw.execute(owner).fetchone()
    if row is None or not row[0]:
        return
    schema.renew_policies(raw)
    vector_table.make_table(raw)
    project = [home.address.project]
    find_project = "SELECT 1 FROM evolvable.project WHERE name = $1"
    if create and raw.execute(find_project, project).fetchone() is None:
        raw.execute("SELECT evolvable.add_member($1, session_user::text, true)", project)


@contextlib.contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise our errors for those of PostgreSQL inside the body."""
    try:
        yield
    except (psycopg.Error, ValueError, TypeError, OverflowError) as error:
        raise as_library_error(error, where) from error


def as_library_error(error: Exception, where: str) -> EvolvableError:
    """Return our error for one of PostgreSQL, or for a value of unexpected type in a row."""
    if isinstance(error, psycopg.Error):
        return library_error(error, where)
    # Raised by the driver for an argument, before anything is sent.
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return InvalidArgument(
            f"An argument cannot be kept: {error}.", "Texts must be Unicode, numbers below 2**63."
        )
    return LibraryCorrupt(
        f"{where} has a value that Evolvable never writes: {error}.", "Run `evolvable care fsck`."
    )


_BUSY = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
)
# The first kind that fits counts, so subclasses stand before OperationalError.
_KINDS: tuple[tuple[tuple[type[Exception], ...], type[LibraryError], str, str], ...] = (
    (
        _BUSY,
        LibraryBusy,
        "Other servers kept {where} busy.",
        "Nothing was changed; try again.",
    ),
    (
        (errors.DiskFull, errors.OutOfMemory),
        LibraryFull,
        "The server of {where} has no room.",
        "Free some space there; nothing of the change was kept.",
    ),
    (
        (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege),
        LibraryReadOnly,
        "{where} cannot be written with this role.",
        "Ask the database's owner for the right to write; reading goes on.",
    ),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction),
        LibraryError,
        "{where} has no library, or this role may not see it.",
        (
            "`evolvable init` makes one; the owner adds a role with SELECT "
            "evolvable.add_member(project, role, writes)."
        ),
    ),
    (
        (psycopg.OperationalError, psycopg.InterfaceError),
        LibraryUnreachable,
        "{where} cannot be reached: {text}.",
        "Check the server, the address and the password; try again.",
    ),
)


def library_error(error: psycopg.Error, where: str) -> EvolvableError:
    """Return our error for one of PostgreSQL at this address."""
    if isinstance(error, psycopg.DataError):
        return InvalidArgument(
            f"An argument cannot be kept: {_one_line(error)}.", "Texts may not hold NUL characters."
        )
    for kinds, library_kind, message, hint in _KINDS:
        if isinstance(error, kinds):
            return library_kind(message.format(where=where, text=_one_line(error)), hint)
    return LibraryError(f"{where}: PostgreSQL says {_one_line(error)}.", "Run `evolvable doctor`.")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text[:200] or type(error).__name__).rstrip(".")
