CREATE TABLE lines (
    -- Never reused: a follower's cursor must not meet it again.
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    job        BLOB NOT NULL,
    occurrence INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    timestamp  INTEGER NOT NULL,
    stream     INTEGER NOT NULL,
    message    TEXT NOT NULL
) STRICT;

CREATE INDEX lines_execution ON lines (job, occurrence, attempt);
