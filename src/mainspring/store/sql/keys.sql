-- name: make
INSERT INTO api_keys (id, tenant, name, prefix, hash, role, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: find
SELECT k.*, coalesce(k.expires_at <= clock_timestamp(), false) AS expired, tenants.state AS tenant_state
  FROM api_keys AS k LEFT JOIN tenants ON tenants.name = k.tenant WHERE k.id = $1;

-- name: find_by_hash
-- One look by key, whether there is such a key or not.
SELECT k.*, coalesce(k.expires_at <= clock_timestamp(), false) AS expired, tenants.state AS tenant_state
  FROM api_keys AS k LEFT JOIN tenants ON tenants.name = k.tenant WHERE k.hash = $1;

-- name: list
-- Oldest first: their ids sort by the time they were made. $1 null: those of the whole cluster and of every tenant.
SELECT k.*, coalesce(k.expires_at <= clock_timestamp(), false) AS expired, tenants.state AS tenant_state
  FROM api_keys AS k LEFT JOIN tenants ON tenants.name = k.tenant
 WHERE ($1::text IS NULL OR k.tenant = $1) AND k.id > $2 AND ($4 OR k.revoked_at IS NULL)
 ORDER BY k.id LIMIT $3;

-- name: revoke
-- The first time counts.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
 WHERE id = $1 AND ($2::text IS NULL OR tenant = $2) RETURNING id;

-- name: touch
-- Not more than once a minute for each key, however many nodes saw it. What another is touching right now is touched.
UPDATE api_keys SET last_used_at = clock_timestamp()
 WHERE id IN (SELECT id FROM api_keys
               WHERE id = ANY($1::uuid[]) AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')
               ORDER BY id FOR UPDATE SKIP LOCKED)
RETURNING id;
