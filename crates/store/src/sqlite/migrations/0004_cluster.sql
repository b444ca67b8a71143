-- The cluster: who is in it, and who holds what. One process has this file open, so it is a cluster of one; it looks the
-- same as any other.

-- Members by their counters: who is silent is for those who look to say, not for a clock. The times are for people.
CREATE TABLE cluster_members (
    id         TEXT PRIMARY KEY NOT NULL,
    beat       INTEGER NOT NULL,
    ttl_us     INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    beaten_at  INTEGER NOT NULL,
    card       TEXT NOT NULL
) STRICT;

-- Leases that were ever held. A row stays: the epoch of its next holder is higher than that of all before.
CREATE TABLE cluster_leases (
    name   TEXT PRIMARY KEY NOT NULL,
    epoch  INTEGER NOT NULL,
    -- NULL: nobody.
    holder TEXT
) STRICT, WITHOUT ROWID;

-- What workers said last of their load and health, as JSON: beside their sessions, which are written with every beat.
CREATE TABLE session_conditions (
    session  INTEGER PRIMARY KEY NOT NULL,
    document TEXT NOT NULL
) STRICT;
