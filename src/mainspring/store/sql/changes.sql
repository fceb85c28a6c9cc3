-- name: lock_job
-- The same row lock as a fire's, waited for: a change and a fire are one after the other, never both.
-- One table only: joined with its version, a row that another change has moved on would be looked for under the old one
-- once the lock is free, and not be there.
SELECT job_id, version, state, next_fire_at, last_slot, fired FROM job_cursors WHERE job_id = $1 AND state <> 'deleted' FOR UPDATE;

-- name: definition
SELECT definition FROM job_versions WHERE job_id = $1 AND version = $2;

-- name: supersede
-- What was due and not yet fired when the change took effect: decided now, so that nothing of the old schedule fires after it.
INSERT INTO skips (job_id, slot, first_slot, covers_count, disposition, version, decided_at)
VALUES ($1, $2, $3, $4, 'superseded', $5, $6);

-- name: append_version
WITH appended AS (
    INSERT INTO job_versions (job_id, version, state, definition, effective_at, author, reason)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
), moved AS (
    UPDATE job_cursors SET version = $2, state = $3, next_fire_at = $8, last_slot = coalesce($9, last_slot),
           delete_when_done = $11, resume_at = $12, on_demand = $13 WHERE job_id = $1
)
UPDATE jobs SET version = $2, name = $10, deleted_at = CASE WHEN $3 = 'deleted' THEN $5 END WHERE id = $1;

-- name: clock
SELECT clock_timestamp();

-- name: to_resume
SELECT job_id FROM job_cursors WHERE resume_at <= statement_timestamp() AND state = 'paused' ORDER BY resume_at LIMIT $1;
