-- Versions on trial, the sessions that were assigned to one of its two arms, and the task type of a session.
--
-- incumbent: the version that the control arm is served. salt: the secret of the assignment, so that no client can
-- choose a session's name that falls into an arm. number: of the trial among those of its resource, from 1. described:
-- the description differs, so a search shows it. approved: a person put it on trial. looks: JSON, one for each look.
CREATE TABLE pool (
    id INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    incumbent INTEGER NOT NULL, state TEXT NOT NULL, since_round INTEGER NOT NULL, at TEXT NOT NULL,
    salt BLOB NOT NULL, share REAL NOT NULL, number INTEGER NOT NULL, described INTEGER NOT NULL,
    approved INTEGER NOT NULL, reason TEXT NOT NULL, looks TEXT NOT NULL, ended TEXT, why TEXT, operation INTEGER
) STRICT;
CREATE UNIQUE INDEX pool_trial ON pool (resource) WHERE state = 'trial';
-- unit: the session, or the connection of a call without one. trial: 1 in the arm that is served the trial version.
CREATE TABLE pool_unit (
    pool INTEGER NOT NULL, unit TEXT NOT NULL, session TEXT, connection TEXT, search TEXT, trial INTEGER NOT NULL,
    at TEXT NOT NULL, PRIMARY KEY (pool, unit)
) STRICT, WITHOUT ROWID;
ALTER TABLE taken ADD COLUMN task_type TEXT;
