-- What is wrong with the evidence: of each row that a query finds, which record and what.
-- shown {0}: version {2} of resource {1} is missing
SELECT search, resource, version FROM shown e WHERE version < 1 OR version > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- use {0}: version {2} of resource {1} is missing
SELECT id, resource, version FROM use e WHERE version < 1 OR version > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- outcome {0}: version {2} of resource {1} is missing
SELECT id, resource, version FROM outcome e WHERE version < 1 OR version > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- sighting {0}: version {2} of resource {1} is missing
SELECT session, resource, version FROM sighting e WHERE version < 1 OR version > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- execution of session {0}: version {2} of resource {1} is missing
SELECT session, resource, version FROM execution_use e WHERE version < 1 OR version > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- execution of session {0}: there is no outcome {1!r}
SELECT session, outcome FROM execution WHERE outcome NOT IN (SELECT value FROM json_each(:outcomes))
UNION ALL SELECT session, outcome FROM execution_use WHERE outcome NOT IN (SELECT value FROM json_each(:outcomes));
-- trial {0}: version {2} of resource {1} is missing
SELECT id, resource, version FROM pool e WHERE version < 1 OR max(version, incumbent) > (
    SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource);
-- trial {0}: its state is {1!r}
SELECT id, state FROM pool WHERE state NOT IN ('trial', 'promoted', 'retired') OR json_valid(looks) = 0;
-- outcome of session {0}: there is no outcome {1!r}
SELECT coalesce(session, ''), outcome FROM outcome WHERE outcome NOT IN (SELECT value FROM json_each(:outcomes));
-- outcome of session {0}: there is no usage {1!r}
SELECT coalesce(session, ''), usage FROM outcome WHERE usage NOT IN (SELECT value FROM json_each(:usages));
-- sighting of session {0}: there is no outcome {1!r}
SELECT coalesce(session, ''), outcome FROM sighting WHERE outcome NOT IN (SELECT value FROM json_each(:outcomes));
-- taken of session {0}: there is no outcome {1!r}
SELECT coalesce(session, ''), outcome FROM taken WHERE outcome NOT IN (SELECT value FROM json_each(:outcomes));
