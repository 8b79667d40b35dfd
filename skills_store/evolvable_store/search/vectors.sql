-- Embeddings of texts, and the texts that each resource has at its head.
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE model (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL) STRICT;
CREATE TABLE resource (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL
) STRICT;
CREATE TABLE said (
    role TEXT NOT NULL, resource INTEGER NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (role, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX said_resource ON said (resource);
CREATE INDEX said_hash ON said (hash);
-- Rows are long, so they stay out of the tree that is searched.
CREATE TABLE vector (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vector_text ON vector (model, hash);
-- Vectors of a text's tokens, one byte for each number.
CREATE TABLE token (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX token_text ON token (model, hash);
