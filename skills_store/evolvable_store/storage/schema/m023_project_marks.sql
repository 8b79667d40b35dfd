-- What the members of a shared library recognise a project by: hashes of its remote's address and of its first commit.
CREATE TABLE project_mark (
    scope TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (scope, mark)
) STRICT, WITHOUT ROWID;
