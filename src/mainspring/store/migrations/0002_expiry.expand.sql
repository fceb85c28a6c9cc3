-- Runs that are not worth starting after a while, jobs that go when they are done, history that goes when it is old.

ALTER TABLE runs ADD COLUMN expires_at timestamptz;  -- no attempt starts from here on; null: whenever there is room
CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX runs_cancel ON runs (id) WHERE cancel_requested;  -- not by worker: claiming changes that, and must stay HOT

CREATE INDEX runs_held ON runs (job_id, slot) WHERE held;

-- Finding the runs of a dead worker is a look at all runs in motion, as none has an index that claiming would change. So
-- it is done twice for each death: at once, and when no claim of that worker can be under way any more.
ALTER TABLE nodes ADD COLUMN swept_at timestamptz, ADD COLUMN cleared_at timestamptz;
CREATE INDEX nodes_dead ON nodes (id) WHERE dead_at IS NOT NULL AND cleared_at IS NULL;

ALTER TABLE job_cursors ADD COLUMN delete_when_done boolean NOT NULL DEFAULT false;
CREATE INDEX cursors_done ON job_cursors (job_id) WHERE delete_when_done AND state = 'finished';

-- What an audit can still judge: decisions about slots before this were dropped.
CREATE TABLE retention (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    dropped_before  timestamptz NOT NULL
);

-- Whole days, oldest first. A day whose slots still have a run in motion stays: its attempts are that run's.
CREATE FUNCTION drop_day_partitions(before date) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    partition record;
    last_day date := least(before, (SELECT min(slot) AT TIME ZONE 'UTC' FROM runs)::date);
    edge timestamptz := last_day::timestamp AT TIME ZONE 'UTC';
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- one at a time, with those who make them
    FOREACH parent IN ARRAY ARRAY['run_history', 'skips', 'attempts'] LOOP
        FOR partition IN
            SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
             WHERE inhparent = parent::regclass AND relname ~ ('^' || parent || '_[0-9]{8}$')
               AND to_date(right(relname, 8), 'YYYYMMDD') < last_day ORDER BY relname
        LOOP
            EXECUTE format('DROP TABLE %I', partition.relname);
            dropped := dropped + 1;
        END LOOP;
        EXECUTE format('DELETE FROM %I WHERE slot < %L', parent || '_other', edge);
    END LOOP;
    IF dropped > 0 THEN
        INSERT INTO retention (dropped_before) VALUES (edge)
            ON CONFLICT (only_row) DO UPDATE SET dropped_before = greatest(retention.dropped_before, edge);
    END IF;
    RETURN dropped;
END $$;
