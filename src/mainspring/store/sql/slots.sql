-- name: find
-- By id or by name; a deleted job is found by its id, or by its name if no other has it now.
SELECT jobs.id, jobs.name, cursors.next_fire_at, clock_timestamp() AS now
  FROM jobs JOIN job_cursors AS cursors ON cursors.job_id = jobs.id
 WHERE jobs.id::text = $1 OR jobs.name = $1
 ORDER BY jobs.id::text = $1 DESC, jobs.deleted_at IS NULL DESC, jobs.created_at DESC LIMIT 1;

-- name: version_at
-- A version is in force for slots after its effective_at, up to and including that of the next.
SELECT version, state, definition, effective_at, reason FROM job_versions
 WHERE job_id = $1 AND effective_at < $2 ORDER BY version DESC LIMIT 1;

-- name: decision_at
SELECT disposition, first_slot, scheduled_at, covers_count, fired_at, run_id FROM audit_fires
 WHERE job_id = $1 AND first_slot <= $2 AND scheduled_at >= $2 ORDER BY scheduled_at LIMIT 1;

-- name: run_state
SELECT state FROM audit_runs WHERE run_id = $1;

-- name: attempts
SELECT attempt, started_at, ended_at, outcome FROM audit_attempts WHERE run_id = $1 ORDER BY attempt;
