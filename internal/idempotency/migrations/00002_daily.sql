-- +goose Up
-- Keys are kept by the day, so that clearing them is dropping a table.
ALTER TABLE idempotency_keys RENAME TO idempotency_keys_undated;
ALTER TABLE idempotency_keys_undated RENAME CONSTRAINT idempotency_keys_pkey TO idempotency_keys_undated_pkey;
CREATE TABLE idempotency_keys (
    tenant     text        NOT NULL,
    path       text        NOT NULL,
    key        text        NOT NULL,
    body_hash  bytea       NOT NULL,
    answer     jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    day        date        NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date,
    PRIMARY KEY (tenant, path, key, day)
) PARTITION BY RANGE (day);
COMMENT ON TABLE idempotency_keys IS 'The answer of each change that was asked for with a key, written by the transaction that made the change.';
COMMENT ON COLUMN idempotency_keys.answer IS 'NULL only inside the transaction that is finding it.';
COMMENT ON COLUMN idempotency_keys.day IS 'UTC. A key counts whatever its day, as long as it is there.';

-- +goose StatementBegin
DO $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    FOR i IN -2..3 LOOP
        EXECUTE format('CREATE TABLE idempotency_keys_%s PARTITION OF idempotency_keys FOR VALUES FROM (%L) TO (%L)',
                       to_char(today + i, 'YYYYMMDD'), today + i, today + i + 1);
    END LOOP;
END $$;
-- +goose StatementEnd

INSERT INTO idempotency_keys (tenant, path, key, body_hash, answer, created_at, day)
SELECT tenant, path, key, body_hash, answer, created_at, (created_at AT TIME ZONE 'UTC')::date
  FROM idempotency_keys_undated WHERE created_at > clock_timestamp() - interval '25 hours';
DROP TABLE idempotency_keys_undated;

-- +goose StatementBegin
CREATE FUNCTION must(got bigint, want bigint) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF got IS DISTINCT FROM want THEN
        RAISE EXCEPTION 'changed % of % rows', got, want USING ERRCODE = 'HF001';
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION must IS 'Fails a transaction whose COMMIT is already on its way: something isn''t as it was decided on any more, and everything is to be decided anew. Everything in this schema may use it.';
