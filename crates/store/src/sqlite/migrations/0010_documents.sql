-- Small documents of users and of the cluster: see docs/decisions/0046-stored-documents.md.

CREATE TABLE documents (
    -- Its kind and name.
    id      TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    -- JSON.
    body    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
