-- name: insert_jobs
-- Job, first version and cursor in one statement: all or nothing, whatever the batch. A name that is taken is passed over.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::jsonb[], $6::timestamptz[], $7::boolean[],
                         $8::text[], $9::boolean[])
           AS job (id, tenant, name, shard, definition, next_fire_at, delete_when_done, state, on_demand)
), made AS (
    INSERT INTO jobs (id, tenant, name, shard, version, declared, created_at)
    SELECT id, tenant, name, shard, 1, CASE WHEN $11 THEN definition::text END, $10 FROM given
        ON CONFLICT (tenant, name) WHERE deleted_at IS NULL DO NOTHING
    RETURNING id
), versioned AS (
    INSERT INTO job_versions (job_id, version, state, definition, effective_at, author, reason)
    SELECT given.id, 1, state, definition, $10, $12, $13
      FROM given JOIN made USING (id)
)
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at, delete_when_done, on_demand)
SELECT given.id, shard, 1, state, next_fire_at, delete_when_done, on_demand
  FROM given JOIN made USING (id)
RETURNING job_id;

-- name: find_declared
SELECT jobs.id, jobs.declared, c.state, v.definition
  FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
 WHERE jobs.tenant = $1 AND jobs.name = $2 AND jobs.deleted_at IS NULL;

-- name: set_declared
UPDATE jobs SET declared = $2 WHERE id = $1;

-- name: clock
SELECT clock_timestamp();

-- name: shared
-- Without what is a job's own, and the schedule apart: many jobs share these, and they are read once for all of them.
SELECT job_id, version, (definition - '{name,payload,schedule,owner,tags,external_id}'::text[])::text AS rest, definition ->> 'schedule' AS schedule
  FROM job_versions WHERE (job_id, version) IN (SELECT * FROM unnest($1::uuid[], $2::int[]));

-- name: definitions
SELECT job_id, version, (definition - '{name,payload,schedule,owner,tags,external_id}'::text[])::text AS rest, definition ->> 'schedule' AS schedule,
       definition ->> 'name' AS name, (definition -> 'payload')::text AS payload
  FROM job_versions WHERE (job_id, version) IN (SELECT * FROM unnest($1::uuid[], $2::int[]));

-- name: taken
SELECT tenant, name FROM jobs
 WHERE deleted_at IS NULL AND (tenant, name) IN (SELECT * FROM unnest($1::text[], $2::text[]));
