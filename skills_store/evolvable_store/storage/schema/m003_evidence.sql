-- What was loaded, what came of it, and what waits for a decision.
CREATE TABLE use (
    id TEXT PRIMARY KEY, at TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    search TEXT, session TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX use_resource ON use (resource);
CREATE TABLE outcome (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, use TEXT, resource INTEGER NOT NULL,
    version INTEGER NOT NULL, outcome TEXT NOT NULL, usage TEXT, task_type TEXT, evidence TEXT,
    session TEXT
) STRICT;
CREATE INDEX outcome_resource ON outcome (resource);
