-- name: begin
-- Whoever comes second waits until the first one's transaction is over, and then finds its row; no row comes back. One that
-- began long ago and has no answer belongs to a process that is gone: the next may have it, and starts the clock anew.
INSERT INTO answers AS old (tenant, key, fingerprint, started_at) VALUES ($1, $2, $3, clock_timestamp())
    ON CONFLICT (tenant, key) DO UPDATE SET started_at = clock_timestamp()
     WHERE old.finished_at IS NULL AND old.fingerprint = excluded.fingerprint AND old.started_at < clock_timestamp() - $4::interval
RETURNING started_at;

-- name: find
SELECT fingerprint, status, answer, headers FROM answers WHERE tenant = $1 AND key = $2;

-- name: known
SELECT key FROM answers WHERE tenant = $1 AND key = ANY($2::text[]);

-- name: finish
-- Only by the one who began it last: its start is what it knows it by.
UPDATE answers SET status = $4, answer = $5, headers = $6, finished_at = clock_timestamp()
 WHERE tenant = $1 AND key = $2 AND started_at = $3 AND finished_at IS NULL RETURNING key;

-- name: forget
DELETE FROM answers WHERE tenant = $1 AND key = $2 AND started_at = $3 AND finished_at IS NULL;

-- name: remember
-- Those that come back are new. In the order of their keys, so that two batches with some keys in common wait one way only.
INSERT INTO answers (tenant, key, fingerprint, status, answer, headers, started_at, finished_at)
SELECT tenant, key, fingerprint, status, answer, headers, clock_timestamp(), clock_timestamp()
  FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int[], $5::bytea[], $6::jsonb[])
       AS given (tenant, key, fingerprint, status, answer, headers)
 ORDER BY tenant, key
    ON CONFLICT DO NOTHING
RETURNING tenant, key;
