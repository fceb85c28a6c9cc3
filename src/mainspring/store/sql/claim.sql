-- name: claim
-- Ready runs of a pool that nobody else is claiming, by rank. Materialised, because a LIMIT under FOR UPDATE SKIP LOCKED may
-- otherwise be applied twice and lock more than it returns. By ctid, which our lock keeps where it is: a third cheaper than
-- by key, and the same in a generic plan, which takes LIMIT $2 for a tenth of the table. One moment for all, after the
-- locks: now() is stale after a wait (F97). One token for all: with run and attempt it is as good as one for each.
-- After ($6, $7), where the last claim ended: before that is what is at work, and what was settled and not vacuumed yet.
WITH picked AS MATERIALIZED (
    SELECT ctid FROM runs
     WHERE pool = $1 AND NOT held AND (rank, id) > ($6::timestamptz, $7::uuid) AND rank <= statement_timestamp()
       AND ready_at <= statement_timestamp()
       AND state IN ('queued', 'waiting') AND NOT cancel_requested AND task = ANY($4::text[])
       AND (expires_at IS NULL OR expires_at > statement_timestamp())
       AND (SELECT dead_at IS NULL FROM nodes WHERE id = $3)  -- whoever was declared dead takes nothing more
       AND NOT EXISTS (SELECT FROM paused_pools WHERE name = $1)
     ORDER BY rank, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE runs
   SET state = 'running', attempt = attempt + 1, token = $5, worker = $3, started_at = (SELECT clock_timestamp())
 WHERE runs.ctid = ANY (ARRAY(SELECT ctid FROM picked))
RETURNING id, job_id, version, kind, slot, rank, attempt, failures, started_at, payload;
