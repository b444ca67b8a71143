-- Secrets, with encrypted values: see docs/decisions/0041-secrets.md.

CREATE TABLE IF NOT EXISTS secrets (
    -- Its name.
    id      VARCHAR(200) NOT NULL,
    version BIGINT NOT NULL,
    -- The key that decrypts it.
    key_id  VARCHAR(200) NOT NULL,
    -- Base64: nonce, ciphertext and tag.
    sealed  MEDIUMTEXT NOT NULL,
    -- JSON: which jobs may use it, and who has set it when.
    about   MEDIUMTEXT NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;
