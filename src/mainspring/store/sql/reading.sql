-- name: job_by_id
SELECT jobs.id, jobs.name, jobs.tenant, c.state, c.version, v.definition, c.next_fire_at, c.last_slot, c.resume_at, c.fired,
       jobs.created_at, v.effective_at, v.author, v.reason
  FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
 WHERE jobs.tenant = $1 AND jobs.id = $2;

-- name: job_by_name
SELECT jobs.id, jobs.name, jobs.tenant, c.state, c.version, v.definition, c.next_fire_at, c.last_slot, c.resume_at, c.fired,
       jobs.created_at, v.effective_at, v.author, v.reason
  FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
 WHERE jobs.tenant = $1 AND jobs.name = $2 AND jobs.deleted_at IS NULL;

-- name: jobs
-- By name, after the one where the last page ended.
SELECT jobs.id, jobs.name, jobs.tenant, c.state, c.version, v.definition, c.next_fire_at, c.last_slot, c.resume_at, c.fired,
       jobs.created_at, v.effective_at, v.author, v.reason
  FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
 WHERE jobs.tenant = $1 AND jobs.deleted_at IS NULL AND jobs.name > $2
   AND ($4::text[] IS NULL OR c.state = ANY($4)) AND ($5::text IS NULL OR v.definition ->> 'task' = $5)
   AND ($6::text IS NULL OR starts_with(jobs.name, $6)) AND ($7::text IS NULL OR v.definition ->> 'owner' = $7)
   AND ($8::text[] IS NULL OR v.definition -> 'tags' ?& $8)
 ORDER BY jobs.name LIMIT $3;

-- name: statuses
-- Of many at once, by id or by name, without their definitions: what is asked for most.
SELECT * FROM job_statuses($1, $2, $3);

-- name: versions
SELECT version, state, definition, effective_at, author, reason FROM job_versions
 WHERE job_id = $1 ORDER BY version DESC LIMIT $2;

-- name: run
SELECT r.*, coalesce(jobs.name, '') AS job, v.definition ->> 'task' AS task, (v.definition -> 'payload')::text AS job_payload
  FROM (SELECT id, job_id, tenant, kind, state, NULL AS reason, pool, slot, version, attempt, failures, fired_at, ready_at,
               started_at, NULL::timestamptz AS settled_at, worker, cancel_requested, payload, NULL AS result, NULL AS error
          FROM runs WHERE id = $2
        UNION ALL
        SELECT id, job_id, tenant, kind, state, reason, pool, slot, version, attempt, failures, fired_at, NULL, started_at,
               settled_at, worker, false, payload, result, error
          FROM run_history WHERE id = $2) AS r
  JOIN jobs ON jobs.id = r.job_id JOIN job_versions AS v ON v.job_id = r.job_id AND v.version = r.version
 WHERE r.tenant = $1;

-- name: runs_newest
-- Newest slot first, before the one where the last page ended. The history has an index for this order; what is in motion
-- has none, so that claiming stays cheap, and is gone through.
SELECT r.*, jobs.name AS job, v.definition ->> 'task' AS task, (v.definition -> 'payload')::text AS job_payload
  FROM ((SELECT id, job_id, tenant, kind, state, NULL AS reason, pool, slot, version, attempt, failures, fired_at, ready_at,
                started_at, NULL::timestamptz AS settled_at, worker, cancel_requested, payload, NULL AS result, NULL AS error
           FROM runs
          WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
          ORDER BY slot DESC, id DESC LIMIT $4)
        UNION ALL
        (SELECT id, job_id, tenant, kind, state, reason, pool, slot, version, attempt, failures, fired_at, NULL, started_at,
                settled_at, worker, false, payload, result, error
           FROM run_history
          WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
          ORDER BY slot DESC, id DESC LIMIT $4)
        ORDER BY slot DESC, id DESC LIMIT $4) AS r
  JOIN jobs ON jobs.id = r.job_id JOIN job_versions AS v ON v.job_id = r.job_id AND v.version = r.version
 ORDER BY r.slot DESC, r.id DESC;

-- name: runs_of_job
-- The same for one job, by indexes of its own.
SELECT r.*, jobs.name AS job, v.definition ->> 'task' AS task, (v.definition -> 'payload')::text AS job_payload
  FROM ((SELECT id, job_id, tenant, kind, state, NULL AS reason, pool, slot, version, attempt, failures, fired_at, ready_at,
                started_at, NULL::timestamptz AS settled_at, worker, cancel_requested, payload, NULL AS result, NULL AS error
           FROM (SELECT * FROM runs WHERE lane = $10
                 UNION ALL SELECT * FROM runs WHERE lane IS NULL AND job_id = $10) AS in_motion
          WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
          ORDER BY slot DESC, id DESC LIMIT $4)
        UNION ALL
        (SELECT id, job_id, tenant, kind, state, reason, pool, slot, version, attempt, failures, fired_at, NULL, started_at,
                settled_at, worker, false, payload, result, error
           FROM run_history
          WHERE job_id = $10 AND tenant = $1 AND slot <= $2 AND (slot, id) < ($2, $3)
            AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
          ORDER BY slot DESC, id DESC LIMIT $4)
        ORDER BY slot DESC, id DESC LIMIT $4) AS r
  JOIN jobs ON jobs.id = r.job_id JOIN job_versions AS v ON v.job_id = r.job_id AND v.version = r.version
 ORDER BY r.slot DESC, r.id DESC;

-- name: attempts
SELECT attempt, worker, started_at, ended_at, outcome, error FROM attempts WHERE run_id = $1 AND slot = $2 ORDER BY attempt;

-- name: slots
SELECT scheduled_at, first_slot, disposition, covers_count, fired_at, run_id FROM audit_fires
 WHERE job_id = $1 AND scheduled_at >= $2 AND scheduled_at < $3 ORDER BY scheduled_at DESC LIMIT $4;

-- name: last_success
SELECT id, settled_at, result FROM run_history
 WHERE job_id = $1 AND slot < $2 AND state = 'succeeded' ORDER BY slot DESC LIMIT 1;

-- name: nodes
SELECT n.*, clock_timestamp() - heartbeat_at AS heartbeat_age,
       dead_at IS NULL AND heartbeat_at + lease_for > clock_timestamp() AS alive,
       (SELECT count(*) FROM runs WHERE worker = n.id) AS running
  FROM nodes AS n WHERE dead_at IS NULL OR dead_at > clock_timestamp() - $1::interval
 ORDER BY registered_at;

-- name: pools
-- Counted up to a limit: nobody waits for a number that says no more than "many".
SELECT name,
       (SELECT count(*) FROM (SELECT FROM runs WHERE pool = name AND NOT held AND state IN ('queued', 'waiting')
                                 AND ready_at <= statement_timestamp() LIMIT $1) AS few) AS ready,
       (SELECT count(*) FROM (SELECT FROM runs WHERE pool = name AND state IN ('held', 'queued', 'waiting')
                                 AND (held OR ready_at > statement_timestamp()) LIMIT $1) AS few) AS waiting,
       (SELECT count(*) FROM (SELECT FROM runs WHERE pool = name AND NOT held AND state = 'running' LIMIT $1) AS few) AS running,
       (SELECT statement_timestamp() - ready_at FROM runs
         WHERE pool = name AND NOT held AND state IN ('queued', 'waiting') AND ready_at <= statement_timestamp()
         ORDER BY rank, id LIMIT 1) AS oldest_ready,
       (SELECT array_agg(DISTINCT task) FROM (SELECT task FROM runs WHERE pool = name AND NOT held
                                                 AND state IN ('queued', 'waiting') ORDER BY rank, id LIMIT $1) AS few) AS tasks,
       (SELECT reason FROM paused_pools WHERE paused_pools.name = pools.name) AS paused
  FROM (SELECT DISTINCT pool AS name FROM runs UNION SELECT unnest(pools) FROM nodes WHERE dead_at IS NULL
        UNION SELECT name FROM paused_pools) AS pools
 ORDER BY name;
