-- When an operation that was made in another library came into this one, by the clock here. NULL for one that was made
-- here, whose time is `at`; for one that a program before this step took in; and for a copy of a history of this library.
ALTER TABLE operation ADD COLUMN arrived_at TEXT;
