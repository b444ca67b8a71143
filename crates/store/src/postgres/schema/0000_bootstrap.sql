-- What tells one database of Punctual from another, and which steps it has been through. Written before the first
-- step; it never changes.
CREATE TABLE IF NOT EXISTS punctual (
    id             integer PRIMARY KEY CHECK (id = 1),
    cluster        uuid NOT NULL,
    schema_version integer NOT NULL,
    -- Added to transaction numbers where places in history are made of them: a database that was restored on another
    -- server meets lower numbers there, and places must not go back.
    place_base     bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    sha256     bytea NOT NULL,
    applied_at bigint NOT NULL
);
INSERT INTO punctual (id, cluster, schema_version, place_base) VALUES (1, gen_random_uuid(), 0, 0)
ON CONFLICT (id) DO NOTHING;
