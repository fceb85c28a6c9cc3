-- Tenants, and a wall between them that holds even where a query forgets one: whoever works for a tenant does so as the
-- role mainspring_tenant, which sees the rows of the tenant it was told, and without one no row at all (I8, F98, F99).
-- Not forced upon the owner: schedulers and workers are the owner, and work for everybody.

CREATE TABLE tenants (
    name        text PRIMARY KEY,
    state       text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'suspended', 'deleted')),
    quotas      jsonb NOT NULL DEFAULT '{}',  -- those that differ from the defaults
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    note        text NOT NULL DEFAULT ''
);
-- Before anything is locked, because this reads every job.
INSERT INTO tenants (name) SELECT 'default' UNION SELECT DISTINCT tenant FROM jobs;

-- A key is shown once and kept as its hash; the prefix is for people who look for one in a list.
CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    tenant        text,  -- null: a key of the whole cluster
    name          text NOT NULL,
    prefix        text NOT NULL,
    hash          bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    role          text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by    text NOT NULL DEFAULT '',
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    expires_at    timestamptz
);
CREATE INDEX api_keys_tenant ON api_keys (tenant, id);

-- A UUIDv7 by the clock of the database, whose order is then the order of the log, whoever wrote it.
CREATE FUNCTION time_ordered_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
               substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- The log of changes: who did what, what it was before and after, and why. Appended to, never changed.
CREATE TABLE changes (
    id       uuid PRIMARY KEY DEFAULT time_ordered_id(),
    tenant   text,  -- null: of the whole cluster
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL,
    action   text NOT NULL,
    subject  text NOT NULL,
    before   jsonb,
    after    jsonb,
    reason   text NOT NULL DEFAULT '',
    request  text NOT NULL DEFAULT ''  -- the id of the request, to find it in the logs of the process
);
CREATE INDEX changes_newest ON changes (tenant, at DESC, id DESC);
CREATE INDEX changes_old ON changes (at);

CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log of changes is only appended to' USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;
-- What is older than it must be kept may go, and nothing else may, whoever asks. The time of an entry is the database's.
CREATE TRIGGER changes_stay BEFORE UPDATE ON changes FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER changes_kept BEFORE DELETE ON changes FOR EACH ROW
    WHEN (OLD.at > clock_timestamp() - interval '400 days') EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER changes_not_emptied BEFORE TRUNCATE ON changes FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

-- Answers to requests that came with an idempotency key: asked again, we say the same again. No answer yet: at work.
CREATE TABLE answers (
    tenant       text NOT NULL,
    key          text NOT NULL,
    fingerprint  bytea NOT NULL,  -- of the request: the same key with another one is a mistake of the caller
    status       integer,
    answer       bytea,
    headers      jsonb NOT NULL DEFAULT '{}',
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz,
    PRIMARY KEY (tenant, key),
    CONSTRAINT finished_has_answer CHECK ((finished_at IS NULL) = (status IS NULL))
);
CREATE INDEX answers_old ON answers (started_at);

-- Things done to everything that a filter names, a piece at a time.
CREATE TABLE bulks (
    id          uuid PRIMARY KEY,
    tenant      text NOT NULL,
    action      text NOT NULL,
    filter      jsonb NOT NULL DEFAULT '{}',
    total       bigint,  -- null: not counted yet
    done        bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    state       text NOT NULL DEFAULT 'counting' CHECK (state IN ('counting', 'going', 'done', 'stopped', 'failed')),
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    author      text NOT NULL DEFAULT '',
    reason      text NOT NULL DEFAULT '',
    cursor      text,  -- where the next piece begins
    detail      jsonb NOT NULL DEFAULT '{}',
    node        uuid   -- who is at it
);
CREATE INDEX bulks_newest ON bulks (tenant, started_at DESC, id DESC);
CREATE INDEX bulks_going ON bulks (changed_at, id) WHERE state IN ('counting', 'going');

-- Roles belong to the whole server: another database may be making this one at the same moment, or an administrator made
-- it because we may not.
DO $$
DECLARE
    modern boolean := current_setting('server_version_num')::integer >= 160000;
    make text := 'CREATE ROLE mainspring_tenant NOLOGIN';
    lend text := format('GRANT mainspring_tenant TO %I', current_user) || CASE WHEN modern THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
BEGIN
    IF to_regrole('mainspring_tenant') IS NULL THEN
        BEGIN
            EXECUTE make;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'the role mainspring_tenant is missing, and % may not create it', current_user
                    USING ERRCODE = 'insufficient_privilege', HINT = format('let an administrator run: %s; %s;', make, lend);
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'mainspring_tenant' AND (rolsuper OR rolbypassrls)) THEN
        RAISE EXCEPTION 'the role mainspring_tenant may see the rows of every tenant'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'let an administrator run: ALTER ROLE mainspring_tenant NOSUPERUSER NOBYPASSRLS;';
    END IF;
    IF NOT pg_has_role(current_user, 'mainspring_tenant', CASE WHEN modern THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE lend;
        EXCEPTION
            WHEN unique_violation OR internal_error THEN NULL;  -- another database was just doing the same
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION '% may not become mainspring_tenant', current_user
                    USING ERRCODE = 'insufficient_privilege', HINT = format('let an administrator run: %s;', lend);
        END;
    END IF;
    IF NOT has_schema_privilege('mainspring_tenant', current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO mainspring_tenant', current_schema());
    END IF;
END $$;

-- The tenant of this transaction. A setting that was local to an earlier one comes back empty, which is nobody too.
CREATE FUNCTION current_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('mainspring.tenant', true), '');

-- Whether a job is there, and is not for this tenant: what the tenant itself cannot tell from one that is not there.
CREATE FUNCTION is_job_of_another(job uuid) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
    RETURN current_tenant() IS NULL OR EXISTS (SELECT FROM jobs WHERE jobs.id = job AND jobs.tenant <> current_tenant());

-- All that follows locks for a moment what every verb uses, and there is no order in which all of them use it: a fire goes
-- from definitions to runs, a claim from runs to definitions. So we take everything or nothing, and wait for less than it
-- takes Postgres to look for a circle, and end somebody's transaction.
DO $$
DECLARE
    give_up_at timestamptz := clock_timestamp() + interval '20 s';
    patience text := current_setting('lock_timeout');
BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            LOCK TABLE job_cursors, jobs, job_versions, runs, run_history, skips, attempts, run_lines, late_results,
                       dead_letters, submissions, audit_fires, audit_runs, audit_attempts IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN  -- and with it all that we had
            IF clock_timestamp() > give_up_at THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.05 * random());
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', patience, true);
END $$;

ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_cursors ENABLE ROW LEVEL SECURITY;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE skips ENABLE ROW LEVEL SECURITY;
ALTER TABLE attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_lines ENABLE ROW LEVEL SECURITY;
ALTER TABLE late_results ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE submissions ENABLE ROW LEVEL SECURITY;
ALTER TABLE changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE bulks ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;   -- no policy, no grant: the cluster's own
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY own ON jobs TO mainspring_tenant USING (tenant = current_tenant());
CREATE POLICY own ON run_history TO mainspring_tenant USING (tenant = current_tenant());
CREATE POLICY own ON dead_letters TO mainspring_tenant USING (tenant = current_tenant());
CREATE POLICY own ON changes TO mainspring_tenant USING (tenant = current_tenant());
CREATE POLICY own ON answers TO mainspring_tenant USING (tenant = current_tenant());
CREATE POLICY own ON bulks TO mainspring_tenant USING (tenant = current_tenant());

-- What has no tenant of its own has that of its job or run. As a single value, not as EXISTS, which the planner may turn into
-- a hash of all jobs there are: this is one look by key for each row.
CREATE POLICY own ON runs TO mainspring_tenant
    USING (tenant = current_tenant())  -- and none of them may take the lane of somebody else's job
    WITH CHECK (tenant = current_tenant() AND (SELECT jobs.tenant FROM jobs WHERE jobs.id = runs.job_id) = current_tenant());
-- A job comes with its first version and its cursor in one statement, which does not see the job yet. So here also passes
-- what belongs to no job that anybody can see yet; at the end of the statement the foreign key wants one.
CREATE POLICY own ON job_versions TO mainspring_tenant
    USING (coalesce((SELECT jobs.tenant FROM jobs WHERE jobs.id = job_versions.job_id) = current_tenant(),
                    NOT is_job_of_another(job_versions.job_id)));
CREATE POLICY own ON job_cursors TO mainspring_tenant
    USING (coalesce((SELECT jobs.tenant FROM jobs WHERE jobs.id = job_cursors.job_id) = current_tenant(),
                    NOT is_job_of_another(job_cursors.job_id)));
CREATE POLICY own ON skips TO mainspring_tenant
    USING ((SELECT jobs.tenant FROM jobs WHERE jobs.id = skips.job_id) = current_tenant());
CREATE POLICY own ON submissions TO mainspring_tenant
    USING ((SELECT jobs.tenant FROM jobs WHERE jobs.id = submissions.job_id) = current_tenant());
CREATE POLICY own ON attempts TO mainspring_tenant
    USING (coalesce((SELECT runs.tenant FROM runs WHERE runs.id = attempts.run_id),
                    (SELECT h.tenant FROM run_history AS h WHERE h.id = attempts.run_id AND h.slot = attempts.slot)) = current_tenant());
CREATE POLICY own ON run_lines TO mainspring_tenant
    USING (coalesce((SELECT runs.tenant FROM runs WHERE runs.id = run_lines.run_id),
                    (SELECT h.tenant FROM run_history AS h WHERE h.id = run_lines.run_id AND h.slot = run_lines.slot)) = current_tenant());
CREATE POLICY own ON late_results TO mainspring_tenant
    USING (coalesce((SELECT runs.tenant FROM runs WHERE runs.id = late_results.run_id),
                    (SELECT h.tenant FROM run_history AS h WHERE h.id = late_results.run_id LIMIT 1)) = current_tenant());

-- A view shows what whoever looks may see, not what its owner may.
ALTER VIEW audit_fires SET (security_invoker = true);
ALTER VIEW audit_runs SET (security_invoker = true);
ALTER VIEW audit_attempts SET (security_invoker = true);

-- What asking, editing, cancelling and replaying need, and no more; nothing on partitions, which are reached through their
-- parents only. Which job, run or tenant a row belongs to cannot be rewritten.
GRANT SELECT, INSERT, UPDATE (name, version, deleted_at, declared) ON jobs TO mainspring_tenant;
GRANT SELECT, INSERT ON job_versions, submissions, skips, run_history TO mainspring_tenant;
GRANT SELECT, INSERT, UPDATE (version, state, next_fire_at, last_slot, delete_when_done, resume_at, on_demand)
    ON job_cursors TO mainspring_tenant;
GRANT SELECT, INSERT, DELETE, UPDATE (state, held, lane, cancel_requested, ready_at, rank) ON runs TO mainspring_tenant;
GRANT SELECT, UPDATE (closed_at, closed_as, replayed_as, replays, close_reason) ON dead_letters TO mainspring_tenant;
GRANT SELECT ON attempts, run_lines, audit_fires, audit_runs, audit_attempts TO mainspring_tenant;
GRANT SELECT, INSERT (tenant, actor, action, subject, before, after, reason, request) ON changes TO mainspring_tenant;
GRANT SELECT, INSERT, UPDATE (fingerprint, status, answer, headers, started_at, finished_at), DELETE ON answers TO mainspring_tenant;
GRANT SELECT, INSERT, UPDATE (total, done, failed, state, changed_at, ended_at, cursor, detail, node) ON bulks TO mainspring_tenant;
GRANT SELECT ON nodes, paused_pools, retention TO mainspring_tenant;

-- The tables of day partitions, each with the column that says when its rows were written.
CREATE FUNCTION tables_by_day() RETURNS TABLE (parent text, written text) LANGUAGE sql IMMUTABLE AS $$
    VALUES ('run_history', 'settled_at'), ('skips', 'decided_at'), ('attempts', 'ended_at'), ('run_lines', 'at')
$$;

CREATE OR REPLACE FUNCTION make_day_partitions(first_day date, days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    day date;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- every node does this when it starts
    FOR parent IN SELECT t.parent FROM tables_by_day() AS t LOOP
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
    tables record;
    partition record;
    last_day date := least(before, (SELECT min(slot) AT TIME ZONE 'UTC' FROM runs)::date);
    edge timestamptz := last_day::timestamp AT TIME ZONE 'UTC';
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring.make_day_partitions'));  -- one at a time, with those who make them
    FOR tables IN SELECT * FROM tables_by_day() LOOP
        FOR partition IN
            SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
             WHERE inhparent = tables.parent::regclass AND relname ~ ('^' || tables.parent || '_[0-9]{8}$')
               AND to_date(right(relname, 8), 'YYYYMMDD') < last_day ORDER BY relname
        LOOP
            EXECUTE format('DROP TABLE %I', partition.relname);
            dropped := dropped + 1;
        END LOOP;
        -- Runs of long ago that were replayed or filled in lately are in the default partitions, and count from then.
        EXECUTE format('DELETE FROM %I WHERE slot < %L AND %I < %L', tables.parent || '_other', edge, tables.written, edge);
    END LOOP;
    DELETE FROM submissions WHERE submitted_at < edge;
    DELETE FROM answers WHERE started_at < clock_timestamp() - interval '2 days';
    DELETE FROM changes WHERE at < clock_timestamp() - interval '400 days';
    IF dropped > 0 THEN
        INSERT INTO retention (dropped_before) VALUES (edge)
            ON CONFLICT (only_row) DO UPDATE SET dropped_before = greatest(retention.dropped_before, edge);
    END IF;
    RETURN dropped;
END $$;
