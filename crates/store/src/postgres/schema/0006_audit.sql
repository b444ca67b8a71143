-- Who has changed what: see docs/decisions/0034-audit-log.md.

CREATE TABLE audit (
    -- A UUID version 7: entries are in the order of their requests.
    id      uuid PRIMARY KEY,
    at      bigint NOT NULL,
    token   text NOT NULL,
    name    text NOT NULL,
    user_id text,
    source  text,
    action  text NOT NULL,
    object  text NOT NULL,
    outcome text NOT NULL,
    details text,
    -- Its place in the chain, and the hash over the one before it and this entry. NULL: not sealed yet.
    number  bigint,
    hash    bytea
);
CREATE UNIQUE INDEX audit_number ON audit (number) WHERE number IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (id) WHERE number IS NULL;

-- The ends of the chain: `anchor` is the last entry that was deleted, `head` the last one that was sealed.
CREATE TABLE audit_chain (
    name   text PRIMARY KEY,
    number bigint NOT NULL,
    hash   bytea NOT NULL
);
INSERT INTO audit_chain (name, number, hash)
VALUES ('anchor', 0, decode(repeat('00', 32), 'hex')), ('head', 0, decode(repeat('00', 32), 'hex'));
