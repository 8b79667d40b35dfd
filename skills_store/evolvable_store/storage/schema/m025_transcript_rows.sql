-- Which session the messages and calls of transcripts belong to: the first that had them. Both numbers are hashes.
CREATE TABLE transcript_row (key INTEGER PRIMARY KEY, session INTEGER NOT NULL) STRICT;
