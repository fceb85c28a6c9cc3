-- name: jobs
-- By name, after the one where the last piece ended. $9: what was made later is not meant. $10: only what has a schedule,
-- which is what can be paused.
SELECT jobs.id, jobs.name
  FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
 WHERE jobs.tenant = $1 AND jobs.deleted_at IS NULL AND jobs.name > $2
   AND ($4::text[] IS NULL OR c.state = ANY($4)) AND ($5::text IS NULL OR v.definition ->> 'task' = $5)
   AND ($6::text IS NULL OR starts_with(jobs.name, $6)) AND ($7::text IS NULL OR v.definition ->> 'owner' = $7)
   AND ($8::text[] IS NULL OR v.definition -> 'tags' ?& $8) AND jobs.created_at <= $9 AND NOT ($10 AND c.on_demand)
 ORDER BY jobs.name LIMIT $3;

-- name: count_jobs
-- The same, counted up to a limit: nobody waits for a number that says no more than "many".
SELECT count(*)
  FROM (SELECT
          FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id
          JOIN job_versions AS v ON v.job_id = jobs.id AND v.version = c.version
         WHERE jobs.tenant = $1 AND jobs.deleted_at IS NULL AND jobs.name > $2
           AND ($4::text[] IS NULL OR c.state = ANY($4)) AND ($5::text IS NULL OR v.definition ->> 'task' = $5)
           AND ($6::text IS NULL OR starts_with(jobs.name, $6)) AND ($7::text IS NULL OR v.definition ->> 'owner' = $7)
           AND ($8::text[] IS NULL OR v.definition -> 'tags' ?& $8) AND jobs.created_at <= $9 AND NOT ($10 AND c.on_demand)
         LIMIT $3) AS few;

-- name: runs
-- Newest slot first, before the one where the last piece ended. $11: what was fired later is not meant, such as what a retry
-- of these has made.
SELECT id, slot AS at
  FROM ((SELECT id, slot FROM runs
          WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
            AND ($10::uuid IS NULL OR job_id = $10) AND fired_at <= $11
          ORDER BY slot DESC, id DESC LIMIT $4)
        UNION ALL
        (SELECT id, slot FROM run_history
          WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
            AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
            AND ($10::uuid IS NULL OR job_id = $10) AND fired_at <= $11
          ORDER BY slot DESC, id DESC LIMIT $4)) AS found
 ORDER BY slot DESC, id DESC LIMIT $4;

-- name: count_runs
SELECT count(*)
  FROM (SELECT FROM runs
         WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
           AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
           AND ($10::uuid IS NULL OR job_id = $10) AND fired_at <= $11
        UNION ALL
        SELECT FROM run_history
         WHERE tenant = $1 AND (slot, id) < ($2, $3) AND ($5::text[] IS NULL OR state = ANY($5))
           AND ($6::text IS NULL OR pool = $6) AND ($7::text IS NULL OR kind = $7) AND slot >= $8 AND slot < $9
           AND ($10::uuid IS NULL OR job_id = $10) AND fired_at <= $11
         LIMIT $4) AS few;

-- name: letters
-- The open ones, newest first, before the one where the last piece ended.
SELECT run_id AS id, died_at AS at FROM dead_letters
 WHERE tenant = $1 AND closed_at IS NULL AND (died_at, run_id) < ($2, $3) AND ($5::uuid IS NULL OR job_id = $5)
   AND ($6::text IS NULL OR reason = $6) AND died_at >= $7 AND died_at < $8 AND died_at <= $9
 ORDER BY died_at DESC, run_id DESC LIMIT $4;

-- name: count_letters
SELECT count(*)
  FROM (SELECT FROM dead_letters
         WHERE tenant = $1 AND closed_at IS NULL AND (died_at, run_id) < ($2, $3) AND ($5::uuid IS NULL OR job_id = $5)
           AND ($6::text IS NULL OR reason = $6) AND died_at >= $7 AND died_at < $8 AND died_at <= $9
         LIMIT $4) AS few;

-- name: runs_there
SELECT id FROM runs WHERE tenant = $1 AND id = ANY($2::uuid[])
UNION
SELECT id FROM run_history WHERE tenant = $1 AND id = ANY($2::uuid[]);

-- name: letters_there
SELECT run_id AS id FROM dead_letters WHERE tenant = $1 AND run_id = ANY($2::uuid[]);
