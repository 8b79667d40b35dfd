-- How often the same was proposed while it waited.
ALTER TABLE proposal ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
