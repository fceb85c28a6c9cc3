-- What a bulk action came to and had nothing to do to: a job that was paused already, a run that had ended.
ALTER TABLE bulks ADD COLUMN skipped bigint NOT NULL DEFAULT 0;
GRANT UPDATE (skipped) ON bulks TO mainspring_tenant;
