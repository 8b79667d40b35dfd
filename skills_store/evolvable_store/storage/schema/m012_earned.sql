-- What an outcome counts as, who was served, and what came with an archive.
--
-- Older rows do not say who was served, so none of them is verified. `regraded` keeps what they were worth before, for
-- all versions together (version 0) and for each one without the sessions that wrote it, so that a person is told once
-- what fell.
CREATE TABLE regraded (
    resource INTEGER NOT NULL, version INTEGER NOT NULL, ends INTEGER NOT NULL, successes INTEGER NOT NULL,
    said INTEGER NOT NULL, PRIMARY KEY (resource, version)
) STRICT, WITHOUT ROWID;
-- All versions together.
WITH fact AS (
    SELECT o.resource, o.version,
        coalesce(o.session, (SELECT session FROM use WHERE id = o.use), o.use, 'word-' || o.id) AS key,
        coalesce(o.usage, 'used') IN ('used', 'partially_used') AS used,
        CASE WHEN coalesce(o.usage, 'used') IN ('used', 'partially_used') THEN o.outcome END AS outcome
    FROM outcome o WHERE o.id IN (SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY coalesce(use, id) ORDER BY at DESC, id DESC) AS place
        FROM outcome) WHERE place = 1)
    UNION ALL SELECT resource, version, session, used, outcome FROM sighting
), attempt AS (
    SELECT resource, 0 AS version, max(used) AS used,
        count(DISTINCT CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS kinds,
        max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS known
    FROM fact GROUP BY resource, key, 2
)
INSERT INTO regraded SELECT resource, version, count(*), sum(known = 'succeeded'), 0 FROM attempt
    WHERE used AND kinds = 1 GROUP BY resource, version;
-- Each version, without the sessions that wrote it.
WITH fact AS (
    SELECT o.resource, o.version,
        coalesce(o.session, (SELECT session FROM use WHERE id = o.use), o.use, 'word-' || o.id) AS key,
        coalesce(o.usage, 'used') IN ('used', 'partially_used') AS used,
        CASE WHEN coalesce(o.usage, 'used') IN ('used', 'partially_used') THEN o.outcome END AS outcome
    FROM outcome o WHERE o.id IN (SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY coalesce(use, id) ORDER BY at DESC, id DESC) AS place
        FROM outcome) WHERE place = 1)
    UNION ALL SELECT resource, version, session, used, outcome FROM sighting
), attempt AS (
    SELECT resource, version, max(used) AS used,
        count(DISTINCT CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS kinds,
        max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS known
    FROM fact
    WHERE NOT (EXISTS (SELECT 1 FROM change c JOIN operation o ON o.id = c.operation
        WHERE c.resource = fact.resource AND c.latest = fact.version AND c.manifest IS NOT NULL
            AND o.session = fact.key))
    GROUP BY resource, key, 2
)
INSERT INTO regraded SELECT resource, version, count(*), sum(known = 'succeeded'), 0 FROM attempt
    WHERE used AND kinds = 1 GROUP BY resource, version;
-- origin: NULL for what this library noted, `import` for what an archive brought, which counts nothing.
ALTER TABLE use ADD COLUMN principal TEXT;
ALTER TABLE use ADD COLUMN connection TEXT;
ALTER TABLE use ADD COLUMN origin TEXT;
-- grade: '' for history that counts nothing, else reported or verified. voter: whose one vote it is.
-- counts: it is that vote, so that no reader has to look for the last word.
ALTER TABLE outcome ADD COLUMN principal TEXT;
ALTER TABLE outcome ADD COLUMN grade TEXT NOT NULL DEFAULT '';
ALTER TABLE outcome ADD COLUMN voter TEXT;
ALTER TABLE outcome ADD COLUMN counts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcome ADD COLUMN origin TEXT;
-- link: the connection over which the server saw the session.
ALTER TABLE sighting ADD COLUMN grade TEXT NOT NULL DEFAULT '';
ALTER TABLE sighting ADD COLUMN link TEXT;
ALTER TABLE sighting ADD COLUMN origin TEXT;
ALTER TABLE taken ADD COLUMN witnessed INTEGER NOT NULL DEFAULT 1;
ALTER TABLE taken ADD COLUMN origin TEXT;
ALTER TABLE shown ADD COLUMN origin TEXT;
CREATE TABLE client_session (
    session TEXT NOT NULL, connection TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (session, connection)
) STRICT, WITHOUT ROWID;
UPDATE outcome SET grade = 'reported',
    voter = coalesce(session, (SELECT session FROM use WHERE id = outcome.use), use)
    WHERE EXISTS (SELECT 1 FROM use u WHERE u.resource = outcome.resource AND u.version = outcome.version
        AND (u.id = outcome.use AND (outcome.session IS NULL OR u.session IS outcome.session)
            OR outcome.use IS NULL AND u.session = outcome.session));
UPDATE outcome SET counts = 1 WHERE id IN (SELECT id FROM (
    SELECT id, row_number() OVER (PARTITION BY resource, version, voter ORDER BY at DESC, id DESC) AS place
    FROM outcome WHERE grade <> '') WHERE place = 1);
CREATE INDEX outcome_counts ON outcome (resource) WHERE counts;
CREATE INDEX outcome_voter ON outcome (voter, resource) WHERE grade <> '';
UPDATE sighting SET grade = 'reported' WHERE EXISTS (
    SELECT 1 FROM use u WHERE u.session = sighting.session AND u.resource = sighting.resource
        AND u.version = sighting.version);
