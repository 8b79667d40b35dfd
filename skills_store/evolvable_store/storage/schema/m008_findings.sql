-- What a scan found in a proposal.
ALTER TABLE proposal ADD COLUMN findings TEXT;
