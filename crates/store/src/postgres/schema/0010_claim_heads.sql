-- How far claims have reserved the queued executions of a lane that has more than a claim takes, so that claimers begin
-- behind each other. Hints: a crash or a failover may lose them.
CREATE TABLE claim_heads (
    lane               bigint NOT NULL REFERENCES lanes ON DELETE CASCADE,
    -- Rises with the reservations, so that a search for the latest row meets few old versions of it.
    era                bigint NOT NULL,
    -- The last position that a claimer has reserved.
    rank               bigint NOT NULL,
    job                uuid NOT NULL,
    occurrence         bigint NOT NULL,
    reserved           bigint NOT NULL,
    -- Where the head was at the last look: work before this place belongs to no window any more.
    settled_rank       bigint NOT NULL,
    settled_job        uuid NOT NULL,
    settled_occurrence bigint NOT NULL,
    looked_at          timestamptz NOT NULL,
    -- How long after it the next look is due.
    look_rest          interval NOT NULL,
    PRIMARY KEY (lane, era)
) WITH (fillfactor = 50);
-- `punctual check` compares the tables with temporary ones, which are never logged.
DO $$
BEGIN
    IF (SELECT relpersistence FROM pg_class WHERE oid = 'claim_heads'::regclass) = 'p' THEN
        ALTER TABLE claim_heads SET UNLOGGED;
    END IF;
END
$$;
