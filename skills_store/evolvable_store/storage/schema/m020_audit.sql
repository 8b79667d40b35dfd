-- The audit log: a row for each decision. `hash` covers the row and the hash of the row before it, '' before the first.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, decision TEXT NOT NULL, subject TEXT NOT NULL, principal TEXT NOT NULL,
    via TEXT NOT NULL, address TEXT NOT NULL, session TEXT NOT NULL, operation INTEGER, previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
