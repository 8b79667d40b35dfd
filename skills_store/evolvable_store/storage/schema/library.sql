-- What all steps make of an empty file; a new library has it at once. Written by a test, never by hand:
-- EVOLVABLE_UPDATE_GOLDEN=1 python -m pytest tests/core/test_migrations.py
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE TABLE blob (
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, codec TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE resource (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (name, kind, scope)
) STRICT;
CREATE TABLE operation (
    id INTEGER PRIMARY KEY, last INTEGER NOT NULL, at TEXT NOT NULL, actor TEXT NOT NULL,
    reason TEXT NOT NULL, session TEXT, evidence TEXT, undoes TEXT
, principal TEXT, via TEXT, arrived INTEGER NOT NULL DEFAULT 0, arrived_at TEXT) STRICT;
CREATE INDEX operation_session ON operation (session) WHERE session IS NOT NULL;
CREATE TABLE change (
    sequence INTEGER PRIMARY KEY, operation INTEGER NOT NULL, resource INTEGER NOT NULL,
    before INTEGER, after INTEGER, latest INTEGER NOT NULL, tree TEXT NOT NULL, hash TEXT NOT NULL,
    frozen INTEGER NOT NULL, manifest TEXT
, provenance TEXT) STRICT;
CREATE INDEX change_resource ON change (resource, latest);
CREATE TABLE folder (
    id INTEGER PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE binding (
    folder INTEGER NOT NULL, directory TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER,
    signature TEXT NOT NULL, conflict TEXT,
    PRIMARY KEY (folder, directory)
) STRICT, WITHOUT ROWID;
CREATE INDEX binding_resource ON binding (resource);
CREATE TABLE use (
    id TEXT PRIMARY KEY, at TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    search TEXT, session TEXT
, principal TEXT, connection TEXT, origin TEXT) STRICT, WITHOUT ROWID;
CREATE INDEX use_resource ON use (resource);
CREATE TABLE outcome (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, use TEXT, resource INTEGER NOT NULL,
    version INTEGER NOT NULL, outcome TEXT NOT NULL, usage TEXT, task_type TEXT, evidence TEXT,
    session TEXT
, principal TEXT, grade TEXT NOT NULL DEFAULT '', voter TEXT, counts INTEGER NOT NULL DEFAULT 0, origin TEXT) STRICT;
CREATE INDEX outcome_resource ON outcome (resource);
CREATE TABLE proposal (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    base INTEGER NOT NULL, manifest TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT NOT NULL, session TEXT,
    state TEXT NOT NULL, decision TEXT, operation INTEGER
, grounds TEXT, fingerprint TEXT, expires TEXT, findings TEXT, times INTEGER NOT NULL DEFAULT 1, principal TEXT, via TEXT, files_removed_at TEXT) STRICT;
CREATE TABLE move (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, session TEXT,
    operation INTEGER NOT NULL, policy TEXT
) STRICT;
CREATE INDEX move_policy ON move (id) WHERE policy IS NOT NULL;
CREATE TABLE placing (
    move INTEGER NOT NULL, resource INTEGER NOT NULL, before INTEGER, after INTEGER, withdrawn INTEGER NOT NULL,
    PRIMARY KEY (resource, move)
) STRICT, WITHOUT ROWID;
CREATE INDEX placing_move ON placing (move);
CREATE TABLE review (
    id TEXT PRIMARY KEY, session TEXT NOT NULL, digest TEXT NOT NULL, reviewer INTEGER NOT NULL,
    at TEXT NOT NULL, state TEXT NOT NULL, packet TEXT, answer TEXT, result TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX review_session ON review (session);
CREATE TABLE episode (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, turn INTEGER NOT NULL, at TEXT NOT NULL,
    signal TEXT NOT NULL, key TEXT NOT NULL, quote TEXT NOT NULL, origin TEXT NOT NULL,
    settled INTEGER NOT NULL,
    UNIQUE (session, turn, signal, key)
) STRICT;
CREATE INDEX episode_key ON episode (key);
CREATE TABLE spending (
    id INTEGER PRIMARY KEY, day TEXT NOT NULL, review TEXT NOT NULL, thinker TEXT NOT NULL,
    tokens INTEGER NOT NULL, money REAL NOT NULL
) STRICT;
CREATE INDEX spending_day ON spending (day);
CREATE INDEX proposal_session ON proposal (session) WHERE session IS NOT NULL;
CREATE TABLE shown (
    search TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, session TEXT, origin TEXT,
    PRIMARY KEY (search, resource)
) STRICT, WITHOUT ROWID;
CREATE INDEX shown_resource ON shown (resource, at);
CREATE TABLE taken (
    session TEXT PRIMARY KEY, client TEXT NOT NULL, digest TEXT NOT NULL, spans INTEGER NOT NULL,
    at TEXT NOT NULL, model TEXT, outcome TEXT, signals TEXT NOT NULL
, witnessed INTEGER NOT NULL DEFAULT 1, origin TEXT, task_type TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE sighting (
    session TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL, at TEXT NOT NULL, model TEXT,
    loaded INTEGER NOT NULL, used INTEGER NOT NULL, how TEXT NOT NULL, outcome TEXT, signals TEXT NOT NULL, grade TEXT NOT NULL DEFAULT '', link TEXT, origin TEXT,
    PRIMARY KEY (session, resource, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX sighting_resource ON sighting (resource);
CREATE INDEX use_session ON use (session) WHERE session IS NOT NULL;
CREATE TABLE signature (operation INTEGER PRIMARY KEY, key TEXT NOT NULL, signature BLOB NOT NULL) STRICT;
CREATE TABLE baseline (
    key TEXT PRIMARY KEY, operation INTEGER NOT NULL, digest TEXT NOT NULL, signature BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE regraded (
    resource INTEGER NOT NULL, version INTEGER NOT NULL, ends INTEGER NOT NULL, successes INTEGER NOT NULL,
    said INTEGER NOT NULL, PRIMARY KEY (resource, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE client_session (
    session TEXT NOT NULL, connection TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (session, connection)
) STRICT, WITHOUT ROWID;
CREATE INDEX outcome_counts ON outcome (resource) WHERE counts;
CREATE INDEX outcome_voter ON outcome (voter, resource) WHERE grade <> '';
CREATE TABLE looked (
    sha256 TEXT PRIMARY KEY, rules INTEGER NOT NULL, found TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX looked_found ON looked (sha256) WHERE found <> '';
CREATE TABLE accepted (
    id TEXT PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE purging (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, kind TEXT NOT NULL,
    texts TEXT NOT NULL, blobs TEXT NOT NULL
) STRICT;
CREATE TABLE purged (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, kind TEXT NOT NULL,
    blobs TEXT NOT NULL
) STRICT;
CREATE TABLE vouched (
    id INTEGER PRIMARY KEY, resource INTEGER NOT NULL, tree TEXT NOT NULL, at TEXT NOT NULL,
    principal TEXT NOT NULL, via TEXT NOT NULL, withdrawn INTEGER NOT NULL, signature BLOB
, folder TEXT) STRICT;
CREATE INDEX vouched_resource ON vouched (resource, tree);
CREATE TABLE attribution (
    resource INTEGER NOT NULL, version INTEGER NOT NULL, principal TEXT NOT NULL, via TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (resource, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE held (
    folder INTEGER NOT NULL, directory TEXT NOT NULL, tree TEXT NOT NULL, proposal INTEGER NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (folder, directory)
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_repository ON operation (id) WHERE principal = 'repository';
CREATE TABLE learned (
    id INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL, task TEXT NOT NULL, at TEXT NOT NULL,
    against INTEGER NOT NULL, source TEXT NOT NULL, session TEXT, link TEXT
, held_out INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX learned_resource ON learned (resource);
CREATE INDEX learned_session ON learned (session) WHERE session IS NOT NULL;
CREATE TABLE learned_change (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL UNIQUE
) STRICT;
CREATE TABLE remote (
    name TEXT NOT NULL, url TEXT NOT NULL, library TEXT NOT NULL, tip TEXT NOT NULL, seen TEXT NOT NULL,
    sequence INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY (name, url)
) STRICT;
CREATE TABLE remote_waiting (
    name TEXT NOT NULL, url TEXT NOT NULL, ref TEXT NOT NULL, base TEXT NOT NULL, theirs TEXT NOT NULL, proposal INTEGER,
    here INTEGER NOT NULL, PRIMARY KEY (name, url, ref)
) STRICT;
CREATE TABLE pool (
    id INTEGER PRIMARY KEY AUTOINCREMENT, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    incumbent INTEGER NOT NULL, state TEXT NOT NULL, since_round INTEGER NOT NULL, at TEXT NOT NULL,
    salt BLOB NOT NULL, share REAL NOT NULL, number INTEGER NOT NULL, described INTEGER NOT NULL,
    approved INTEGER NOT NULL, reason TEXT NOT NULL, looks TEXT NOT NULL, ended TEXT, why TEXT, operation INTEGER
) STRICT;
CREATE UNIQUE INDEX pool_trial ON pool (resource) WHERE state = 'trial';
CREATE TABLE pool_unit (
    pool INTEGER NOT NULL, unit TEXT NOT NULL, session TEXT, connection TEXT, search TEXT, trial INTEGER NOT NULL,
    at TEXT NOT NULL, PRIMARY KEY (pool, unit)
) STRICT, WITHOUT ROWID;
CREATE TABLE execution (
    session TEXT NOT NULL, executor TEXT NOT NULL, agent INTEGER, version INTEGER, at TEXT NOT NULL, model TEXT,
    spans INTEGER NOT NULL, outcome TEXT, PRIMARY KEY (session, executor)
) STRICT, WITHOUT ROWID;
CREATE INDEX execution_at ON execution (at);
CREATE TABLE execution_use (
    session TEXT NOT NULL, executor TEXT NOT NULL, resource INTEGER NOT NULL, version INTEGER NOT NULL,
    at TEXT NOT NULL, loaded INTEGER NOT NULL, used INTEGER NOT NULL, how TEXT NOT NULL, outcome TEXT,
    PRIMARY KEY (session, executor, resource, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, decision TEXT NOT NULL, subject TEXT NOT NULL, principal TEXT NOT NULL,
    via TEXT NOT NULL, address TEXT NOT NULL, session TEXT NOT NULL, operation INTEGER, previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TABLE collection (
    name TEXT NOT NULL, resource INTEGER NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (name, resource)
) STRICT, WITHOUT ROWID;
CREATE TABLE listing (
    settings TEXT PRIMARY KEY, collection TEXT NOT NULL, written TEXT NOT NULL, at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE project_mark (
    scope TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (scope, mark)
) STRICT, WITHOUT ROWID;
CREATE TABLE transcript_row (key INTEGER PRIMARY KEY, session INTEGER NOT NULL) STRICT;
CREATE TABLE shown_day (
    resource INTEGER NOT NULL, day TEXT NOT NULL, number INTEGER NOT NULL, last TEXT NOT NULL,
    PRIMARY KEY (resource, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE learned_transcript (file TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;
CREATE TABLE learned_refusal (
    session TEXT NOT NULL, resource INTEGER NOT NULL, PRIMARY KEY (session, resource)
) STRICT;
INSERT INTO _sqlite_migrations (migration_set, name, applied_at)
SELECT 'evolvable', column1, strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')
FROM (VALUES ('m001_library'), ('m002_working_copies'), ('m003_evidence'), ('m004_proposals'), ('m005_channel'), ('m006_reviews'), ('m007_sightings'), ('m008_findings'), ('m009_times'), ('m010_principals'), ('m011_signatures'), ('m012_earned'), ('m013_secrets'), ('m014_trust'), ('m015_trusted_folders'), ('m016_learned'), ('m017_remotes'), ('m018_rounds'), ('m019_executions'), ('m020_audit'), ('m021_labels'), ('m022_collections'), ('m023_project_marks'), ('m024_shown'), ('m025_transcript_rows'), ('m026_provenance'), ('m027_arrival'), ('m028_years'), ('m029_transcripts'));
