-- Names that nothing refers to any more are deleted: see docs/decisions/0026-names-that-nothing-uses-are-deleted.md.
-- An index or a column that is there already was added by a run of this step that did not come to its end.

-- Whether any job is left in a lane.
CREATE INDEX jobs_lane ON jobs (lane);

-- Since when the worker has had no session. History may name it for as long as it holds anything older. NULL: it has one,
-- or nobody has looked since its last one ended.
ALTER TABLE workers ADD COLUMN unused_since BIGINT;
