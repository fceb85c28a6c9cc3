-- name: create
INSERT INTO tenants (name, quotas, note) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING *;

-- name: find
SELECT * FROM tenants WHERE name = $1;

-- name: list
-- By name, after the one where the last page ended.
SELECT * FROM tenants WHERE name > $1 AND ($3 OR state <> 'deleted') ORDER BY name LIMIT $2;

-- name: lock
-- Whoever changes a tenant does so one after the other.
SELECT * FROM tenants WHERE name = $1 FOR UPDATE;

-- name: change
UPDATE tenants SET state = $2, quotas = $3, note = $4, changed_at = clock_timestamp() WHERE name = $1 RETURNING *;

-- name: orphans
-- Jobs that were made while their tenant was being deleted. One that nobody ever made as a tenant is no orphan.
SELECT jobs.id FROM tenants JOIN jobs ON jobs.tenant = tenants.name
 WHERE tenants.state = 'deleted' AND jobs.deleted_at IS NULL LIMIT $1;

-- name: jobs_left
-- Counted up to a limit: nobody waits for a number that says no more than "many".
SELECT count(*) FROM (SELECT FROM jobs WHERE tenant = $1 AND deleted_at IS NULL LIMIT $2) AS few;
