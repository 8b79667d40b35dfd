"""Open the library file, and bring its schema up to date in numbered steps, each in one transaction."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import LibraryBusy, LibraryCorrupt, LibraryReadOnly, LibraryTooNew
from evolvable_store.storage import connection as driver

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection

APPLICATION_ID = 0x45564C56
"""'EVLV', written into the file's header."""


def m001_library(db: Any) -> None:
    """Blobs, resources, operations, and the log of changes that makes versions and heads."""
    db.executescript("""
        CREATE TABLE blob (
            id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, codec TEXT NOT NULL,
            data BLOB NOT NULL
        ) STRICT;
        CREATE TABLE resource (
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            UNIQUE (name, kind, scope)
        ) STRICT;
        CREATE TABLE operation (
            id INTEGER PRIMARY KEY, last INTEGER NOT NULL, at TEXT NOT NULL, actor TEXT NOT NULL,
            reason TEXT NOT NULL, session TEXT, evidence TEXT, undoes TEXT
        ) STRICT;
        CREATE INDEX operation_session ON operation (session) WHERE session IS NOT NULL;
        -- The log. A row that made a version carries its manifest; `latest`, `tree`, `hash` and `frozen` tell the
        -- state after the row, so the last row of a resource is its head and nothing has to be kept in step.
        CREATE TABLE change (
            sequence INTEGER PRIMARY KEY, operation INTEGER NOT NULL, resource INTEGER NOT NULL,
            before INTEGER, after INTEGER, latest INTEGER NOT NULL, tree TEXT NOT NULL, hash TEXT NOT NULL,
            frozen INTEGER NOT NULL, manifest TEXT
        ) STRICT;
        CREATE INDEX change_resource ON change (resource, latest);
    """)


def m002_working_copies(db: Any) -> None:
    """The folders that mirror a scope, and which version each of their directories holds."""
    db.executescript("""
        CREATE TABLE folder (
            id INTEGER PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL UNIQUE
        ) STRICT;
        CREATE TABLE binding (
            folder INTEGER NOT NULL, directory TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER,
            signature TEXT NOT NULL, conflict TEXT,
            PRIMARY KEY (folder, directory)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX binding_resource ON binding (resource);
    """)


def m003_evidence(db: Any) -> None:
    """What was loaded, what came of it, and what waits for a decision."""
    db.executescript("""
        CREATE TABLE use (
            id TEXT PRIMARY KEY, at TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL,
            search TEXT, session TEXT
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX use_resource ON use (resource);
        CREATE TABLE outcome (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, use TEXT, resource INTEGER NOT NULL,
            version INTEGER NOT NULL, outcome TEXT NOT NULL, usage TEXT, task_type TEXT, evidence TEXT,
            session TEXT
        ) STRICT;
        CREATE INDEX outcome_resource ON outcome (resource);
    """)


def m004_proposals(db: Any) -> None:
    """Changes that wait for a decision."""
    db.executescript("""
        CREATE TABLE proposal (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            base INTEGER NOT NULL, manifest TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT NOT NULL, session TEXT,
            state TEXT NOT NULL, decision TEXT, operation INTEGER
        ) STRICT;
    """)


def m005_channel(db: Any) -> None:
    """The stable channel: moves and what each placed. Hosts saw every head until now, so the channel begins there."""
    db.executescript("""
        CREATE TABLE move (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, session TEXT,
            operation INTEGER NOT NULL, policy TEXT
        ) STRICT;
        CREATE INDEX move_policy ON move (id) WHERE policy IS NOT NULL;
        -- The last row of a resource says which version hosts see, as the last change of it is its head.
        CREATE TABLE placing (
            move INTEGER NOT NULL, resource INTEGER NOT NULL, before INTEGER, after INTEGER, withdrawn INTEGER NOT NULL,
            PRIMARY KEY (resource, move)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX placing_move ON placing (move);
        INSERT INTO placing SELECT 1, r.id, NULL, c.after, 0 FROM resource r JOIN change c ON c.sequence = (
                SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1
            ) WHERE r.kind = 'skill' AND c.after IS NOT NULL;
        INSERT INTO move SELECT 1, at, 'import', 'The channel begins with every skill as it is.', NULL, id, NULL
            FROM operation WHERE id = (SELECT max(id) FROM operation) AND EXISTS (SELECT 1 FROM placing);
    """)


def m006_reviews(db: Any) -> None:
    """Reviews of sessions, what sessions showed, what thinking cost, and why a proposal was made."""
    db.executescript("""
        CREATE TABLE review (
            id TEXT PRIMARY KEY, session TEXT NOT NULL, digest TEXT NOT NULL, reviewer INTEGER NOT NULL,
            at TEXT NOT NULL, state TEXT NOT NULL, packet TEXT, answer TEXT, result TEXT
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX review_session ON review (session);
        CREATE TABLE episode (
            id INTEGER PRIMARY KEY, session TEXT NOT NULL, turn INTEGER NOT NULL, at TEXT NOT NULL,
            signal TEXT NOT NULL, key TEXT NOT NULL, quote TEXT NOT NULL, origin TEXT NOT NULL,
            settled INTEGER NOT NULL,
            UNIQUE (session, turn, signal, key)
        ) STRICT;
        CREATE INDEX episode_key ON episode (key);
        CREATE TABLE spending (
            id INTEGER PRIMARY KEY, day TEXT NOT NULL, review TEXT NOT NULL, thinker TEXT NOT NULL,
            tokens INTEGER NOT NULL, money REAL NOT NULL
        ) STRICT;
        CREATE INDEX spending_day ON spending (day);
        ALTER TABLE proposal ADD COLUMN grounds TEXT;
        ALTER TABLE proposal ADD COLUMN fingerprint TEXT;
        ALTER TABLE proposal ADD COLUMN expires TEXT;
        CREATE INDEX proposal_session ON proposal (session) WHERE session IS NOT NULL;
    """)


def m007_sightings(db: Any) -> None:
    """What was shown to agents, and what finished sessions showed of the versions that they used."""
    db.executescript("""
        CREATE TABLE shown (
            search TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, session TEXT,
            PRIMARY KEY (search, resource)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX shown_resource ON shown (resource, at);
        -- What a transcript shows is replaced whole when its session has grown.
        CREATE TABLE taken (
            session TEXT PRIMARY KEY, client TEXT NOT NULL, digest TEXT NOT NULL, spans INTEGER NOT NULL,
            at TEXT NOT NULL, model TEXT, outcome TEXT, signals TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE sighting (
            session TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, model TEXT,
            loaded INTEGER NOT NULL, used INTEGER NOT NULL, how TEXT NOT NULL, outcome TEXT, signals TEXT NOT NULL,
            PRIMARY KEY (session, resource, version)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sighting_resource ON sighting (resource);
        CREATE INDEX use_session ON use (session) WHERE session IS NOT NULL;
    """)


def m008_findings(db: Any) -> None:
    """What a scan found in a proposal."""
    db.execute("ALTER TABLE proposal ADD COLUMN findings TEXT")


def m009_times(db: Any) -> None:
    """How often the same was proposed while it waited."""
    db.execute("ALTER TABLE proposal ADD COLUMN times INTEGER NOT NULL DEFAULT 1")


def m010_principals(db: Any) -> None:
    """On whose behalf an operation was made, how that is known, and whether it came with an archive."""
    db.executescript("""
        ALTER TABLE operation ADD COLUMN principal TEXT;
        ALTER TABLE operation ADD COLUMN via TEXT;
        ALTER TABLE operation ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE proposal ADD COLUMN principal TEXT;
        ALTER TABLE proposal ADD COLUMN via TEXT;
    """)


def m011_signatures(db: Any) -> None:
    """Signatures of decisions, and up to which operation none is needed."""
    db.executescript("""
        CREATE TABLE signature (operation INTEGER PRIMARY KEY, key TEXT NOT NULL, signature BLOB NOT NULL) STRICT;
        CREATE TABLE baseline (
            key TEXT PRIMARY KEY, operation INTEGER NOT NULL, digest TEXT NOT NULL, signature BLOB NOT NULL
        ) STRICT, WITHOUT ROWID;
    """)


# Frozen: how evidence was counted before it was graded.
_WROTE = """EXISTS (SELECT 1 FROM change c JOIN operation o ON o.id = c.operation
    WHERE c.resource = fact.resource AND c.latest = fact.version AND c.manifest IS NOT NULL AND o.session = fact.key)"""
_WORTH = """WITH fact AS (
        SELECT o.resource, o.version,
            coalesce(o.session, (SELECT session FROM use WHERE id = o.use), o.use, 'word-' || o.id) AS key,
            coalesce(o.usage, 'used') IN ('used', 'partially_used') AS used,
            CASE WHEN coalesce(o.usage, 'used') IN ('used', 'partially_used') THEN o.outcome END AS outcome
        FROM outcome o WHERE o.id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY coalesce(use, id) ORDER BY at DESC, id DESC) AS place
            FROM outcome) WHERE place = 1)
        UNION ALL SELECT resource, version, session, used, outcome FROM sighting
    ), attempt AS (
        SELECT resource, {version} AS version, max(used) AS used,
            count(DISTINCT CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS kinds,
            max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS known
        FROM fact WHERE NOT ({wrote}) GROUP BY resource, key, 2
    )
    INSERT INTO regraded SELECT resource, version, count(*), sum(known = 'succeeded'), 0 FROM attempt
        WHERE used AND kinds = 1 GROUP BY resource, version"""


def m012_earned(db: Any) -> None:
    """What an outcome counts as, who was served, and what came with an archive.

    Older rows do not say who was served, so none of them is verified. `regraded` keeps what they were worth before, for
    all versions together (version 0) and for each one without the sessions that wrote it, so that a person is told once
    what fell.
    """
    worth = ";".join((_WORTH.format(version="0", wrote="0"), _WORTH.format(version="version", wrote=_WROTE)))
    db.executescript(f"""
        CREATE TABLE regraded (
            resource INTEGER NOT NULL, version INTEGER NOT NULL, ends INTEGER NOT NULL, successes INTEGER NOT NULL,
            said INTEGER NOT NULL, PRIMARY KEY (resource, version)
        ) STRICT, WITHOUT ROWID;
        {worth};
        -- origin: NULL for what this library noted, `import` for what an archive brought, which counts nothing.
        ALTER TABLE use ADD COLUMN principal TEXT;
        ALTER TABLE use ADD COLUMN connection TEXT;
        ALTER TABLE use ADD COLUMN origin TEXT;
        -- grade: '' for history that counts nothing, else reported or verified. voter: whose one vote it is.
        -- counts: it is that vote, so that no reader has to look for the last word.
        ALTER TABLE outcome ADD COLUMN principal TEXT;
        ALTER TABLE outcome ADD COLUMN grade TEXT NOT NULL DEFAULT '';
        ALTER TABLE outcome ADD COLUMN voter TEXT;
        ALTER TABLE outcome ADD COLUMN counts INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE outcome ADD COLUMN origin TEXT;
        -- link: the connection over which the server saw the session.
        ALTER TABLE sighting ADD COLUMN grade TEXT NOT NULL DEFAULT '';
        ALTER TABLE sighting ADD COLUMN link TEXT;
        ALTER TABLE sighting ADD COLUMN origin TEXT;
        ALTER TABLE taken ADD COLUMN witnessed INTEGER NOT NULL DEFAULT 1;
        ALTER TABLE taken ADD COLUMN origin TEXT;
        ALTER TABLE shown ADD COLUMN origin TEXT;
        CREATE TABLE client_session (
            session TEXT NOT NULL, connection TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (session, connection)
        ) STRICT, WITHOUT ROWID;
        UPDATE outcome SET grade = 'reported',
            voter = coalesce(session, (SELECT session FROM use WHERE id = outcome.use), use)
            WHERE EXISTS (SELECT 1 FROM use u WHERE u.resource = outcome.resource AND u.version = outcome.version
                AND (u.id = outcome.use AND (outcome.session IS NULL OR u.session IS outcome.session)
                    OR outcome.use IS NULL AND u.session = outcome.session));
        UPDATE outcome SET counts = 1 WHERE id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY resource, version, voter ORDER BY at DESC, id DESC) AS place
            FROM outcome WHERE grade <> '') WHERE place = 1);
        CREATE INDEX outcome_counts ON outcome (resource) WHERE counts;
        CREATE INDEX outcome_voter ON outcome (voter, resource) WHERE grade <> '';
        UPDATE sighting SET grade = 'reported' WHERE EXISTS (
            SELECT 1 FROM use u WHERE u.session = sighting.session AND u.resource = sighting.resource
                AND u.version = sighting.version);
    """)


def m013_secrets(db: Any) -> None:
    """What was found in which blob, what a person said of it, and purges that have not ended."""
    db.executescript("""
        -- Every blob that was looked at, by its hash: what was found in it as JSON, '' for nothing.
        CREATE TABLE looked (
            sha256 TEXT PRIMARY KEY, rules INTEGER NOT NULL, found TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX looked_found ON looked (sha256) WHERE found <> '';
        CREATE TABLE accepted (
            id TEXT PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE purging (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, kind TEXT NOT NULL,
            texts TEXT NOT NULL, blobs TEXT NOT NULL
        ) STRICT;
        CREATE TABLE purged (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, kind TEXT NOT NULL,
            blobs TEXT NOT NULL
        ) STRICT;
    """)


def m014_trust(db: Any) -> None:
    """What a person vouches for, who is known later to have made a version, and what is held in watched folders."""
    db.executescript("""
        CREATE TABLE vouched (
            id INTEGER PRIMARY KEY, resource INTEGER NOT NULL, tree TEXT NOT NULL, at TEXT NOT NULL,
            principal TEXT NOT NULL, via TEXT NOT NULL, withdrawn INTEGER NOT NULL, signature BLOB
        ) STRICT;
        CREATE INDEX vouched_resource ON vouched (resource, tree);
        CREATE TABLE attribution (
            resource INTEGER NOT NULL, version INTEGER NOT NULL, principal TEXT NOT NULL, via TEXT NOT NULL,
            at TEXT NOT NULL,
            PRIMARY KEY (resource, version)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE held (
            folder INTEGER NOT NULL, directory TEXT NOT NULL, tree TEXT NOT NULL, proposal INTEGER NOT NULL,
            at TEXT NOT NULL,
            PRIMARY KEY (folder, directory)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX operation_repository ON operation (id) WHERE principal = 'repository';
    """)


def m015_trusted_folders(db: Any) -> None:
    """Which folder a decision to trust was made on: '' for one on a single resource, NULL where nobody kept it."""
    db.execute("ALTER TABLE vouched ADD COLUMN folder TEXT")


STEPS = (
    m001_library,
    m002_working_copies,
    m003_evidence,
    m004_proposals,
    m005_channel,
    m006_reviews,
    m007_sightings,
    m008_findings,
    m009_times,
    m010_principals,
    m011_signatures,
    m012_earned,
    m013_secrets,
    m014_trust,
    m015_trusted_folders,
)
"""In order; a step is never changed after a release, only followed by another."""

LATEST = len(STEPS)


def migrate(connection: "Connection", path: Path) -> None:
    """Brings the file to LATEST; safe when many processes start at once.

    Raises LibraryTooNew when a newer program wrote it, LibraryCorrupt when it belongs to something else.
    """
    if schema_version(connection, path) == LATEST:
        return
    import sqlite_utils
    from sqlite_utils.migrations import Migrations

    steps = Migrations("evolvable")
    for step in STEPS:
        steps()(step)
    # sqlite-utils begins its transactions deferred, and two processes that both find a step pending would
    # both run it. Taking the write lock first makes its own transactions savepoints of ours.
    with driver.ImmediateTransaction(connection, path):
        if schema_version(connection, path) < LATEST:
            steps.apply(sqlite_utils.Database(connection, execute_plugins=False))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={LATEST}")


def schema_version(connection: "Connection", path: Path) -> int:
    """Returns how many steps the file has had, 0 for an empty one; writes nothing. Raises as `migrate`."""
    with driver.translate_errors(path):
        # In this order: a process that makes the library meanwhile gives it tables and our id in one commit.
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID and not (empty and application == 0):
        raise LibraryCorrupt(f"{path} belongs to another program.", "Name another folder for the library.")
    if version > LATEST:
        raise LibraryTooNew(
            f"{path} was written by a newer Evolvable (schema {version}, this one knows {LATEST}).",
            "Update this program: pip install -U evolvable. Nothing was touched.",
        )
    return version


PAGE_SIZE = 2048
"""Bytes of a page in a new library: half of SQLite's own makes a commit 5 % faster and the file a fifth smaller."""

JOURNAL_SECONDS = 2.0
"""How long opening tries to get the journal mode that is right; after that it goes on with the one there is."""


def open_library(path: Path) -> tuple["Connection", driver.Access, str]:
    """Open the library file, or create it, and migrate it; return the connection, its access and the journal mode.

    The journal mode is '' where the file cannot be written.
    """
    if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return _open_writable(path)
    try:
        return _open_as(path, "read")
    except LibraryReadOnly:
        # Reading a log needs shared memory, which cannot be made here; a cleanly closed library has no log.
        for log in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
            if log.exists() and log.stat().st_size:
                raise LibraryReadOnly(
                    f"{path} cannot be written, and its newest changes are still in {log.name}.",
                    "Copy the whole folder to where it can be written, and open it there.",
                ) from None
        return _open_as(path, "immutable")


def _open_writable(path: Path) -> tuple["Connection", driver.Access, str]:
    with _opening_lock(path):
        for _ in driver.retry(JOURNAL_SECONDS, longest=0.02):
            opened = _open_as(path, "create")
            if opened[2] == driver.preferred_journal(path):
                return opened
            opened[0].close()  # an open connection, even an idle one, keeps others from leaving WAL mode too
        return _open_as(path, "create")


def _open_as(path: Path, access: driver.Access) -> tuple["Connection", driver.Access, str]:
    connection, journal = driver.connect(path, durable=True, access=access), ""
    with contextlib.ExitStack() as unless_ready:
        unless_ready.callback(connection.close)
        schema_version(connection, path)  # the file of another program is refused before anything is written
        if access == "create":
            connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
            journal = driver.set_journal(connection, path)
        migrate(connection, path)
        unless_ready.pop_all()
    return connection, "write" if access == "create" else access, journal


@contextlib.contextmanager
def _opening_lock(path: Path) -> Iterator[None]:
    """Let one process at a time open the file where it may have to leave WAL mode."""
    if driver.wal_is_safe():
        yield
        return
    from filelock import FileLock, Timeout  # start time: most SQLite versions need no lock

    try:
        lock = path.with_name("opening.lock")
        with FileLock(lock, timeout=driver.GIVE_UP_SECONDS, poll_interval=0.005, mode=0o600):
            yield
    except Timeout as error:
        raise LibraryBusy("Other processes are opening the library.", "Try again in a moment.") from error
