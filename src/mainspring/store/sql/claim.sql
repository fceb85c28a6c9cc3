-- name: claim
-- Ready runs of a pool that nobody else is claiming, by rank. Materialised, because a LIMIT under FOR UPDATE SKIP LOCKED may
-- otherwise be applied twice and lock more than it returns. clock_timestamp() for the lease: now() is stale after a wait (F97).
WITH picked AS MATERIALIZED (
    SELECT id FROM runs
     WHERE pool = $1 AND NOT held AND rank <= statement_timestamp() AND ready_at <= statement_timestamp()
       AND state IN ('queued', 'waiting') AND NOT cancel_requested AND task = ANY($4::text[])
     ORDER BY rank, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE runs
   SET state = 'running', attempt = attempt + 1, token = gen_random_uuid(), worker = $3, started_at = clock_timestamp()
 WHERE runs.id = ANY (ARRAY(SELECT id FROM picked))  -- by key, also in a generic plan, which takes LIMIT $2 for a tenth of the table
RETURNING runs.id, job_id, tenant, version, kind, slot, ready_at, task, attempt, failures, token, started_at;
