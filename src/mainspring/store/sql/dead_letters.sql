-- name: find
SELECT d.*, jobs.name AS job, (v.definition -> 'payload')::text AS job_payload
  FROM dead_letters AS d JOIN jobs ON jobs.id = d.job_id
  LEFT JOIN job_versions AS v ON v.job_id = d.job_id AND v.version = d.version
 WHERE d.tenant = $1 AND d.run_id = $2;

-- name: list
-- The open ones, newest first.
SELECT d.*, jobs.name AS job, (v.definition -> 'payload')::text AS job_payload
  FROM dead_letters AS d JOIN jobs ON jobs.id = d.job_id
  LEFT JOIN job_versions AS v ON v.job_id = d.job_id AND v.version = d.version
 WHERE d.tenant = $1 AND d.closed_at IS NULL AND (d.died_at, d.run_id) < ($2, $3)
   AND ($5::uuid IS NULL OR d.job_id = $5) AND ($6::text IS NULL OR d.reason = $6)
   AND d.died_at >= $7 AND d.died_at < $8
 ORDER BY d.died_at DESC, d.run_id DESC LIMIT $4;

-- name: close_replayed
-- Compare and set: whoever comes second finds it closed, and is told what the first one made of it (F63).
UPDATE dead_letters SET closed_at = clock_timestamp(), closed_as = 'replayed', replayed_as = $2, replays = replays + 1
 WHERE run_id = $1 AND closed_at IS NULL RETURNING run_id;

-- name: close_discarded
UPDATE dead_letters SET closed_at = clock_timestamp(), closed_as = 'discarded', close_reason = $3
 WHERE tenant = $1 AND run_id = $2 AND closed_at IS NULL RETURNING run_id;
