-- The text index: what it holds of each entry, and the postings of their terms.
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- `ANALYSIS` of analyzer.py; versions before it note none.
INSERT INTO state VALUES ('analysis', '1');
CREATE TABLE entry (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    description TEXT NOT NULL, triggers TEXT NOT NULL, frozen INTEGER NOT NULL, person_only INTEGER NOT NULL,
    delegate TEXT NOT NULL, tree TEXT NOT NULL, document INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX entry_document ON entry (document);
CREATE UNIQUE INDEX entry_name ON entry (name, kind, scope);
-- Names and triggers: `text` as terms between single spaces, `head` the first two, `said` as words.
CREATE TABLE phrase (
    head TEXT NOT NULL, size INTEGER NOT NULL, text TEXT NOT NULL, source TEXT NOT NULL, said TEXT NOT NULL,
    resource INTEGER NOT NULL, PRIMARY KEY (head, size, text, source, said, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX phrase_resource ON phrase (resource);
-- What a judge answered; the oldest go first.
CREATE TABLE answer (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value TEXT NOT NULL) STRICT;
-- resource is NULL when the document is gone but its postings are not.
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER, settled INTEGER NOT NULL, terms BLOB NOT NULL
) STRICT;
CREATE INDEX document_waiting ON document (id) WHERE settled = 0 OR resource IS NULL;
CREATE TABLE posting (
    term TEXT NOT NULL, field INTEGER NOT NULL, block INTEGER NOT NULL,
    documents BLOB NOT NULL, weights BLOB NOT NULL,
    PRIMARY KEY (term, field, block)
) STRICT, WITHOUT ROWID;
-- Postings of rare terms, as rare_postings.py describes them.
CREATE TABLE rare (bucket INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;
