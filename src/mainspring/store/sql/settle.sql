-- name: lock_running
-- The runs these attempts still hold. The token decides, not the clock: a slow worker nobody replaced is right (I4).
-- Only what is running has one. Asking for that state too would tell the planner, which believes that hardly any run is in
-- it, to begin there, and to go through all of them for each outcome.
SELECT runs.id, runs.failures, runs.cancel_requested, clock_timestamp() AS now
  FROM runs JOIN unnest($1::uuid[], $2::int[], $3::uuid[]) AS outcome (run_id, attempt, token)
    ON runs.id = outcome.run_id AND runs.attempt = outcome.attempt AND runs.token = outcome.token
 ORDER BY runs.id FOR UPDATE OF runs;

-- name: lock_lost
-- The same for recover, which only guesses: what is being settled right now is passed over, so that the two never wait
-- for each other.
SELECT runs.id, runs.failures, runs.cancel_requested, clock_timestamp() AS now
  FROM runs JOIN unnest($1::uuid[], $2::int[], $3::uuid[]) AS outcome (run_id, attempt, token)
    ON runs.id = outcome.run_id AND runs.attempt = outcome.attempt AND runs.token = outcome.token
 ORDER BY runs.id FOR UPDATE OF runs SKIP LOCKED;

-- name: finish_runs
-- Out of the narrow live table, into one append-only row of history. What does not come back was late (I4).
-- How it ended comes by place, one of a few: nearly all attempts end alike.
WITH closed AS (
    DELETE FROM runs
     USING unnest($1::uuid[], $2::int[], $3::uuid[], $4::int[]) AS outcome (run_id, attempt, token, place)
     WHERE runs.id = outcome.run_id AND runs.attempt = outcome.attempt
       AND runs.token = outcome.token
    RETURNING runs.*, place
), kept AS (
    INSERT INTO run_history (id, slot, job_id, tenant, version, kind, pool, state, reason, attempt, failures, worker,
                             fired_at, started_at, settled_at, error, result, payload)
    SELECT id, slot, job_id, tenant, version, kind, pool, ($5::text[])[place], ($6::text[])[place], attempt, ($7::int[])[place],
           worker, fired_at, started_at, (SELECT clock_timestamp()), ($8::text[])[place], ($9::text[])[place], payload FROM closed
), letters AS (
    INSERT INTO dead_letters (run_id, job_id, tenant, slot, reason, error, died_at, version, kind, pool, payload, attempts)
    SELECT id, job_id, tenant, slot, ($6::text[])[place], ($8::text[])[place], clock_timestamp(), version, kind, pool, payload,
           coalesce((SELECT jsonb_agg(to_jsonb(a) - '{run_id,slot}'::text[] ORDER BY a.attempt) FROM attempts AS a
                      WHERE a.run_id = closed.id AND a.slot = closed.slot), '[]')
           || jsonb_build_object('attempt', attempt, 'worker', worker, 'started_at', started_at,
                                 'ended_at', clock_timestamp(), 'outcome', ($10::text[])[place], 'error', ($8::text[])[place])
      FROM closed WHERE ($5::text[])[place] = 'dead'
)
SELECT id, lane FROM closed;

-- name: put_back
-- The attempt is closed and the run goes on: waiting for its time, or queued again.
WITH back AS (
    UPDATE runs
       SET state = outcome.state, failures = outcome.failures, token = NULL, worker = NULL,
           ready_at = coalesce(outcome.next_at, runs.ready_at), expires_at = coalesce(outcome.expires_at, runs.expires_at),
           rank = coalesce(outcome.next_at - (greatest(runs.ready_at, runs.fired_at) - runs.rank), runs.rank)
      FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::int[], $6::timestamptz[], $7::timestamptz[], $8::text[],
                  $9::text[])
           AS outcome (run_id, attempt, token, state, failures, next_at, expires_at, word, error),
           runs AS before
     WHERE before.id = runs.id AND runs.id = outcome.run_id AND runs.attempt = outcome.attempt
       AND runs.token = outcome.token
    RETURNING runs.id, runs.slot, runs.attempt, before.worker, before.started_at, outcome.word, outcome.error
)
INSERT INTO attempts (run_id, slot, attempt, worker, started_at, ended_at, outcome, error)
SELECT id, slot, attempt, worker, started_at, clock_timestamp(), word, error FROM back
RETURNING run_id;

-- name: release_held
-- The lane is free: its job's oldest held run takes it.
UPDATE runs SET state = 'queued', held = false, lane = runs.job_id
  FROM (SELECT DISTINCT ON (job_id) id FROM runs WHERE held AND lane IS NULL AND job_id = ANY($1::uuid[])
         ORDER BY job_id, slot) AS oldest
 WHERE runs.id = oldest.id
   AND NOT EXISTS (SELECT FROM runs AS holder WHERE holder.lane = runs.job_id)
RETURNING runs.id;

-- name: write_late
INSERT INTO late_results (run_id, attempt, worker, outcome)
SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[]);

-- name: lock_jobs
-- Jobs whose runs may be joined by a held one at this moment. Jobs before runs: the lock order everywhere.
SELECT job_id FROM job_cursors WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR UPDATE;
