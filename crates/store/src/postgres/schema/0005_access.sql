-- Users, what tokens and users may do, and the tokens of sessions.

ALTER TABLE tokens
    -- Lists are in the order of bytes, as everywhere.
    ALTER COLUMN id TYPE text COLLATE "C",
    -- NULL: it never expires.
    ADD COLUMN expires_at bigint,
    -- NULL: it was never used.
    ADD COLUMN last_used_at bigint,
    -- JSON: its name, owner, scope and the like. NULL: none of them.
    ADD COLUMN about text;

CREATE TABLE users (
    id         text COLLATE "C" PRIMARY KEY,
    -- In lower case.
    email      text NOT NULL UNIQUE,
    role       smallint NOT NULL,
    created_at bigint NOT NULL,
    -- JSON, as for tokens.
    about      text
);

-- The id of the token that opened it. NULL: the worker reaches the store itself.
ALTER TABLE sessions ADD COLUMN token text;
