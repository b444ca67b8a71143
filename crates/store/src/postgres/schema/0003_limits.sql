-- Limits of queues and of keys within them.

ALTER TABLE queues
    -- JSON. NULL: none.
    ADD COLUMN limits text,
    -- JSON: how far what is queued has taken its place again, since limits became tighter. NULL: it has.
    ADD COLUMN unplaced text;

ALTER TABLE live
    -- The limiter of its key, if its queue limited keys when it became ready.
    ADD COLUMN limiter bigint,
    -- The limiter in whose line it waits.
    ADD COLUMN line bigint;
-- Only what waits in a line is here, in the order in which it goes on.
CREATE INDEX live_line ON live (line, rank, job, occurrence) WHERE line IS NOT NULL;

-- What waits in the line of each limiter, and what counts against that of a key; for queues, lane_tallies says the latter.
CREATE TABLE limiter_tallies (
    limiter bigint PRIMARY KEY,
    waiting bigint NOT NULL,
    in_use  bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The time that the last start was counted for, where starts are paced.
CREATE TABLE limiter_paces (
    limiter bigint PRIMARY KEY,
    last_at bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
