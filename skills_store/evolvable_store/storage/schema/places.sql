-- What names paths of one machine, of a library whose other rows lie in a database that others can write.
-- Numbers below are of folders that such a database held before: the notes of unfinished checkouts name them.
CREATE TABLE folder (
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO sqlite_sequence (name, seq) VALUES ('folder', 1000000);
CREATE TABLE binding (
    folder INTEGER NOT NULL, directory TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER,
    signature TEXT NOT NULL, conflict TEXT,
    PRIMARY KEY (folder, directory)
) STRICT, WITHOUT ROWID;
CREATE INDEX binding_resource ON binding (resource);
CREATE TABLE listing (
    settings TEXT PRIMARY KEY, collection TEXT NOT NULL, written TEXT NOT NULL, at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
