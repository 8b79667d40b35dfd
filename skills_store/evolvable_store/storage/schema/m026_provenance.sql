-- Which version each file of a version has its bytes from, against the newest version that a person stood for. NULL in
-- versions of older programs: it is found from the principals of their operations.
ALTER TABLE change ADD COLUMN provenance TEXT;
