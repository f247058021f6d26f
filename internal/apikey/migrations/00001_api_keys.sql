-- +goose Up
CREATE TABLE api_keys (
    id         uuid        PRIMARY KEY,
    tenant     text        NOT NULL CHECK (length(tenant) BETWEEN 1 AND 64),
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    scopes     text[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'admin']),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz
);
CREATE INDEX api_keys_tenant_idx ON api_keys (tenant, created_at);
COMMENT ON TABLE api_keys IS 'Who may call the API. A tenant exists by having keys; everything it makes carries its name.';
COMMENT ON COLUMN api_keys.hash IS 'SHA-256 of the whole key. The key itself is random, 256 bits, so it needs no salt, and is stored nowhere.';
COMMENT ON COLUMN api_keys.revoked_at IS 'Set once and for good. Replicas notice within five seconds.';
