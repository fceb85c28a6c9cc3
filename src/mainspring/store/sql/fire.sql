-- name: lock_due_now
-- Due jobs nobody is firing at this moment, oldest first. The time comes back with the rows: it is the only clock this
-- transaction may use. Not now(), stale after a wait; not clock_timestamp(), volatile: it would keep the planner off the index.
-- After ($3, $4), where the last full look ended: before that are cursors that have moved on and are not vacuumed yet.
SELECT job_id, version, next_fire_at, fired, statement_timestamp() AS locked_at
  FROM job_cursors
 WHERE state = 'active' AND (next_fire_at, job_id) > ($3::timestamptz, $4::uuid)
   AND next_fire_at <= statement_timestamp() - $2::interval
 ORDER BY next_fire_at, job_id
 LIMIT $1
   FOR UPDATE SKIP LOCKED;

-- name: lock_named
-- The same for candidates an engine names. What is not due, paused or locked by another is left out.
SELECT job_id, version, next_fire_at, fired, statement_timestamp() AS locked_at
  FROM job_cursors
 WHERE job_id = ANY($1::uuid[]) AND state = 'active' AND next_fire_at <= statement_timestamp()
 ORDER BY next_fire_at, job_id
   FOR UPDATE SKIP LOCKED;

-- name: going
-- What of these jobs is in motion. Every run is inserted under its job's row lock, which we hold: none can appear meanwhile.
SELECT job_id, count(*) FILTER (WHERE NOT held) AS released, count(*) FILTER (WHERE held) AS held
  FROM (SELECT job_id, held FROM runs WHERE lane = ANY($1::uuid[])
        UNION ALL
        SELECT job_id, held FROM runs WHERE lane IS NULL AND job_id = ANY($1::uuid[])) AS in_motion
 GROUP BY job_id;

-- name: write_runs
-- The cursor under its lock is the first line of defence, this key the second. A conflict inserts
-- nothing, and the job still moves on. ready_at carries the jitter; the slot does not.
-- Subscripts instead of a join: a generic plan takes both sides for ten rows, and may then go through all pairs.
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, expires_at, pool, task, state, held, lane)
SELECT id, job_id, ($5::text[])[place], ($6::int[])[place], 'schedule', ($7::timestamptz[])[place], $1,
       ($8::timestamptz[])[place], ($9::timestamptz[])[place], ($10::timestamptz[])[place],
       ($11::text[])[place], ($12::text[])[place],
       CASE WHEN ($13::boolean[])[place] THEN 'held' ELSE 'queued' END, ($13::boolean[])[place],
       CASE WHEN ($14::boolean[])[place] THEN job_id END
  FROM unnest($2::uuid[], $3::uuid[], $4::int[]) AS plan (id, job_id, place)
    ON CONFLICT DO NOTHING;

-- name: write_skips
-- A slot that does not run still gets its row: "why not?" is a SELECT, and I1 a set difference.
INSERT INTO skips (job_id, slot, first_slot, covers_count, disposition, version, decided_at)
SELECT job_id, ($4::timestamptz[])[place], ($5::timestamptz[])[place], ($6::bigint[])[place], ($7::text[])[place],
       ($8::int[])[place], $1
  FROM unnest($2::uuid[], $3::int[]) AS plan (job_id, place)
    ON CONFLICT DO NOTHING;

-- name: move_cursors
-- Fewer rows than plans is a bug of ours, not a race: we hold the locks.
UPDATE job_cursors AS c
   SET next_fire_at = ($4::timestamptz[])[place], last_slot = ($5::timestamptz[])[place],
       fired = c.fired + ($6::int[])[place],
       state = CASE WHEN ($4::timestamptz[])[place] IS NULL THEN 'finished' ELSE c.state END
  FROM unnest($1::uuid[], $2::int[]) AS plan (job_id, place)
 WHERE c.job_id = plan.job_id AND c.next_fire_at = ($3::timestamptz[])[place];

-- name: quarantine
-- A job whose plan raises stops alone, with its cursor where it was; an operator decides.
UPDATE job_cursors SET state = 'quarantined' WHERE job_id = ANY($1::uuid[]);

-- name: next_due_in
SELECT next_fire_at - statement_timestamp()
  FROM job_cursors WHERE state = 'active' ORDER BY next_fire_at, job_id LIMIT 1;
