-- Reviews of sessions, what sessions showed, what thinking cost, and why a proposal was made.
CREATE TABLE review (
    id TEXT PRIMARY KEY, session TEXT NOT NULL, digest TEXT NOT NULL, reviewer INTEGER NOT NULL,
    at TEXT NOT NULL, state TEXT NOT NULL, packet TEXT, answer TEXT, result TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX review_session ON review (session);
CREATE TABLE episode (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, turn INTEGER NOT NULL, at TEXT NOT NULL,
    signal TEXT NOT NULL, key TEXT NOT NULL, quote TEXT NOT NULL, origin TEXT NOT NULL,
    settled INTEGER NOT NULL,
    UNIQUE (session, turn, signal, key)
) STRICT;
CREATE INDEX episode_key ON episode (key);
CREATE TABLE spending (
    id INTEGER PRIMARY KEY, day TEXT NOT NULL, review TEXT NOT NULL, thinker TEXT NOT NULL,
    tokens INTEGER NOT NULL, money REAL NOT NULL
) STRICT;
CREATE INDEX spending_day ON spending (day);
ALTER TABLE proposal ADD COLUMN grounds TEXT;
ALTER TABLE proposal ADD COLUMN fingerprint TEXT;
ALTER TABLE proposal ADD COLUMN expires TEXT;
CREATE INDEX proposal_session ON proposal (session) WHERE session IS NOT NULL;
