-- How many jobs of one tenant stand, in one statement: what is asked for most would spend most of its time on becoming the
-- role of a tenant and leaving it again. The function does both by itself, so that the wall stands here as everywhere.
CREATE FUNCTION job_statuses(of_tenant text, ids uuid[], names text[])
    RETURNS TABLE (id uuid, name text, state text, version integer, next_fire_at timestamptz, last_slot timestamptz,
                   resume_at timestamptz, fired bigint)
    LANGUAGE plpgsql STABLE
    SET role = mainspring_tenant
    SET plan_cache_mode = force_generic_plan  -- it always goes by key: to plan it anew takes three times as long
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('mainspring.tenant', of_tenant, true);
    RETURN QUERY
    SELECT jobs.id, jobs.name, c.state, c.version, c.next_fire_at, c.last_slot, c.resume_at, c.fired
      FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id
     WHERE jobs.tenant = of_tenant AND jobs.id = ANY(ids)
    UNION ALL
    SELECT jobs.id, jobs.name, c.state, c.version, c.next_fire_at, c.last_slot, c.resume_at, c.fired
      FROM jobs JOIN job_cursors AS c ON c.job_id = jobs.id
     WHERE jobs.tenant = of_tenant AND jobs.name = ANY(names) AND jobs.deleted_at IS NULL;
    PERFORM set_config('mainspring.tenant', '', true);
END $$;
-- It takes the tenant from whoever calls it: a tenant's own statements have nothing to call it for.
REVOKE EXECUTE ON FUNCTION job_statuses FROM PUBLIC;
