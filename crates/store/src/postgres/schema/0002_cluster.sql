-- The cluster: who is in it, and who holds what.

-- Members by their counters: who is silent is for those who look to say, not for a clock. The times are for people. Beats
-- change nothing that an index names, and find room in the same page.
CREATE TABLE cluster_members (
    id         text PRIMARY KEY,
    beat       bigint NOT NULL,
    ttl_us     bigint NOT NULL,
    entered_at bigint NOT NULL,
    beaten_at  bigint NOT NULL,
    card       text NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Leases that were ever held. A row stays: the epoch of its next holder is higher than that of all before.
CREATE TABLE cluster_leases (
    name   text PRIMARY KEY,
    epoch  bigint NOT NULL,
    -- NULL: nobody.
    holder text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What workers said last of their load and health, as JSON: beside their sessions, which are written with every beat.
CREATE TABLE session_conditions (
    session  bigint PRIMARY KEY,
    document text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
