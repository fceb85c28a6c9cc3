-- name: make_partitions
-- Yesterday too, for slots that are decided late. Only before the first row of a day: a partition cannot take over what
-- is in the default one.
SELECT make_day_partitions((clock_timestamp() AT TIME ZONE 'UTC')::date - 1, $1);

-- name: drop_partitions
SELECT drop_day_partitions(((clock_timestamp() - $1::interval) AT TIME ZONE 'UTC')::date);

-- name: kept_since
SELECT dropped_before FROM retention;
