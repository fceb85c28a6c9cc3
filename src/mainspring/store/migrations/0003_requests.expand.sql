-- Runs that somebody asks for, what people do with runs, and what an attempt said while it worked.

-- A run may bring its own payload; null: the job's.
ALTER TABLE runs ADD COLUMN payload text;
ALTER TABLE run_history ADD COLUMN payload text;

-- The keys that callers gave. The first request with a key makes the run, all others are answered with it.
CREATE TABLE submissions (
    job_id        uuid NOT NULL,
    key           text NOT NULL,
    run_id        uuid NOT NULL,
    submitted_at  timestamptz NOT NULL,
    PRIMARY KEY (job_id, key)
);

-- What people act on. It carries all that is needed when the history is long gone; closing it is a compare-and-set.
ALTER TABLE dead_letters
    ADD COLUMN version      integer,
    ADD COLUMN kind         text,
    ADD COLUMN pool         text,
    ADD COLUMN payload      text,
    ADD COLUMN attempts     jsonb,  -- every attempt: number, started_at, ended_at, outcome, error
    ADD COLUMN closed_as    text CHECK (closed_as IN ('replayed', 'discarded')),
    ADD COLUMN replayed_as  uuid,
    ADD COLUMN close_reason text;
CREATE INDEX dead_letters_open ON dead_letters (died_at, run_id) WHERE closed_at IS NULL;

-- Lists: newest first, of all jobs or of one.
CREATE INDEX run_history_newest ON run_history (slot, id);
CREATE INDEX run_history_job ON run_history (job_id, slot);

-- A job that runs only when somebody asks for it is active, and has no next slot.
ALTER TABLE job_cursors DROP CONSTRAINT active_has_cursor, ADD COLUMN on_demand boolean NOT NULL DEFAULT false;
ALTER TABLE job_cursors
    ADD CONSTRAINT active_has_cursor CHECK (state <> 'active' OR next_fire_at IS NOT NULL OR on_demand) NOT VALID;
ALTER TABLE job_cursors VALIDATE CONSTRAINT active_has_cursor;

-- A pause may end by itself.
ALTER TABLE job_cursors ADD COLUMN resume_at timestamptz;
CREATE INDEX cursors_resume ON job_cursors (resume_at) WHERE resume_at IS NOT NULL;

-- The definition that code declared last. An edit by hand stays until the code says something else.
ALTER TABLE jobs ADD COLUMN declared text;

-- Lines of an attempt, readable while it works; capped by the worker.
CREATE TABLE run_lines (
    run_id   uuid NOT NULL,
    slot     timestamptz(3) NOT NULL,
    attempt  integer NOT NULL,
    number   integer NOT NULL,
    at       timestamptz NOT NULL,
    stream   text NOT NULL CHECK (stream IN ('log', 'stdout', 'stderr', 'progress')),
    level    text NOT NULL DEFAULT '',
    text     text NOT NULL,
    PRIMARY KEY (run_id, slot, attempt, number)
) PARTITION BY RANGE (slot);
CREATE TABLE run_lines_other PARTITION OF run_lines DEFAULT;

-- What a worker tells of itself, for people who look for one.
ALTER TABLE nodes
    ADD COLUMN version  text NOT NULL DEFAULT '',
    ADD COLUMN pools    text[] NOT NULL DEFAULT '{}',
    ADD COLUMN tasks    text[] NOT NULL DEFAULT '{}',
    ADD COLUMN rooms    integer[] NOT NULL DEFAULT '{}';  -- how many runs of each of its pools it may have in hand

-- What an operator asks of a node, which it hears with its next heartbeat.
ALTER TABLE nodes ADD COLUMN asked text CHECK (asked IN ('quiesce', 'stop'));

-- Pools from which nothing is claimed until somebody resumes them; what is at work goes on.
CREATE TABLE paused_pools (
    name       text PRIMARY KEY,
    paused_at  timestamptz NOT NULL,
    author     text NOT NULL,
    reason     text NOT NULL
);

CREATE OR REPLACE FUNCTION make_day_partitions(first_day date, days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    day date;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- every node does this when it starts
    FOREACH parent IN ARRAY ARRAY['run_history', 'skips', 'attempts', 'run_lines'] LOOP
        FOR day IN SELECT first_day + n FROM generate_series(0, days - 1) AS n LOOP
            IF to_regclass(parent || '_' || to_char(day, 'YYYYMMDD')) IS NULL THEN
                BEGIN
                    EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                                   parent || '_' || to_char(day, 'YYYYMMDD'), parent,
                                   day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
                    made := made + 1;
                EXCEPTION WHEN check_violation THEN
                    NULL;  -- rows of that day are in the default partition already, and stay there
                END;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION drop_day_partitions(before date) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    partition record;
    last_day date := least(before, (SELECT min(slot) AT TIME ZONE 'UTC' FROM runs)::date);
    edge timestamptz := last_day::timestamp AT TIME ZONE 'UTC';
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- one at a time, with those who make them
    FOREACH parent IN ARRAY ARRAY['run_history', 'skips', 'attempts', 'run_lines'] LOOP
        FOR partition IN
            SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
             WHERE inhparent = parent::regclass AND relname ~ ('^' || parent || '_[0-9]{8}$')
               AND to_date(right(relname, 8), 'YYYYMMDD') < last_day ORDER BY relname
        LOOP
            EXECUTE format('DROP TABLE %I', partition.relname);
            dropped := dropped + 1;
        END LOOP;
    END LOOP;
    -- Runs of long ago that were replayed or filled in lately are in the default partitions, and count from then.
    DELETE FROM run_history_other WHERE slot < edge AND settled_at < edge;
    DELETE FROM skips_other WHERE slot < edge AND decided_at < edge;
    DELETE FROM attempts_other WHERE slot < edge AND ended_at < edge;
    DELETE FROM run_lines_other WHERE slot < edge AND at < edge;
    DELETE FROM submissions WHERE submitted_at < edge;
    IF dropped > 0 THEN
        INSERT INTO retention (dropped_before) VALUES (edge)
            ON CONFLICT (only_row) DO UPDATE SET dropped_before = greatest(retention.dropped_before, edge);
    END IF;
    RETURN dropped;
END $$;
