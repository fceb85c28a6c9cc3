-- The ledger. What changes on every fire is narrow and apart from what is read; a run lives in one high-churn table
-- while it is in motion and becomes one append-only row of a time-partitioned history when it is final.

CREATE TABLE jobs (
    id          uuid PRIMARY KEY,
    tenant      text NOT NULL,
    name        text NOT NULL,
    shard       smallint NOT NULL CHECK (shard BETWEEN 0 AND 1023),
    version     integer NOT NULL CHECK (version >= 1),
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX jobs_name ON jobs (tenant, name) WHERE deleted_at IS NULL;

-- What was in force when, pauses included: the audit recomputes slots from these. Appended to, never changed.
CREATE TABLE job_versions (
    job_id        uuid NOT NULL REFERENCES jobs (id),
    version       integer NOT NULL,
    state         text NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'deleted', 'quarantined')),
    definition    jsonb NOT NULL,
    effective_at  timestamptz NOT NULL,
    author        text NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, version)
);

-- The cursor: the next slot to decide. Its row lock serialises every decision about a job.
CREATE TABLE job_cursors (
    job_id        uuid PRIMARY KEY REFERENCES jobs (id),
    shard         smallint NOT NULL,
    version       integer NOT NULL,
    state         text NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'deleted', 'quarantined')),
    next_fire_at  timestamptz(3),
    last_slot     timestamptz(3),
    fired         bigint NOT NULL DEFAULT 0,
    CONSTRAINT cursor_after_last_slot CHECK (next_fire_at > last_slot),
    CONSTRAINT active_has_cursor CHECK (state <> 'active' OR next_fire_at IS NOT NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX cursors_due ON job_cursors (next_fire_at, job_id) WHERE state = 'active';

-- A decided slot stays decided, whatever the code believes (F91).
CREATE FUNCTION refuse_cursor_moving_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'cursor of job % moved back from % to %', OLD.job_id, OLD.last_slot, NEW.last_slot
        USING ERRCODE = 'check_violation', CONSTRAINT = 'cursor_only_forward';
END $$;
CREATE TRIGGER cursor_only_forward BEFORE UPDATE OF last_slot ON job_cursors FOR EACH ROW
    WHEN (OLD.last_slot IS NOT NULL AND (NEW.last_slot IS NULL OR NEW.last_slot < OLD.last_slot))
    EXECUTE FUNCTION refuse_cursor_moving_back();

-- Runs in motion. No index names a column that claiming changes, so that a claim is a HOT update.
--   lane   the job's id while this run holds its exclusive lane (released, not final): at most one per job (I5)
--   held   waits for the lane
--   rank   ready_at, earlier by the priority: higher priorities first, and nobody waits for ever
CREATE TABLE runs (
    id                uuid PRIMARY KEY,
    job_id            uuid NOT NULL,
    tenant            text NOT NULL,
    version           integer NOT NULL,
    kind              text NOT NULL CHECK (kind IN ('schedule', 'backfill', 'manual', 'replay', 'node')),
    slot              timestamptz(3) NOT NULL,
    fired_at          timestamptz NOT NULL,
    ready_at          timestamptz NOT NULL,
    rank              timestamptz NOT NULL,
    pool              text NOT NULL,
    task              text NOT NULL,
    state             text NOT NULL CHECK (state IN ('held', 'queued', 'running', 'waiting')),
    held              boolean NOT NULL DEFAULT false,
    lane              uuid,
    attempt           integer NOT NULL DEFAULT 0,
    failures          integer NOT NULL DEFAULT 0,
    token             uuid,
    worker            uuid,
    started_at        timestamptz,
    cancel_requested  boolean NOT NULL DEFAULT false,
    CONSTRAINT running_has_lease CHECK ((state = 'running') = (token IS NOT NULL AND worker IS NOT NULL)),
    CONSTRAINT held_is_held CHECK (held = (state = 'held')),
    CONSTRAINT held_has_no_lane CHECK (NOT (held AND lane IS NOT NULL)),
    CONSTRAINT failures_within_attempts CHECK (failures BETWEEN 0 AND attempt)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_claim ON runs (pool, rank, id) WHERE NOT held;
CREATE UNIQUE INDEX runs_lane ON runs (lane) WHERE lane IS NOT NULL;
CREATE INDEX runs_aside ON runs (job_id, slot) WHERE lane IS NULL;  -- held, or of a job that may overlap

-- Partitioned by slot, because the slot is part of a run's identity: the key is unique over all partitions.
CREATE TABLE run_history (
    id          uuid NOT NULL,
    slot        timestamptz(3) NOT NULL,
    job_id      uuid NOT NULL,
    tenant      text NOT NULL,
    version     integer NOT NULL,
    kind        text NOT NULL,
    pool        text NOT NULL,
    state       text NOT NULL CHECK (state IN ('succeeded', 'dead', 'cancelled')),
    reason      text,
    attempt     integer NOT NULL,
    failures    integer NOT NULL,
    worker      uuid,
    fired_at    timestamptz NOT NULL,
    started_at  timestamptz,
    settled_at  timestamptz NOT NULL,
    error       text,
    result      text,
    PRIMARY KEY (id, slot),
    CONSTRAINT dead_has_reason CHECK ((state = 'dead') = (reason IS NOT NULL))
) PARTITION BY RANGE (slot);
CREATE TABLE run_history_other PARTITION OF run_history DEFAULT;

-- Slots that did not run, with their reason; a stretch of them is one row from first_slot to slot.
CREATE TABLE skips (
    job_id        uuid NOT NULL,
    slot          timestamptz(3) NOT NULL,
    first_slot    timestamptz(3) NOT NULL,
    covers_count  bigint NOT NULL CHECK (covers_count >= 1),
    disposition   text NOT NULL,
    version       integer NOT NULL,
    decided_at    timestamptz NOT NULL,
    PRIMARY KEY (job_id, slot),
    CHECK (first_slot <= slot)
) PARTITION BY RANGE (slot);
CREATE TABLE skips_other PARTITION OF skips DEFAULT;

-- Attempts that did not end their run. The last attempt of a run is in its history row, the current one in runs.
CREATE TABLE attempts (
    run_id      uuid NOT NULL,
    slot        timestamptz(3) NOT NULL,
    attempt     integer NOT NULL,
    worker      uuid,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    outcome     text NOT NULL,
    error       text,
    PRIMARY KEY (run_id, slot, attempt)
) PARTITION BY RANGE (slot);
CREATE TABLE attempts_other PARTITION OF attempts DEFAULT;

-- Outcomes of attempts that had been replaced: recorded, never applied (I4).
CREATE TABLE late_results (
    run_id       uuid NOT NULL,
    attempt      integer NOT NULL,
    worker       uuid NOT NULL,
    outcome      text NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE dead_letters (
    run_id      uuid PRIMARY KEY,
    job_id      uuid NOT NULL,
    tenant      text NOT NULL,
    slot        timestamptz(3) NOT NULL,
    reason      text NOT NULL,
    error       text,
    died_at     timestamptz NOT NULL,
    replays     integer NOT NULL DEFAULT 0,
    closed_at   timestamptz
);

-- Every process, under a random id of its own. Expiry kills nobody: dead_at is set by a healthy peer, and is final.
CREATE TABLE nodes (
    id            uuid PRIMARY KEY,
    role          text NOT NULL,
    host          text NOT NULL,
    pid           integer NOT NULL,
    registered_at timestamptz NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    lease_for     interval NOT NULL,
    dead_at       timestamptz
) WITH (fillfactor = 50);

CREATE TABLE leases (
    name   text PRIMARY KEY,
    node   uuid NOT NULL,
    epoch  bigint NOT NULL
);

-- For operators and checkers; kept stable.
CREATE VIEW audit_fires AS
    SELECT job_id, slot AS scheduled_at, 'fired' AS disposition, 1::bigint AS covers_count, fired_at, id AS run_id,
           slot AS first_slot, version
      FROM runs WHERE kind = 'schedule'
    UNION ALL
    SELECT job_id, slot, 'fired', 1, fired_at, id, slot, version FROM run_history WHERE kind = 'schedule'
    UNION ALL
    SELECT job_id, slot, disposition, covers_count, decided_at, NULL, first_slot, version FROM skips;

CREATE VIEW audit_runs AS
    SELECT id AS run_id, job_id, kind, state, attempt, NULL::uuid AS workflow_run_id, NULL::text AS node FROM runs
    UNION ALL
    SELECT id, job_id, kind, state, attempt, NULL, NULL FROM run_history;

CREATE VIEW audit_attempts AS
    SELECT run_id, attempt, worker, started_at, ended_at, outcome FROM attempts
    UNION ALL
    SELECT id, attempt, worker, started_at, settled_at, state FROM run_history WHERE attempt > 0 AND started_at IS NOT NULL
    UNION ALL
    SELECT id, attempt, worker, started_at, NULL, 'running' FROM runs WHERE state = 'running';

-- Partitions of a day each, made ahead; what falls outside goes to the default partition.
CREATE FUNCTION make_day_partitions(first_day date, days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    day date;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- every node does this when it starts
    FOREACH parent IN ARRAY ARRAY['run_history', 'skips', 'attempts'] LOOP
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
