-- Which folder a decision to trust was made on: '' for one on a single resource, NULL where nobody kept it.
ALTER TABLE vouched ADD COLUMN folder TEXT;
