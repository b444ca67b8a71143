-- Limits of queues and of keys within them.

-- JSON. NULL: none.
ALTER TABLE queues ADD COLUMN limits TEXT;
-- JSON: how far what is queued has taken its place again, since limits became tighter. NULL: it has.
ALTER TABLE queues ADD COLUMN unplaced TEXT;

-- The limiter of its key, if its queue limited keys when it became ready.
ALTER TABLE live ADD COLUMN limiter INTEGER;
-- The limiter in whose line it waits.
ALTER TABLE live ADD COLUMN line INTEGER;
-- Only what waits in a line is here, in the order in which it goes on.
CREATE INDEX live_line ON live (line, rank, job, occurrence) WHERE line IS NOT NULL;

-- What waits in the line of each limiter, and what counts against that of a key; for queues, lane_tallies says the latter.
CREATE TABLE limiter_tallies (
    limiter INTEGER PRIMARY KEY,
    waiting INTEGER NOT NULL,
    in_use  INTEGER NOT NULL
) STRICT;

-- The time that the last start was counted for, where starts are paced.
CREATE TABLE limiter_paces (
    limiter INTEGER PRIMARY KEY,
    last_at INTEGER NOT NULL
) STRICT;
