-- name: insert_jobs
-- Job, first version and cursor in one statement: all or nothing, whatever the batch.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::jsonb[], $6::timestamptz[], $7::boolean[])
           AS job (id, tenant, name, shard, definition, next_fire_at, delete_when_done)
), made AS (
    INSERT INTO jobs (id, tenant, name, shard, version) SELECT id, tenant, name, shard, 1 FROM given RETURNING id
), versioned AS (
    INSERT INTO job_versions (job_id, version, state, definition, effective_at)
    SELECT given.id, 1, CASE WHEN next_fire_at IS NULL THEN 'finished' ELSE 'active' END, definition, $8
      FROM given JOIN made USING (id)
)
INSERT INTO job_cursors (job_id, shard, version, state, next_fire_at, delete_when_done)
SELECT given.id, shard, 1, CASE WHEN next_fire_at IS NULL THEN 'finished' ELSE 'active' END, next_fire_at, delete_when_done
  FROM given JOIN made USING (id);

-- name: clock
SELECT clock_timestamp();

-- name: shared
-- Without name and payload, and the schedule apart: many jobs share these, and they are read once for all of them.
SELECT job_id, version, (definition - '{name,payload,schedule}'::text[])::text AS rest, definition ->> 'schedule' AS schedule
  FROM job_versions WHERE (job_id, version) IN (SELECT * FROM unnest($1::uuid[], $2::int[]));

-- name: definitions
SELECT job_id, version, (definition - '{name,payload,schedule}'::text[])::text AS rest, definition ->> 'schedule' AS schedule,
       definition ->> 'name' AS name, (definition -> 'payload')::text AS payload
  FROM job_versions WHERE (job_id, version) IN (SELECT * FROM unnest($1::uuid[], $2::int[]));

-- name: taken
SELECT tenant, name FROM jobs
 WHERE deleted_at IS NULL AND (tenant, name) IN (SELECT * FROM unnest($1::text[], $2::text[]));
