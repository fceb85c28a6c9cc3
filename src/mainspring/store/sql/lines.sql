-- name: read
-- After ($3, $4), the attempt and number of the last line that was read.
SELECT attempt, number, at, stream, level, text FROM run_lines
 WHERE run_id = $1 AND slot = $2 AND (attempt, number) > ($3, $4) ORDER BY attempt, number LIMIT $5;
