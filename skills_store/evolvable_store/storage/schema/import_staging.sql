-- The staged archive. Rows are in the order of the archive.
CREATE TABLE operation (id INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
CREATE TABLE change (
    position INTEGER PRIMARY KEY, operation INTEGER NOT NULL, ref TEXT NOT NULL, after INTEGER, hash TEXT,
    files TEXT, latest INTEGER, frozen INTEGER, blobs TEXT, missing INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX change_ref ON change (ref, position);
CREATE TABLE move (position INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
CREATE TABLE evidence (position INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
CREATE TABLE blob (sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL, codec TEXT NOT NULL) STRICT;
