-- What was shown to agents, and what finished sessions showed of the versions that they used.
CREATE TABLE shown (
    search TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, session TEXT,
    PRIMARY KEY (search, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX shown_resource ON shown (resource, at);
-- What a transcript shows is replaced whole when its session has grown.
CREATE TABLE taken (
    session TEXT PRIMARY KEY, client TEXT NOT NULL, digest TEXT NOT NULL, spans INTEGER NOT NULL,
    at TEXT NOT NULL, model TEXT, outcome TEXT, signals TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sighting (
    session TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, model TEXT,
    loaded INTEGER NOT NULL, used INTEGER NOT NULL, how TEXT NOT NULL, outcome TEXT, signals TEXT NOT NULL,
    PRIMARY KEY (session, resource, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX sighting_resource ON sighting (resource);
CREATE INDEX use_session ON use (session) WHERE session IS NOT NULL;
