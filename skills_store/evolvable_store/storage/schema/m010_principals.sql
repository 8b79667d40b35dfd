-- On whose behalf an operation was made, how that is known, and whether it came with an archive.
ALTER TABLE operation ADD COLUMN principal TEXT;
ALTER TABLE operation ADD COLUMN via TEXT;
ALTER TABLE operation ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE proposal ADD COLUMN principal TEXT;
ALTER TABLE proposal ADD COLUMN via TEXT;
