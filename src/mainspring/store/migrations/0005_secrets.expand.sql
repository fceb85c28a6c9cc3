-- Secrets of tenants, sealed under a key that is not in the database. Every put is a version; the newest is the one in use.
CREATE TABLE secrets (
    tenant      text NOT NULL,
    name        text NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    key_id      text NOT NULL,   -- which key opens it: the first eight hex digits of its SHA-256
    nonce       bytea NOT NULL CHECK (length(nonce) = 12),
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    author      text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, name, version)
);
CREATE INDEX secrets_by_key ON secrets (key_id);  -- what is left to seal anew when keys change

-- Like the other tables of tenants. Whoever works for one may list and put its secrets; workers, who open them, own the table.
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON secrets TO mainspring_tenant USING (tenant = current_tenant());
GRANT SELECT (tenant, name, version, key_id, created_at, author), INSERT, DELETE ON secrets TO mainspring_tenant;
