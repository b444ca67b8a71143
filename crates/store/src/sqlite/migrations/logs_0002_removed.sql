-- Lines up to this time may have been removed, because all lines together had reached their limit.
CREATE TABLE removed (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    until INTEGER NOT NULL
) STRICT;
