-- Queries of the repositories, by name. What stands in braces is filled in where a query is used.

-- Loadings by resource. What a transcript shows counts where no call reported it already.
-- name: loaded
WITH asked AS (SELECT CAST(value AS INTEGER) AS id FROM json_each(?1))
SELECT resource, count(*) FROM (
    SELECT resource FROM use WHERE resource IN (SELECT id FROM asked) AND origin IS NULL
    UNION ALL
    SELECT resource FROM sighting s WHERE resource IN (SELECT id FROM asked) AND loaded = 1 AND origin IS NULL AND NOT EXISTS (
        SELECT 1 FROM use u WHERE u.session = s.session AND u.resource = s.resource AND u.origin IS NULL)
) GROUP BY resource

-- Outcomes by resource and kind, in the same way.
-- name: reported
WITH asked AS (SELECT CAST(value AS INTEGER) AS id FROM json_each(?1))
SELECT resource, outcome, count(*) FROM (
    SELECT resource, CASE grade WHEN '' THEN 'not_counted' ELSE outcome END AS outcome
    FROM outcome WHERE resource IN (SELECT id FROM asked) AND (counts OR grade = '')
    UNION ALL
    SELECT resource, CASE grade WHEN '' THEN 'not_counted' ELSE outcome END FROM sighting s
    WHERE resource IN (SELECT id FROM asked) AND outcome IS NOT NULL AND (grade = '' OR NOT EXISTS (
        SELECT 1 FROM outcome o WHERE o.voter = s.session AND o.resource = s.resource AND o.grade <> ''))
) GROUP BY resource, outcome

-- The beginning of every query about attempts. Of the words of one voter about a version one counts. Words about a skill
-- that was not followed say nothing of it.
-- name: attempt_facts
WITH asked AS (SELECT CAST(value AS INTEGER) AS id FROM json_each(?1)),
fact AS (
    SELECT resource, version, voter AS key, at, NULL AS model, lower(trim(task_type)) AS task_type, 0 AS loaded,
        1 AS used, outcome, grade, NULL AS link
    FROM outcome WHERE counts AND coalesce(usage, 'used') IN ('used', 'partially_used') AND {among}
    UNION ALL
    SELECT resource, version, session, at, model, NULL, loaded, used, CASE WHEN grade <> '' THEN outcome END,
        grade, link
    FROM sighting WHERE origin IS NULL AND {among}
    {more}
)

-- More facts: neither loading nor what was said of a skill that was not followed proves anything, so both are left out
-- where only the proof is asked for.
-- name: attempt_loads
UNION ALL SELECT resource, version, coalesce(session, id), at, NULL, NULL, 1, 0, NULL, '', NULL
FROM use WHERE origin IS NULL AND {among}
UNION ALL SELECT resource, version, voter, at, NULL, lower(trim(task_type)), 0, 0, NULL, '', NULL
FROM outcome WHERE counts AND usage IN ('ignored', 'inapplicable') AND {among}

-- An end that is known has a grade; a session may bring several, which agree (the least is the greatest) or do not.
-- name: ends
min(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS least,
max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END) AS known,
max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN grade END) AS grade

-- name: attempts
SELECT resource, {version} AS version, key, min(at), max(loaded), max(used), max(task_type),
    {ends},
    max(outcome), max(model), max(link)
FROM fact GROUP BY resource, key{also} ORDER BY min(at), key, resource, version

-- All attempts that ended in a way that counts, then the verified ones, of each connection the last.
-- name: successes
, attempt AS MATERIALIZED (
    SELECT resource, key, at, link, known, grade FROM (
        SELECT resource, key, max(at) AS at, max(link) AS link, max(used) AS used,
            {ends}
        FROM fact GROUP BY resource, key)
    WHERE used = 1 AND least = known)
SELECT resource, 0, count(*), sum(known = 'succeeded') FROM attempt GROUP BY resource
UNION ALL
SELECT resource, 1, count(*), sum(known = 'succeeded') FROM (
    SELECT resource, known, row_number() OVER (PARTITION BY resource, coalesce(link, key) ORDER BY at DESC) AS place
    FROM attempt WHERE grade = 'verified')
WHERE place = 1 GROUP BY resource

-- The ends of the sessions that the server saw and in which no resource was loaded.
-- name: baseline_successes
SELECT count(*), coalesce(sum(outcome = 'succeeded'), 0) FROM taken t
WHERE outcome IN ('succeeded', 'failed', 'partial') AND witnessed = 1 AND origin IS NULL
AND NOT EXISTS (SELECT 1 FROM sighting s WHERE s.session = t.session)
AND NOT EXISTS (SELECT 1 FROM use u WHERE u.session = t.session)
AND NOT EXISTS (SELECT 1 FROM outcome o WHERE o.session = t.session)

-- What each executor of the ingested sessions did, and how far its end counts.
-- name: executions
SELECT e.session, e.executor, e.agent, e.version, e.at, coalesce(e.model, t.model), e.spans, e.outcome,
    CASE WHEN t.witnessed = 0 THEN '' WHEN e.agent IS NULL THEN 'verified' ELSE coalesce(s.grade, '') END,
    CASE WHEN t.witnessed = 1 THEN (SELECT connection FROM client_session c WHERE c.session = e.session
        ORDER BY connection LIKE 'http%', at LIMIT 1) END
FROM execution e JOIN taken t ON t.session = e.session AND t.origin IS NULL
LEFT JOIN sighting s ON s.session = e.session AND s.resource = e.agent AND s.version = e.version
WHERE (?1 IS NULL OR e.at >= ?1) AND (?2 IS NULL OR e.session = ?2) ORDER BY e.at, e.session, e.executor

-- name: execution_uses
SELECT u.session, u.executor, u.resource, u.version, u.at, u.loaded, u.used, u.how, u.outcome, coalesce(s.grade, '')
FROM execution_use u JOIN execution e ON e.session = u.session AND e.executor = u.executor
LEFT JOIN sighting s ON s.session = u.session AND s.resource = u.resource AND s.version = u.version
WHERE (?1 IS NULL OR e.at >= ?1) AND (?2 IS NULL OR e.session = ?2)
ORDER BY u.session, u.executor, u.at, u.resource, u.version

-- What searches showed: the single rows, and the days whose rows are folded.
-- name: impressions
SELECT resource, CAST(sum(number) AS INTEGER), CAST(sum(CASE WHEN last >= ?1 THEN number ELSE 0 END) AS INTEGER), max(last) FROM (
    SELECT resource, 1 AS number, at AS last FROM shown WHERE origin IS NULL
    UNION ALL SELECT resource, number, last FROM shown_day) AS seen
GROUP BY resource

-- The version that a resource had at a moment. The newest operation that was here by then says how far the log went.
-- A copied history tells nothing of that: it has the times of what it is a copy of.
-- name: version_at
SELECT c.after FROM change c JOIN operation o ON o.id = c.operation
WHERE c.resource = ?1 AND (
    o.arrived = 1 AND o.arrived_at IS NULL AND o.at <= ?2
    OR (o.arrived = 0 OR o.arrived_at IS NOT NULL) AND o.id <= (
        SELECT id FROM operation WHERE (arrived = 0 OR arrived_at IS NOT NULL) AND coalesce(arrived_at, at) <= ?2
        ORDER BY id DESC LIMIT 1))
ORDER BY c.sequence DESC LIMIT 1

-- Who made the versions that have a file of these bytes.
-- name: makers
SELECT DISTINCT c.resource, c.latest, o.actor, coalesce(a.principal, o.principal),
    CASE WHEN a.principal IS NULL THEN o.arrived ELSE 0 END
FROM change c JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE c.manifest LIKE ? AND EXISTS (SELECT 1 FROM blob WHERE sha256 = ?)

-- The versions of a resource that agents made, or that may have come from a proposal or a run, with the reasons.
-- name: learned
SELECT c.latest, CASE WHEN coalesce(a.principal, o.principal) = 'agent' OR o.actor IN ('agent', 'review', 'evolution')
    THEN 1 ELSE 0 END, o.reason, coalesce(o.evidence, '[]')
FROM change c JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE c.resource = ? AND c.manifest IS NOT NULL AND (coalesce(a.principal, o.principal) = 'agent'
    OR o.actor IN ('agent', 'review', 'evolution') OR o.evidence LIKE '%"proposal %'
    OR o.evidence LIKE '%"evolution run %' OR o.reason LIKE 'put back %')

-- The resources of which a repository brought some version.
-- name: brought
SELECT c.resource FROM operation o JOIN change c ON c.sequence BETWEEN o.id AND o.last
    WHERE o.principal = 'repository' AND c.manifest IS NOT NULL
UNION SELECT resource FROM attribution WHERE principal = 'repository'

-- The resources whose newest version differs from its base, or whose provenance an older program did not store.
-- name: changed_since_base
SELECT r.id FROM resource r JOIN change c ON c.sequence = (
    SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1)
JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE c.manifest IS NOT NULL AND (c.provenance IS NULL OR c.provenance LIKE ?) AND (c.latest > 1 OR coalesce(
    a.principal, CASE o.arrived WHEN 1 THEN 'import' ELSE coalesce(o.principal, o.actor) END) NOT IN ('import', 'repository'))

-- name: attestation
SELECT resource, tree, at, principal, via, signature, folder FROM vouched v
WHERE resource IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) AND withdrawn = 0 AND id = (
    SELECT max(id) FROM vouched WHERE resource = v.resource AND tree = v.tree) ORDER BY id

-- Who made the newest version of each resource, and versions before it with the same content.
-- name: authors
WITH newest AS (
    SELECT r.id, c.latest, c.tree FROM resource r JOIN change c ON c.sequence = (
        SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1)
    WHERE r.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?1))
)
SELECT n.id, c.latest, c.tree, o.actor, coalesce(a.principal, o.principal), o.arrived = 1 AND a.principal IS NULL,
    coalesce(a.via, o.via, ''), o.session, o.id, o.at, o.evidence
FROM newest n
JOIN change c ON c.resource = n.id AND c.latest > n.latest - ?2 AND c.tree = n.tree AND c.manifest IS NOT NULL
JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
ORDER BY c.sequence DESC

-- The provenance of the newest version of each resource, and who made it.
-- name: newest_provenance
SELECT r.id, r.kind, r.scope, r.name, c.latest, c.tree, o.actor, coalesce(a.principal, o.principal), o.arrived = 1 AND a.principal IS NULL,
    coalesce(a.via, o.via, ''), o.session, o.id, o.at, o.evidence, c.provenance
FROM resource r JOIN change c ON c.sequence = (
    SELECT sequence FROM change WHERE resource = r.id AND manifest IS NOT NULL ORDER BY latest DESC LIMIT 1)
JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE r.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?1))

-- name: provenance
SELECT r.id, r.kind, r.scope, r.name, c.latest, c.tree, o.actor, coalesce(a.principal, o.principal), o.arrived = 1 AND a.principal IS NULL,
    coalesce(a.via, o.via, ''), o.session, o.id, o.at, o.evidence, c.provenance
FROM resource r JOIN change c ON c.resource = r.id JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE r.id = ? AND c.latest = ? AND c.manifest IS NOT NULL

-- Who made versions with these numbers.
-- name: version_authors
SELECT c.resource, c.latest, c.tree, o.actor, coalesce(a.principal, o.principal), o.arrived = 1 AND a.principal IS NULL,
    coalesce(a.via, o.via, ''), o.session, o.id, o.at, o.evidence
FROM change c JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE c.resource IN (SELECT CAST(value AS INTEGER) FROM json_each(?1))
    AND c.latest IN (SELECT CAST(value AS INTEGER) FROM json_each(?2)) AND c.manifest IS NOT NULL

-- The versions of a resource up to one, newest first, with their content.
-- name: provenances
SELECT c.latest, c.tree, o.actor, coalesce(a.principal, o.principal), o.arrived = 1 AND a.principal IS NULL,
    coalesce(a.via, o.via, ''), o.session, o.id, o.at, o.evidence, c.manifest
FROM change c JOIN operation o ON o.id = c.operation
LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
WHERE c.resource = ? AND c.latest <= ? AND c.manifest IS NOT NULL ORDER BY c.latest DESC LIMIT ?

-- The skills with their heads and their places on the channel.
-- name: channel_entry
SELECT r.id, r.scope, r.name, c.after, p.after, p.withdrawn, m.operation FROM resource r
JOIN change c ON c.sequence = (
    SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1)
LEFT JOIN placing p ON p.resource = r.id AND p.move = (SELECT max(move) FROM placing WHERE resource = r.id)
LEFT JOIN move m ON m.id = p.move
WHERE r.kind = 'skill'
