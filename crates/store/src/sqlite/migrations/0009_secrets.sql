-- Secrets, with encrypted values: see docs/decisions/0041-secrets.md.

CREATE TABLE secrets (
    -- Its name.
    id      TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    -- The key that decrypts it.
    key_id  TEXT NOT NULL,
    -- Base64: nonce, ciphertext and tag.
    sealed  TEXT NOT NULL,
    -- JSON: which jobs may use it, and who has set it when.
    about   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
