-- +goose Up
-- A key is known by a hash of its tenant, path and value: one short column to look up and to keep unique, whatever clients send.
CREATE TEMPORARY TABLE carried ON COMMIT DROP AS
SELECT encode(substring(sha256(convert_to(tenant || E'\n' || path || E'\n' || key, 'UTF8')) FOR 16), 'hex')::uuid AS id,
       encode(substring(body_hash FOR 16), 'hex')::uuid AS body_hash, answer, day,
       jsonb_typeof(answer) = 'string' AND answer #>> '{}' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' AS spells_id
  FROM idempotency_keys WHERE answer IS NOT NULL;
DROP TABLE idempotency_keys;
CREATE TABLE idempotency_keys (
    id        uuid NOT NULL,
    body_hash uuid NOT NULL,
    made      uuid,
    day       date NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date,
    answer    jsonb,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
COMMENT ON TABLE idempotency_keys IS 'The answer of each change that was asked for with a key, written by the transaction that made the change.';
COMMENT ON COLUMN idempotency_keys.id IS 'The first 16 bytes of the SHA-256 of tenant, path and key, each but the last followed by a newline.';
COMMENT ON COLUMN idempotency_keys.body_hash IS 'The first 16 bytes of the SHA-256 of the request body that the key came with.';
COMMENT ON COLUMN idempotency_keys.made IS 'What the change made, if the answer can be told from that.';
COMMENT ON COLUMN idempotency_keys.answer IS 'The whole answer; NULL where made is enough.';
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

INSERT INTO idempotency_keys (id, body_hash, made, answer, day)
SELECT id, body_hash, CASE WHEN spells_id THEN (answer #>> '{}')::uuid END, CASE WHEN NOT spells_id THEN answer END, day
  FROM carried WHERE day >= (clock_timestamp() AT TIME ZONE 'UTC')::date - 2 AND day <= (clock_timestamp() AT TIME ZONE 'UTC')::date + 3
ON CONFLICT DO NOTHING;
