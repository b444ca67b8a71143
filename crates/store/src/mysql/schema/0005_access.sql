-- Users, what tokens and users may do, and the tokens of sessions. A column that is there already was added by a run of
-- this step that did not come to its end.

-- NULL: it never expires.
ALTER TABLE tokens ADD COLUMN expires_at BIGINT;

-- NULL: it was never used.
ALTER TABLE tokens ADD COLUMN last_used_at BIGINT;

-- JSON: its name, owner, scope and the like. NULL: none of them.
ALTER TABLE tokens ADD COLUMN about MEDIUMTEXT;

CREATE TABLE IF NOT EXISTS users (
    id         VARCHAR(200) NOT NULL,
    -- In lower case.
    email      VARCHAR(320) NOT NULL,
    role       SMALLINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- JSON, as for tokens.
    about      MEDIUMTEXT,
    PRIMARY KEY (id),
    UNIQUE KEY users_email (email)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */;

-- The id of the token that opened it. NULL: the worker reaches the store itself.
ALTER TABLE sessions ADD COLUMN token VARCHAR(200);
