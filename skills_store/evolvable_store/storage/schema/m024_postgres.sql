-- PostgreSQL's spelling of m024_shown.sql, for all projects at once: the owner of the tables sees the rows of each
-- while row security is not forced on it.
ALTER TABLE shown NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "use" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE taken NO FORCE ROW LEVEL SECURITY;
UPDATE shown SET origin = 'unknown' WHERE origin IS NULL AND session IS NULL
    AND NOT EXISTS (SELECT 1 FROM "use" u WHERE u.project = shown.project AND u.search = shown.search)
    AND EXISTS (SELECT 1 FROM taken t WHERE t.project = shown.project AND t.origin IS NULL);
ALTER TABLE shown FORCE ROW LEVEL SECURITY;
ALTER TABLE "use" FORCE ROW LEVEL SECURITY;
ALTER TABLE taken FORCE ROW LEVEL SECURITY;
