-- name: of_job
SELECT id FROM runs WHERE lane = $1 UNION ALL SELECT id FROM runs WHERE lane IS NULL AND job_id = $1;

-- name: cancel_unclaimed
-- Into history, unless a worker was quicker: the row lock lets exactly one of cancel and claim win (F34).
WITH closed AS (
    DELETE FROM runs WHERE id = ANY($1::uuid[]) AND state IN ('held', 'queued', 'waiting') RETURNING *
), kept AS (
    INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, attempt, failures, worker,
                             fired_at, settled_at)
    SELECT id, slot, job_id, tenant, version, kind, pool, 'cancelled', attempt, failures, NULL, fired_at, clock_timestamp()
      FROM closed
)
SELECT id, lane FROM closed;

-- name: request_cancel
UPDATE runs SET cancel_requested = true WHERE id = ANY($1::uuid[]) AND state = 'running' RETURNING id;
