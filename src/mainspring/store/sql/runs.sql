-- name: of_jobs
SELECT id FROM runs WHERE lane = ANY($1::uuid[])
UNION ALL
SELECT id FROM runs WHERE lane IS NULL AND job_id = ANY($1::uuid[]);

-- name: cancel_unclaimed
-- Into history, unless a worker was quicker: the row lock lets exactly one of cancel and claim win (F34).
WITH closed AS (
    DELETE FROM runs WHERE id = ANY($1::uuid[]) AND state IN ('held', 'queued', 'waiting') RETURNING *
), kept AS (
    INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, attempt, failures, worker,
                             fired_at, settled_at, payload)
    SELECT id, slot, job_id, tenant, version, kind, pool, 'cancelled', attempt, failures, NULL, fired_at, clock_timestamp(),
           payload
      FROM closed
)
SELECT id, lane FROM closed;

-- name: request_cancel
UPDATE runs SET cancel_requested = true WHERE id = ANY($1::uuid[]) AND state = 'running' RETURNING id;

-- name: cancels_asked
-- Few at any time, whatever the number of runs: they have an index of their own.
SELECT id FROM runs WHERE cancel_requested AND state = 'running' AND worker = $1;

-- name: retry_now
-- One that waits for its next attempt need not wait any longer.
UPDATE runs SET ready_at = clock_timestamp(), rank = clock_timestamp() - (ready_at - rank)
 WHERE id = $1 AND state = 'waiting' RETURNING id;

-- name: cancel_in
-- Of one tenant, whatever became of it meanwhile.
SELECT id FROM runs WHERE tenant = $1 AND id = $2;
