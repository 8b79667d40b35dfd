-- Who worked in a session: `main`, and each sub-agent. agent, version: of its resource, where the library holds it.
CREATE TABLE execution (
    session TEXT NOT NULL, executor TEXT NOT NULL, agent INTEGER, version INTEGER, at TEXT NOT NULL, model TEXT,
    spans INTEGER NOT NULL, outcome TEXT, PRIMARY KEY (session, executor)
) STRICT, WITHOUT ROWID;
CREATE INDEX execution_at ON execution (at);
-- What each of them loaded and used. The sum over a session is its rows in `sighting`.
CREATE TABLE execution_use (
    session TEXT NOT NULL, executor TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    at TEXT NOT NULL, loaded INTEGER NOT NULL, used INTEGER NOT NULL, how TEXT NOT NULL, outcome TEXT,
    PRIMARY KEY (session, executor, resource, version)
) STRICT, WITHOUT ROWID;
