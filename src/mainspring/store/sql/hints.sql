-- name: ring
-- In a transaction of its own, after the one that made the work: a NOTIFY takes a database-wide lock at commit (F94).
SELECT pg_notify('mainspring_work', $1);

-- name: unflushed
-- Of the bell's own connection: a hint need not survive, and a flush to disk for each would compete with the runs'.
SET synchronous_commit = off;
