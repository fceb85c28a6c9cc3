-- name: ring
-- In a transaction of its own, after the one that made the work: a NOTIFY takes a database-wide lock at commit (F94).
SELECT pg_notify('mainspring_work', $1);
