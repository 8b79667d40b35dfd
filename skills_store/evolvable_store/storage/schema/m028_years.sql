-- What searches showed of a resource on one day, once the single rows are folded. last: the moment of the last of them.
CREATE TABLE shown_day (
    resource INTEGER NOT NULL, day TEXT NOT NULL, number INTEGER NOT NULL, last TEXT NOT NULL,
    PRIMARY KEY (resource, day)
) STRICT, WITHOUT ROWID;
-- When the files of a proposal that was turned down were removed. Its row stays, and the hashes of its files with it.
ALTER TABLE proposal ADD COLUMN files_removed_at TEXT;
