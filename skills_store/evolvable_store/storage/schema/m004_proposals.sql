-- Changes that wait for a decision.
CREATE TABLE proposal (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    base INTEGER NOT NULL, manifest TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT NOT NULL, session TEXT,
    state TEXT NOT NULL, decision TEXT, operation INTEGER
) STRICT;
