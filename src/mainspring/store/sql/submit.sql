-- name: lock_shared
-- Any number of requests at once, none beside an edit or a delete, which lock FOR UPDATE. No more is needed where runs may
-- overlap.
SELECT version, state, clock_timestamp() AS now FROM job_cursors WHERE job_id = $1 AND state <> 'deleted' FOR KEY SHARE;

-- name: lock_alone
-- The same lock as a fire's, for a job with a lane: who takes it and who waits is decided one at a time.
SELECT version, state, clock_timestamp() AS now FROM job_cursors WHERE job_id = $1 AND state <> 'deleted' FOR UPDATE;

-- name: submit_one
-- What is asked for one by one, without a key: a single value costs a tenth of an array of one.
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, expires_at, pool, task, state, payload)
SELECT $6::uuid, job_id, $3::text, version, 'manual', ready_at, now, ready_at, ready_at - $9::interval, ready_at + $5::interval,
       $10::text, $4::text, 'queued', $11::text
  FROM (SELECT job_id, version, statement_timestamp() AS now,
               coalesce($7::timestamptz, statement_timestamp() + $8::interval, statement_timestamp()) AS ready_at
          FROM job_cursors WHERE job_id = $1 AND version = $2 AND state <> 'deleted' FOR KEY SHARE) AS job
RETURNING id;

-- name: submit
-- All of it in one statement, for requests that come one by one. A key that is taken makes no run; a second request with the
-- same key waits for the first. No row at all: the job has another version by now, or is gone. The slot is when it is due.
WITH job AS MATERIALIZED (
    SELECT job_id, version, clock_timestamp() AS now FROM job_cursors
     WHERE job_id = $1::uuid AND version = $2::int AND state <> 'deleted' FOR KEY SHARE
), given AS MATERIALIZED (
    SELECT one.*, coalesce(one.due_at, job.now + one.delay, job.now) AS ready_at, job.now
      FROM job, unnest($6::uuid[], $7::text[], $8::timestamptz[], $9::interval[], $10::interval[], $11::text[], $12::text[])
           AS one (id, key, due_at, delay, lead, pool, payload)
), taken AS (
    INSERT INTO submissions (job_id, key, run_id, submitted_at)
    SELECT DISTINCT ON (key) $1::uuid, key, id, now FROM given WHERE key IS NOT NULL
        ON CONFLICT DO NOTHING
    RETURNING run_id
), written AS (
    INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, expires_at, pool, task, state, payload)
    SELECT DISTINCT ON (id) id, $1::uuid, $3::text, $2::int, 'manual', ready_at, now, ready_at, ready_at - lead,
           ready_at + $5::interval, pool, $4::text, 'queued', payload
      FROM given WHERE key IS NULL OR id IN (SELECT run_id FROM taken)
        ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT (SELECT count(*) FROM job) AS jobs, (SELECT count(*) FROM written) AS runs;

-- name: take_keys
-- Those that come back are new.
INSERT INTO submissions (job_id, key, run_id, submitted_at)
SELECT $1::uuid, key, run_id, $2::timestamptz FROM unnest($3::text[], $4::uuid[]) AS given (key, run_id)
    ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: write_runs
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, expires_at, pool, task, state, held, lane,
                  payload)
SELECT id, $1::uuid, $2::text, $3::int, kind, slot, $4::timestamptz, ready_at, rank, expires_at, pool, $5::text, CASE WHEN held THEN 'held' ELSE 'queued' END, held,
       CASE WHEN lane THEN $1::uuid END, payload
  FROM unnest($6::uuid[], $7::text[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::text[],
              $13::boolean[], $14::boolean[], $15::text[])
       AS given (id, kind, slot, ready_at, rank, expires_at, pool, held, lane, payload)
    ON CONFLICT DO NOTHING;

-- name: insert_many
-- What COPY does where there is no row security.
INSERT INTO runs (id, job_id, tenant, version, kind, slot, fired_at, ready_at, rank, expires_at, pool, task, state, payload)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::timestamptz[],
                     $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::text[], $13::text[], $14::text[]);

-- name: free_lane
-- A run that was held may have missed the end of the one before it: neither saw the other.
SELECT job_id FROM job_cursors WHERE job_id = $1 FOR UPDATE;
