-- Secrets, with encrypted values: see docs/decisions/0041-secrets.md.

CREATE TABLE secrets (
    -- Its name. Lists are in the order of bytes, as everywhere.
    id      text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    -- The key that decrypts it.
    key_id  text NOT NULL,
    -- Base64: nonce, ciphertext and tag.
    sealed  text NOT NULL,
    -- JSON: which jobs may use it, and who has set it when.
    about   text NOT NULL
);
