-- Remotes that the library was synchronised with. tip: the commit that is equal to the library at `sequence` but for what
-- waits. seen: the commit at which the remote's branch was last merged, or to which it was pushed.
CREATE TABLE remote (
    name TEXT NOT NULL, url TEXT NOT NULL, library TEXT NOT NULL, tip TEXT NOT NULL, seen TEXT NOT NULL,
    sequence INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY (name, url)
) STRICT;
-- Resources whose content in the tip is not the library's. base, theirs: trees of git, '' for none. proposal: what
-- waits for a person, NULL where the content was refused. here: a later change here is in the tip instead.
CREATE TABLE remote_waiting (
    name TEXT NOT NULL, url TEXT NOT NULL, ref TEXT NOT NULL, base TEXT NOT NULL, theirs TEXT NOT NULL, proposal INTEGER,
    here INTEGER NOT NULL, PRIMARY KEY (name, url, ref)
) STRICT;
