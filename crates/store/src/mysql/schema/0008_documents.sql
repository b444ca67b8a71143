-- Small documents of users and of the cluster: see docs/decisions/0046-stored-documents.md.

CREATE TABLE IF NOT EXISTS documents (
    -- Its kind and name.
    id      VARCHAR(300) NOT NULL,
    version BIGINT NOT NULL,
    -- JSON.
    body    MEDIUMTEXT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;
