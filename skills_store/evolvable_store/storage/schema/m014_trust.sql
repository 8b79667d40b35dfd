-- What a person vouches for, who is known later to have made a version, and what is held in watched folders.
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
