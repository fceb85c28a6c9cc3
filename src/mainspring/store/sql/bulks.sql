-- name: start
-- With a key the id is made of it: the same request again finds the bulk that the first one started, and makes none.
INSERT INTO bulks (id, tenant, action, filter, total, state, author, reason)
VALUES ($1, $2, $3, $4, $5, CASE WHEN $5::bigint IS NULL THEN 'counting' ELSE 'going' END, $6, $7)
    ON CONFLICT (id) DO NOTHING RETURNING *;

-- name: unfinished
SELECT count(*) FROM bulks WHERE tenant = $1 AND state IN ('counting', 'going');

-- name: find
SELECT * FROM bulks WHERE tenant = $1 AND id = $2;

-- name: list
-- Newest first, before the one where the last page ended.
SELECT * FROM bulks WHERE tenant = $1 AND (started_at, id) < ($2, $3) ORDER BY started_at DESC, id DESC LIMIT $4;

-- name: stop
-- From this commit on nobody takes a step of it any more: each step asks for 'going'.
UPDATE bulks SET state = 'stopped', ended_at = clock_timestamp(), changed_at = clock_timestamp(), node = NULL
 WHERE tenant = $1 AND id = $2 AND state IN ('counting', 'going') RETURNING *;

-- name: take
-- One that nobody is at, or whose node has not been heard of for a while; what was ours and was interrupted is ours still.
-- Of the tenant with the fewest going, so that nobody's many bulks keep another's from starting.
UPDATE bulks SET node = $1, changed_at = clock_timestamp()
 WHERE id = (SELECT b.id
               FROM bulks AS b CROSS JOIN LATERAL (
                    SELECT count(*) AS going FROM bulks AS o
                     WHERE o.tenant = b.tenant AND o.id <> b.id AND o.state IN ('counting', 'going')
                       AND o.node IS NOT NULL AND o.changed_at >= clock_timestamp() - $3::interval) AS others
              WHERE b.state IN ('counting', 'going') AND b.id <> ALL($2::uuid[]) AND others.going < $4
                AND (b.node IS NULL OR b.node = $1 OR b.changed_at < clock_timestamp() - $3::interval)
              ORDER BY others.going, b.started_at, b.id LIMIT 1 FOR UPDATE OF b SKIP LOCKED)
   AND state IN ('counting', 'going')
RETURNING *;

-- name: touch
-- Also tells whether the tenant may still change anything.
UPDATE bulks SET changed_at = clock_timestamp() WHERE id = $1 AND node = $2 AND state IN ('counting', 'going')
RETURNING (SELECT tenants.state FROM tenants WHERE tenants.name = bulks.tenant) AS tenant_state;

-- name: release
UPDATE bulks SET node = NULL WHERE id = $1 AND node = $2 AND state IN ('counting', 'going');

-- name: counted
UPDATE bulks SET total = $3, detail = detail || $4::jsonb, state = 'going'
 WHERE id = $1 AND node = $2 AND state = 'counting' RETURNING *;

-- name: step
-- In the transaction of what is done to the item. No row: it was stopped, or another is at it, and the item is left to it.
-- No indexed column changes, so that this is a HOT update.
UPDATE bulks SET cursor = $3, done = done + 1 WHERE id = $1 AND node = $2 AND state = 'going' RETURNING id;

-- name: pass_over
-- An item that failed ($4: what is kept of it) or had nothing to be done to; one whose step was taken all the same is counted.
UPDATE bulks
   SET cursor = $3,
       skipped = skipped + CASE WHEN $4::jsonb IS NULL AND cursor IS DISTINCT FROM $3 THEN 1 ELSE 0 END,
       failed = failed + CASE WHEN $4::jsonb IS NOT NULL AND cursor IS DISTINCT FROM $3 THEN 1 ELSE 0 END,
       detail = CASE WHEN $4::jsonb IS NULL OR coalesce(jsonb_array_length(detail -> 'failures'), 0) >= $5 THEN detail
                     ELSE detail || jsonb_build_object('failures', coalesce(detail -> 'failures', '[]') || $4::jsonb) END
 WHERE id = $1 AND node = $2 AND state = 'going' RETURNING id;

-- name: finish
UPDATE bulks SET state = $3, total = CASE WHEN $3 = 'done' THEN done + skipped + failed ELSE total END,
                 detail = (detail - 'more') || $4::jsonb, ended_at = clock_timestamp(), changed_at = clock_timestamp(), node = NULL
 WHERE id = $1 AND node = $2 AND state IN ('counting', 'going') RETURNING id;

-- name: forget
DELETE FROM bulks WHERE ended_at < clock_timestamp() - $1::interval;
