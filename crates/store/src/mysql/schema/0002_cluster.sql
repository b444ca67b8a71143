-- The cluster: who is in it, and who holds what.

-- Members by their counters: who is silent is for those who look to say, not for a clock. The times are for people.
CREATE TABLE IF NOT EXISTS cluster_members (
    id         VARCHAR(64) NOT NULL,
    beat       BIGINT NOT NULL,
    ttl_us     BIGINT NOT NULL,
    entered_at BIGINT NOT NULL,
    beaten_at  BIGINT NOT NULL,
    card       MEDIUMTEXT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Leases that were ever held. A row stays: the epoch of its next holder is higher than that of all before.
CREATE TABLE IF NOT EXISTS cluster_leases (
    name   VARCHAR(64) NOT NULL,
    epoch  BIGINT NOT NULL,
    -- NULL: nobody.
    holder VARCHAR(64),
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- What workers said last of their load and health, as JSON: beside their sessions, which are written with every beat.
CREATE TABLE IF NOT EXISTS session_conditions (
    session  BIGINT NOT NULL,
    document MEDIUMTEXT NOT NULL,
    PRIMARY KEY (session)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;
