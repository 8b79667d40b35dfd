-- Blobs, resources, operations, and the log of changes that makes versions and heads.
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
-- state after the row, so the last row of a resource is its head and nothing else has to be updated.
CREATE TABLE change (
    sequence INTEGER PRIMARY KEY, operation INTEGER NOT NULL, resource INTEGER NOT NULL,
    before INTEGER, after INTEGER, latest INTEGER NOT NULL, tree TEXT NOT NULL, hash TEXT NOT NULL,
    frozen INTEGER NOT NULL, manifest TEXT
) STRICT;
CREATE INDEX change_resource ON change (resource, latest);
