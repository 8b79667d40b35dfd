-- Transcripts that were read for learned tasks. file: a hash of the path. status: of the file when it was read.
CREATE TABLE learned_transcript (file TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;
-- What a person removed of what sessions taught: the session teaches that resource nothing more.
CREATE TABLE learned_refusal (
    session TEXT NOT NULL, resource INTEGER NOT NULL, PRIMARY KEY (session, resource)
) STRICT;
