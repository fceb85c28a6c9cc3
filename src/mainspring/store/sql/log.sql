-- name: write
-- Its id and its time are the database's: nobody can say that it was earlier.
INSERT INTO changes (tenant, actor, action, subject, before, after, reason, request) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: write_many
INSERT INTO changes (tenant, actor, action, subject, before, after, reason, request)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[], $7::text[], $8::text[]);

-- name: list
-- Newest first, before the one where the last page ended.
SELECT * FROM changes
 WHERE tenant = $1 AND (at, id) < ($2, $3) AND ($5::text IS NULL OR subject = $5) AND ($6::text IS NULL OR actor = $6)
   AND ($7::text IS NULL OR action = $7) AND at >= $8 AND at < $9
 ORDER BY at DESC, id DESC LIMIT $4;

-- name: list_of_cluster
-- What was done to no tenant in particular.
SELECT * FROM changes
 WHERE tenant IS NULL AND (at, id) < ($1, $2) AND ($4::text IS NULL OR subject = $4) AND ($5::text IS NULL OR actor = $5)
   AND ($6::text IS NULL OR action = $6) AND at >= $7 AND at < $8
 ORDER BY at DESC, id DESC LIMIT $3;
