-- What was found in which blob, what a person said of it, and purges that have not ended.
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
