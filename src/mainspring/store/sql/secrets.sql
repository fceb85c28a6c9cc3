-- name: lock_name
-- Two puts of one name are one after the other: the version is sealed in, so it has to be known before. The lock ends with
-- the transaction. There may be no row to lock yet.
SELECT pg_advisory_xact_lock(hashtextextended('secret/' || $1 || '/' || $2, 0));

-- name: newest_version
SELECT coalesce(max(version), 0) FROM secrets WHERE tenant = $1 AND name = $2;

-- name: put
INSERT INTO secrets (tenant, name, version, key_id, nonce, sealed, author) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING created_at;

-- name: forget_older
DELETE FROM secrets WHERE tenant = $1 AND name = $2 AND version <= $3;

-- name: newest
SELECT version, key_id, nonce, sealed FROM secrets WHERE tenant = $1 AND name = $2 ORDER BY version DESC LIMIT 1;

-- name: list
-- The newest of each name, and never what is sealed.
SELECT DISTINCT ON (name) name, version, key_id, created_at, author
  FROM secrets WHERE tenant = $1 ORDER BY name, version DESC;

-- name: delete
DELETE FROM secrets WHERE tenant = $1 AND name = $2;

-- name: count_under_other_keys
SELECT count(*) FROM secrets WHERE key_id <> $1;

-- name: lock_under_other_keys
-- In the order of the primary key after the last one: what does not open is passed over, and not met again.
SELECT tenant, name, version, key_id, nonce, sealed FROM secrets
 WHERE key_id <> $1 AND (tenant, name, version) > ($2, $3, $4)
 ORDER BY tenant, name, version LIMIT $5 FOR UPDATE;

-- name: reseal
UPDATE secrets SET key_id = $4, nonce = $5, sealed = $6 WHERE tenant = $1 AND name = $2 AND version = $3;
