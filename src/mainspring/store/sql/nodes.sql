-- name: hold_fence
-- FOR SHARE: a takeover's UPDATE waits for this fire; FOR KEY SHARE would let it pass.
SELECT epoch FROM leases WHERE name = $1 AND node = $2 AND epoch = $3 FOR SHARE;

-- name: register
INSERT INTO nodes (id, role, host, pid, registered_at, heartbeat_at, lease_for, version, pools, tasks, rooms)
VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), $5, $6, $7, $8, $9);

-- name: timeline
-- Rises when a standby takes over: with it the fence of an attempt rises even if attempt numbers come again.
SELECT timeline_id FROM pg_control_checkpoint();

-- name: heartbeat
-- A node declared dead stays dead: then no row comes back.
UPDATE nodes SET heartbeat_at = clock_timestamp() WHERE id = $1 AND dead_at IS NULL RETURNING id, asked;

-- name: ask
UPDATE nodes SET asked = $2 WHERE id = $1 AND dead_at IS NULL RETURNING id;

-- name: pause_pool
INSERT INTO paused_pools (name, paused_at, author, reason) VALUES ($1, clock_timestamp(), $2, $3) ON CONFLICT DO NOTHING;

-- name: resume_pool
DELETE FROM paused_pools WHERE name = $1 RETURNING name;

-- name: retire
UPDATE nodes SET dead_at = clock_timestamp() WHERE id = $1 AND dead_at IS NULL;

-- name: declare_dead
-- By a healthy peer, on the row a late heartbeat would also lock, so one of the two wins. Not while the database itself is
-- younger than a lease and a half: an outage longer than the lease must not become a mass takeover (F128).
UPDATE nodes SET dead_at = clock_timestamp()
 WHERE id IN (SELECT id FROM nodes
               WHERE dead_at IS NULL AND id <> $1 AND heartbeat_at + lease_for < clock_timestamp()
                 AND pg_postmaster_start_time() + lease_for * 1.5 < clock_timestamp()
               ORDER BY id FOR UPDATE SKIP LOCKED)
   AND EXISTS (SELECT FROM nodes AS us WHERE us.id = $1 AND us.dead_at IS NULL
                  AND us.heartbeat_at + us.lease_for > clock_timestamp())
RETURNING id, role;

-- name: create_lease
INSERT INTO leases (name, node, epoch) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING RETURNING epoch;

-- name: lock_lease
SELECT node, epoch FROM leases WHERE name = $1 FOR UPDATE;

-- name: dead
SELECT coalesce((SELECT dead_at IS NOT NULL FROM nodes WHERE id = $1), true);

-- name: pass_lease
UPDATE leases SET node = $2, epoch = epoch + 1 WHERE name = $1 RETURNING epoch;
