-- name: server
SELECT current_setting('server_version_num')::integer AS number,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       current_setting('max_connections')::integer AS most_connections;

-- name: settings
SELECT name, setting FROM pg_settings WHERE name = ANY($1);

-- name: clock
SELECT clock_timestamp();

-- name: overdue
-- Active jobs whose slot nobody decided, although it was due this long ago.
SELECT count(*) AS jobs, max(statement_timestamp() - next_fire_at) AS lag
  FROM (SELECT next_fire_at FROM job_cursors
         WHERE state = 'active' AND next_fire_at < statement_timestamp() - $1::interval
         ORDER BY next_fire_at LIMIT $2) AS due;

-- name: quarantined
SELECT jobs.name FROM job_cursors AS c JOIN jobs ON jobs.id = c.job_id
 WHERE c.state = 'quarantined' ORDER BY jobs.name LIMIT $1;

-- name: letters
SELECT count(*) FROM (SELECT FROM dead_letters WHERE closed_at IS NULL LIMIT $1) AS few;

-- name: tables
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables
 WHERE relname = ANY($1) AND schemaname = current_schema() ORDER BY relname;

-- name: held_back
-- What keeps vacuum from removing dead rows: the oldest transaction, and how many transactions began after the oldest
-- snapshot that somebody still holds, a standby or an abandoned prepared transaction included.
SELECT (SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend') AS longest,
       greatest((SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
                (SELECT max(age(xmin)) FROM pg_replication_slots),
                (SELECT max(age(transaction)) FROM pg_prepared_xacts), 0) AS age;

-- name: missing_partitions
-- Of tomorrow: from midnight on, rows would go to the default partition, where retention is slow.
SELECT day.name FROM (SELECT parent || '_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD') AS name
                        FROM unnest(ARRAY['run_history', 'skips', 'attempts', 'run_lines']) AS parent) AS day
 WHERE to_regclass(day.name) IS NULL ORDER BY day.name;

-- name: leases
SELECT name, node, epoch FROM leases ORDER BY name;
