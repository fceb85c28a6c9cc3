-- name: now
SELECT clock_timestamp();

-- name: horizon
-- Only what writes has an id of its own; who reads for an hour holds nobody up.
SELECT least(clock_timestamp() - $1::interval,
             greatest(clock_timestamp() - $2::interval,
                      coalesce((SELECT min(xact_start) FROM pg_stat_activity
                                 WHERE datname = current_database() AND backend_xid IS NOT NULL), clock_timestamp())));

-- name: settled
-- What ended after an instant, oldest first; page by page, for a batch ends in one instant.
SELECT r.id, r.job_id, jobs.name AS job, r.kind, r.state, r.reason, r.pool, r.slot, r.attempt, r.settled_at AS at
  FROM run_history AS r JOIN jobs ON jobs.id = r.job_id
 WHERE r.tenant = $1 AND r.settled_at >= $2 AND (r.settled_at, r.id) > ($2, $6::uuid)
   AND ($4::uuid IS NULL OR r.job_id = $4) AND ($5::uuid IS NULL OR r.id = $5)
 ORDER BY r.settled_at, r.id LIMIT $3;

-- name: moving_of_job
-- The runs of one job that are in motion, by its indexes.
SELECT r.id, r.job_id, jobs.name AS job, r.kind, r.state, NULL AS reason, r.pool, r.slot, r.attempt,
       coalesce(r.started_at, r.fired_at) AS at
  FROM (SELECT * FROM runs WHERE lane = $2
        UNION ALL SELECT * FROM runs WHERE lane IS NULL AND job_id = $2) AS r JOIN jobs ON jobs.id = r.job_id
 WHERE r.tenant = $1 ORDER BY at LIMIT $3;

-- name: moving_run
SELECT r.id, r.job_id, jobs.name AS job, r.kind, r.state, NULL AS reason, r.pool, r.slot, r.attempt,
       coalesce(r.started_at, r.fired_at) AS at
  FROM runs AS r JOIN jobs ON jobs.id = r.job_id WHERE r.tenant = $1 AND r.id = $2;

-- name: ended_run
SELECT r.id, r.job_id, jobs.name AS job, r.kind, r.state, r.reason, r.pool, r.slot, r.attempt, r.settled_at AS at
  FROM run_history AS r JOIN jobs ON jobs.id = r.job_id WHERE r.tenant = $1 AND r.id = $2;

-- name: changes
SELECT id, at, actor, action, subject, reason FROM changes
 WHERE tenant = $1 AND at >= $2 AND (at, id) > ($2, $4::uuid) ORDER BY at, id LIMIT $3;
