-- Who has changed what: see docs/decisions/0034-audit-log.md.

CREATE TABLE IF NOT EXISTS audit (
    -- A UUID version 7: entries are in the order of their requests.
    id      BINARY(16) NOT NULL,
    at      BIGINT NOT NULL,
    token   TEXT NOT NULL,
    name    TEXT NOT NULL,
    user_id TEXT,
    source  TEXT,
    action  TEXT NOT NULL,
    object  TEXT NOT NULL,
    outcome TEXT NOT NULL,
    details MEDIUMTEXT,
    -- Its place in the chain, and the hash over the one before it and this entry. NULL: not sealed yet.
    number  BIGINT,
    hash    BINARY(32),
    PRIMARY KEY (id),
    KEY audit_number (number, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- The ends of the chain: `anchor` is the last entry that was deleted, `head` the last one that was sealed.
CREATE TABLE IF NOT EXISTS audit_chain (
    name   VARCHAR(20) NOT NULL,
    number BIGINT NOT NULL,
    hash   BINARY(32) NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

INSERT INTO audit_chain (name, number, hash) VALUES ('anchor', 0, REPEAT(CHAR(0), 32)), ('head', 0, REPEAT(CHAR(0), 32))
ON DUPLICATE KEY UPDATE audit_chain.number = audit_chain.number;
