-- name: dead
SELECT id FROM nodes
 WHERE dead_at IS NOT NULL AND cleared_at IS NULL AND (swept_at IS NULL OR swept_at < clock_timestamp() - interval '4 s');

-- name: lost
SELECT id, job_id, version, kind, slot, rank, attempt, failures, started_at, payload, token, worker
  FROM runs WHERE state = 'running' AND worker = ANY($1::uuid[]) ORDER BY id LIMIT $2;

-- name: swept
UPDATE nodes SET swept_at = clock_timestamp(), cleared_at = CASE WHEN swept_at IS NOT NULL THEN clock_timestamp() END
 WHERE id = ANY($1::uuid[]);

-- name: unknown
SELECT id, job_id, version, kind, slot, rank, attempt, failures, started_at, payload, token, worker
  FROM runs WHERE state = 'running' AND worker = $1 AND NOT id = ANY($2::uuid[]);

-- name: stranded
SELECT DISTINCT job_id FROM runs
 WHERE held AND NOT EXISTS (SELECT FROM runs AS holder WHERE holder.lane = runs.job_id) LIMIT $1;

-- name: expire
-- Never what a worker has in hand: that ends by its attempt, so no dead letter is still at work (F66).
WITH closed AS (
    DELETE FROM runs
     WHERE id = ANY (ARRAY(SELECT id FROM runs
                            WHERE expires_at <= statement_timestamp() AND state IN ('held', 'queued', 'waiting')
                            ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING *
), kept AS (
    INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, reason, attempt, failures,
                             fired_at, settled_at, payload)
    SELECT id, slot, job_id, tenant, version, kind, pool, 'dead', 'expired', attempt, failures, fired_at, clock_timestamp(),
           payload
      FROM closed
), letters AS (
    INSERT INTO dead_letters (run_id, job_id, tenant, slot, reason, died_at, version, kind, pool, payload, attempts)
    SELECT id, job_id, tenant, slot, 'expired', clock_timestamp(), version, kind, pool, payload,
           (SELECT jsonb_agg(to_jsonb(a) - '{run_id,slot}'::text[] ORDER BY a.attempt) FROM attempts AS a
             WHERE a.run_id = closed.id AND a.slot = closed.slot)
      FROM closed
)
SELECT id, lane FROM closed;

-- name: done
SELECT job_id FROM job_cursors
 WHERE delete_when_done AND state = 'finished'
   AND NOT EXISTS (SELECT FROM runs WHERE runs.lane = job_cursors.job_id)
   AND NOT EXISTS (SELECT FROM runs WHERE runs.lane IS NULL AND runs.job_id = job_cursors.job_id)
 LIMIT $1;
