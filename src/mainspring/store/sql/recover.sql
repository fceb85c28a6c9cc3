-- name: lost
-- A look at the narrow live table, for workers that are few and dead.
SELECT runs.id, runs.job_id, runs.version, runs.kind, runs.slot, runs.ready_at, runs.attempt, runs.failures, runs.token,
       runs.worker, runs.started_at
  FROM runs JOIN nodes ON nodes.id = runs.worker
 WHERE runs.state = 'running' AND nodes.dead_at IS NOT NULL
 ORDER BY runs.id LIMIT $1;

-- name: unknown
SELECT id, job_id, version, kind, slot, ready_at, attempt, failures, token, worker, started_at
  FROM runs WHERE state = 'running' AND worker = $1 AND NOT id = ANY($2::uuid[]);

-- name: stranded
SELECT DISTINCT job_id FROM runs
 WHERE held AND lane IS NULL AND NOT EXISTS (SELECT FROM runs AS holder WHERE holder.lane = runs.job_id) LIMIT $1;
