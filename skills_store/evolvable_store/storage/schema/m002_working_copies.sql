-- The folders that mirror a scope, and which version each of their directories holds.
CREATE TABLE folder (
    id INTEGER PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE binding (
    folder INTEGER NOT NULL, directory TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER,
    signature TEXT NOT NULL, conflict TEXT,
    PRIMARY KEY (folder, directory)
) STRICT, WITHOUT ROWID;
CREATE INDEX binding_resource ON binding (resource);
