-- What tells one database of Punctual from another, and which steps it has been through. Written before the first
-- step; it never changes. Whoever brings the database to another version holds a lock on the row of `punctual`, or, where
-- locks end at the node, has its name in `turns`.
CREATE TABLE IF NOT EXISTS punctual (
    id      INT NOT NULL,
    cluster BINARY(16) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS migrations (
    version    INT NOT NULL,
    name       VARCHAR(200) NOT NULL,
    sha256     BINARY(32) NOT NULL,
    applied_at BIGINT NOT NULL,
    PRIMARY KEY (version)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- Who may do what one process at a time does, on nodes of a Galera cluster, and until when unless it says more.
CREATE TABLE IF NOT EXISTS turns (
    name       VARCHAR(20) NOT NULL,
    -- NULL: nobody.
    holder     VARCHAR(36),
    held_until DATETIME(6) NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

INSERT INTO turns (name, held_until) VALUES ('define', UTC_TIMESTAMP(6)), ('move', UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE name = turns.name;

INSERT INTO punctual (id, cluster) VALUES (1, UNHEX(REPLACE(UUID(), '-', ''))) ON DUPLICATE KEY UPDATE id = id;
