-- Limits of queues and of keys within them. A column that is there already was added by a run of this step that did not
-- come to its end.

-- JSON. NULL: none.
ALTER TABLE queues ADD COLUMN limits MEDIUMTEXT;

-- JSON: how far what is queued has taken its place again, since limits became tighter. NULL: it has.
ALTER TABLE queues ADD COLUMN unplaced MEDIUMTEXT;

-- The limiter of its key, if its queue limited keys when it became ready.
ALTER TABLE live ADD COLUMN limiter BIGINT;

-- The limiter in whose line it waits. While it does, queued_lane has the same number, so that lines need no index of their
-- own, which every row would have to be written to: it is below zero, and no lane is.
ALTER TABLE live ADD COLUMN line BIGINT;

-- What waits in the line of each limiter, and what counts against that of a key; for queues, lane_tallies says the latter.
CREATE TABLE IF NOT EXISTS limiter_tallies (
    limiter BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    in_use  BIGINT NOT NULL,
    PRIMARY KEY (limiter)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- The time that the last start was counted for, where starts are paced.
CREATE TABLE IF NOT EXISTS limiter_paces (
    limiter BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (limiter)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;
