-- held_out = 1: a person's label that lookup is tested with and never learns.
ALTER TABLE learned ADD COLUMN held_out INTEGER NOT NULL DEFAULT 0;
