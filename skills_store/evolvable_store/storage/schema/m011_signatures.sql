-- Signatures of decisions, and up to which operation none is needed.
CREATE TABLE signature (operation INTEGER PRIMARY KEY, key TEXT NOT NULL, signature BLOB NOT NULL) STRICT;
CREATE TABLE baseline (
    key TEXT PRIMARY KEY, operation INTEGER NOT NULL, digest TEXT NOT NULL, signature BLOB NOT NULL
) STRICT, WITHOUT ROWID;
