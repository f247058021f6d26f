-- +goose Up
CREATE TABLE idempotency_keys (
    tenant     text        NOT NULL,
    path       text        NOT NULL,
    key        text        NOT NULL,
    body_hash  bytea       NOT NULL,
    answer     jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, path, key)
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys (created_at);
COMMENT ON TABLE idempotency_keys IS 'The answer of each change that was asked for with a key, written by the transaction that made the change.';
COMMENT ON COLUMN idempotency_keys.answer IS 'NULL only inside the transaction that is finding it.';
