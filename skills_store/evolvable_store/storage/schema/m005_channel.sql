-- The stable channel: moves and what each placed. Hosts saw every head until now, so the channel begins there.
CREATE TABLE move (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, session TEXT,
    operation INTEGER NOT NULL, policy TEXT
) STRICT;
CREATE INDEX move_policy ON move (id) WHERE policy IS NOT NULL;
-- The last row of a resource says which version hosts see, as the last change of it is its head.
CREATE TABLE placing (
    move INTEGER NOT NULL, resource INTEGER NOT NULL, before INTEGER, after INTEGER, withdrawn INTEGER NOT NULL,
    PRIMARY KEY (resource, move)
) STRICT, WITHOUT ROWID;
CREATE INDEX placing_move ON placing (move);
INSERT INTO placing SELECT 1, r.id, NULL, c.after, 0 FROM resource r JOIN change c ON c.sequence = (
        SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1
    ) WHERE r.kind = 'skill' AND c.after IS NOT NULL;
INSERT INTO move SELECT 1, at, 'import', 'The channel begins with every skill as it is.', NULL, id, NULL
    FROM operation WHERE id = (SELECT max(id) FROM operation) AND EXISTS (SELECT 1 FROM placing);
