-- Users, what tokens and users may do, and the tokens of sessions.

-- NULL: it never expires.
ALTER TABLE tokens ADD COLUMN expires_at INTEGER;
-- NULL: it was never used.
ALTER TABLE tokens ADD COLUMN last_used_at INTEGER;
-- JSON: its name, owner, scope and the like. NULL: none of them.
ALTER TABLE tokens ADD COLUMN about TEXT;

CREATE TABLE users (
    id         TEXT PRIMARY KEY NOT NULL,
    -- In lower case.
    email      TEXT NOT NULL UNIQUE,
    role       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- JSON, as for tokens.
    about      TEXT
) STRICT, WITHOUT ROWID;

-- The id of the token that opened it. NULL: the worker reaches the store itself.
ALTER TABLE sessions ADD COLUMN token TEXT;
