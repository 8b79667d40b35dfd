-- Tasks that a resource was used for with success, and tasks for which another resource was right (against = 1).
-- source: `session`, or `person` for a correction. link: the connection over which the server saw the session.
CREATE TABLE learned (
    id INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL, task TEXT NOT NULL, at TEXT NOT NULL,
    against INTEGER NOT NULL, source TEXT NOT NULL, session TEXT, link TEXT
) STRICT;
CREATE INDEX learned_resource ON learned (resource);
CREATE INDEX learned_session ON learned (session) WHERE session IS NOT NULL;
-- The last change of each resource's learned tasks, for the index.
CREATE TABLE learned_change (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL UNIQUE
) STRICT;
