-- Who has changed what: see docs/decisions/0034-audit-log.md.

CREATE TABLE audit (
    -- A UUID version 7: entries are in the order of their requests.
    id      BLOB PRIMARY KEY NOT NULL,
    at      INTEGER NOT NULL,
    token   TEXT NOT NULL,
    name    TEXT NOT NULL,
    user_id TEXT,
    source  TEXT,
    action  TEXT NOT NULL,
    object  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    details TEXT,
    -- Its place in the chain, and the hash over the one before it and this entry. NULL: not sealed yet.
    number  INTEGER,
    hash    BLOB
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX audit_number ON audit (number) WHERE number IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (id) WHERE number IS NULL;

-- The ends of the chain: `anchor` is the last entry that was deleted, `head` the last one that was sealed.
CREATE TABLE audit_chain (
    name   TEXT PRIMARY KEY NOT NULL,
    number INTEGER NOT NULL,
    hash   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO audit_chain (name, number, hash) VALUES ('anchor', 0, zeroblob(32)), ('head', 0, zeroblob(32));
