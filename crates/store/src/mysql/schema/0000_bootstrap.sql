-- What tells one database of Punctual from another, and which steps it has been through. Written before the first
-- step; it never changes. Whoever brings the database to another version holds a lock on the row of `punctual`.
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

INSERT INTO punctual (id, cluster) VALUES (1, UNHEX(REPLACE(UUID(), '-', ''))) ON DUPLICATE KEY UPDATE id = id;
