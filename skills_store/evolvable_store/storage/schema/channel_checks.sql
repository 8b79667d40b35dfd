-- What is wrong with a release channel: of each row that a query finds, which thing and what.
-- move {0}: there is no actor '{1}'
SELECT id, actor FROM move WHERE actor NOT IN (SELECT value FROM json_each(:actors));
-- move {0}: there is no policy '{1}'
SELECT id, policy FROM move WHERE policy NOT IN (SELECT value FROM json_each(:policies));
-- move {0}: it places nothing and sets no policy
SELECT id FROM move WHERE policy IS NULL AND id NOT IN (SELECT move FROM placing);
-- move {0}: its operation {1} is missing
SELECT id, operation FROM move WHERE operation <> 0 AND operation NOT IN (SELECT id FROM operation);
-- resource {1} in move {0}: its move is missing
SELECT move, resource FROM placing WHERE move NOT IN (SELECT id FROM move);
-- resource {1} in move {0}: it is no skill
SELECT move, resource FROM placing WHERE resource NOT IN (SELECT id FROM resource WHERE kind = 'skill');
-- resource {1} in move {0}: hosts are shown version {2}, which is missing
SELECT move, resource, after FROM placing p WHERE after IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM change c WHERE c.resource = p.resource AND c.latest = p.after AND c.manifest IS NOT NULL);
-- resource {1} in move {0}: it says that it followed version {2}, that was {3}
SELECT move, resource, before, was FROM (
    SELECT *, lag(after) OVER (PARTITION BY resource ORDER BY move) AS was FROM placing
) WHERE before IS NOT was;
-- resource {1} in move {0}: it is withdrawn and shown
SELECT move, resource FROM placing WHERE withdrawn = 1 AND after IS NOT NULL;
