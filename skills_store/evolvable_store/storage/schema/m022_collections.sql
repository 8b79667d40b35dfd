-- Named sets of skills.
CREATE TABLE collection (
    name TEXT NOT NULL, resource INTEGER NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (name, resource)
) STRICT, WITHOUT ROWID;
-- The collection that a client lists, by the client's settings file. written: the settings that were added, as JSON.
CREATE TABLE listing (
    settings TEXT PRIMARY KEY, collection TEXT NOT NULL, written TEXT NOT NULL, at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
