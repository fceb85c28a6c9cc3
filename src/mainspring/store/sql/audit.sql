-- name: one_moment
-- First in its transaction: a running system is judged as it stood at one instant, not as it changes while we read.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: judged_at
SELECT clock_timestamp();

-- name: jobs
SELECT jobs.id, jobs.tenant, jobs.name, cursors.state, cursors.next_fire_at, cursors.last_slot, cursors.fired
  FROM jobs LEFT JOIN job_cursors AS cursors ON cursors.job_id = jobs.id
 WHERE jobs.id > $1 AND ($3::text IS NULL OR jobs.tenant = $3)
 ORDER BY jobs.id LIMIT $2;

-- name: versions
SELECT job_id, version, state, definition -> 'schedule' AS schedule, effective_at
  FROM job_versions WHERE job_id = ANY($1::uuid[]) ORDER BY job_id, version;

-- name: decisions
-- One sort for the whole window: history is kept by slot and has no index by job, so batches of jobs would read it again
-- and again. A stretch belongs to every window it touches; it is found by its newest slot, which partitions go by.
SELECT job_id, first_slot, slot, covers_count, disposition, version, decided_at, run_id, settled_at
  FROM (SELECT job_id, slot AS first_slot, slot, 1::bigint AS covers_count, 'fired' AS disposition, version,
               fired_at AS decided_at, id AS run_id, NULL::timestamptz AS settled_at
          FROM runs WHERE kind = 'schedule' AND slot >= $1 AND slot < $2
        UNION ALL
        SELECT job_id, slot, slot, 1, 'fired', version, fired_at, id, settled_at
          FROM run_history WHERE kind = 'schedule' AND slot >= $1 AND slot < $2
        UNION ALL
        SELECT job_id, first_slot, slot, covers_count, disposition, version, decided_at, NULL, NULL
          FROM skips WHERE slot >= $1 AND first_slot < $2) AS decided
 WHERE $3::text IS NULL OR job_id IN (SELECT id FROM jobs WHERE tenant = $3)
 ORDER BY job_id, first_slot, slot, disposition, run_id;

-- name: other_runs
-- Runs that the window does not name and that may still have stood in the way of one of its slots: begun before it, or
-- not by the schedule. Only of jobs that say so.
WITH overlapping AS (
    SELECT DISTINCT job_id FROM skips WHERE disposition = 'skipped_overlap' AND slot >= $1 AND slot < $2
)
SELECT job_id, fired_at, NULL::timestamptz AS settled_at
  FROM runs WHERE job_id IN (SELECT job_id FROM overlapping) AND NOT (kind = 'schedule' AND slot >= $1 AND slot < $2)
UNION ALL
SELECT job_id, fired_at, settled_at
  FROM run_history
 WHERE job_id IN (SELECT job_id FROM overlapping) AND settled_at >= $1
   AND NOT (kind = 'schedule' AND slot >= $1 AND slot < $2);
