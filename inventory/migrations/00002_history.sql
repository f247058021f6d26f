-- +goose Up
-- What is over leaves the hot tables: finished reservations move to reservation_history in the
-- transaction that finishes them, and both it and the ledger are kept by month, so that retention
-- drops tables instead of deleting rows.

-- Everything that asks for a reservation knows whose it is, so one index serves both its id and
-- the list of its tenant.
ALTER TABLE reservations DROP CONSTRAINT reservations_pkey;
ALTER TABLE reservations ADD PRIMARY KEY (tenant, id);
ALTER TABLE reservations SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Left by a replica of the version before: empty but for an upgrade.
CREATE INDEX reservations_finished_idx ON reservations (tenant, id) WHERE status <> 'held';
COMMENT ON TABLE reservations IS 'Holds, with their lines inline. A hold leaves the table once, for reservation_history, in the transaction that takes its units out of stock.held.';
COMMENT ON COLUMN reservations.line_confirmed IS 'Of a version before; see reservation_history.';

CREATE TABLE reservation_history (
    id              uuid        NOT NULL,
    tenant          text        NOT NULL,
    status          text        NOT NULL CHECK (status IN ('confirmed', 'released', 'expired')),
    line_skus       text[]      NOT NULL,
    line_locations  text[]      NOT NULL,
    line_quantities bigint[]    NOT NULL,
    line_wanted     bigint[],
    line_confirmed  bigint[],
    line_returned   bigint[],
    customer        text,
    reference       text,
    first_ttl       interval    NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    settled_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) PARTITION BY RANGE (id);
COMMENT ON TABLE reservation_history IS 'Reservations that are over. An id begins with the instant of its creation, so a month of ids is a month of reservations, and an id names its partition.';
COMMENT ON COLUMN reservation_history.line_confirmed IS 'What was sold of each line; NULL unless confirmed.';
COMMENT ON COLUMN reservation_history.line_returned IS 'What came back of each line after that; NULL unless something did.';
CREATE INDEX reservation_history_customer_idx ON reservation_history (tenant, customer, id) WHERE customer IS NOT NULL;
CREATE INDEX reservation_history_reference_idx ON reservation_history (tenant, reference, id) WHERE reference IS NOT NULL;

ALTER TABLE ledger RENAME TO ledger_unpartitioned;
ALTER TABLE ledger_unpartitioned RENAME CONSTRAINT ledger_pkey TO ledger_unpartitioned_pkey;
ALTER INDEX ledger_sku_idx RENAME TO ledger_unpartitioned_sku_idx;
CREATE SEQUENCE ledger_seq AS bigint;
CREATE TABLE ledger (
    seq            bigint      NOT NULL DEFAULT nextval('ledger_seq'),
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant         text        NOT NULL,
    sku            text        NOT NULL,
    location       text        NOT NULL,
    kind           text        NOT NULL CHECK (kind IN ('receive', 'write_off', 'count', 'hold', 'confirm', 'release', 'expire', 'retake', 'return', 'repair')),
    event          text        CHECK (event IN ('reservation.held', 'reservation.confirmed', 'reservation.released', 'reservation.expired')),
    delta_on_hand  bigint      NOT NULL,
    delta_held     bigint      NOT NULL,
    on_hand        bigint      NOT NULL,
    held           bigint      NOT NULL,
    reservation_id uuid,
    reference      text,
    reason         text,
    actor          text        NOT NULL
) PARTITION BY RANGE (at);
ALTER SEQUENCE ledger_seq OWNED BY ledger.seq;
CREATE INDEX ledger_seq_idx ON ledger (seq);
CREATE INDEX ledger_sku_idx ON ledger (tenant, sku, seq);
COMMENT ON TABLE ledger IS 'Every change of on_hand and held, with the counters after it, written by the transaction that made it: also the outbox and the source of the stream. Within one stock row, and within one reservation, seq is the order of the changes.';
COMMENT ON COLUMN ledger.event IS 'What became of the reservation: on one entry of each transition, the others have NULL.';

CREATE TABLE ledger_carried (
    tenant      text   NOT NULL,
    sku         text   NOT NULL,
    location    text   NOT NULL,
    on_hand     bigint NOT NULL,
    held        bigint NOT NULL,
    sold        bigint NOT NULL,
    written_off bigint NOT NULL,
    received    bigint NOT NULL,
    PRIMARY KEY (tenant, sku, location)
);
COMMENT ON TABLE ledger_carried IS 'What the dropped months of the ledger added up to, so that it still adds up.';

CREATE TABLE customer_units (
    tenant   text   NOT NULL,
    customer text   NOT NULL,
    sku      text   NOT NULL,
    units    bigint NOT NULL CHECK (units >= 0),
    PRIMARY KEY (tenant, customer, sku)
) WITH (fillfactor = 70);
COMMENT ON TABLE customer_units IS 'Units that customers have bought of SKUs with a limit per customer, kept under the lock of the SKU''s stock, so that the limit outlives the history.';

CREATE TABLE locations (
    tenant     text        NOT NULL,
    location   text        NOT NULL,
    name       text        NOT NULL DEFAULT '',
    rank       integer     NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, location)
);
COMMENT ON TABLE locations IS 'Where stock may be kept. The location default exists without a row.';
COMMENT ON COLUMN locations.rank IS 'Lower is preferred; the location default has 0 unless it has a row.';

ALTER TABLE stock ADD COLUMN waiting bigint NOT NULL DEFAULT 0 CHECK (waiting >= 0);
COMMENT ON COLUMN stock.waiting IS 'Places in the SKU''s waiting list that wait; on the row of the location default alone.';

-- +goose StatementBegin
DO $$
DECLARE
    month date := (SELECT date_trunc('month', least(clock_timestamp(), (SELECT min(at) FROM ledger_unpartitioned),
                                                    (SELECT min(created_at) FROM reservations)) AT TIME ZONE 'UTC'));
    id_of text := 'lpad(to_hex((extract(epoch FROM (%L::timestamp AT TIME ZONE ''UTC'')) * 1000)::bigint), 12, ''0'') || repeat(''0'', 20)';
    low uuid; high uuid;
BEGIN
    WHILE month < clock_timestamp() + interval '3 months' LOOP
        EXECUTE format('SELECT (' || id_of || ')::uuid, (' || id_of || ')::uuid', month, month + interval '1 month') INTO low, high;
        EXECUTE format('CREATE TABLE reservation_history_%s PARTITION OF reservation_history FOR VALUES FROM (%L) TO (%L)',
                       to_char(month, 'YYYYMM'), low, high);
        EXECUTE format('CREATE TABLE ledger_%s PARTITION OF ledger FOR VALUES FROM (%L) TO (%L)',
                       to_char(month, 'YYYYMM'), month::timestamp AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
        month := month + interval '1 month';
    END LOOP;
END $$;
-- +goose StatementEnd

INSERT INTO ledger (seq, at, tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, reason, actor)
SELECT seq, at, tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, reason, actor
  FROM ledger_unpartitioned ORDER BY seq;
SELECT setval('ledger_seq', greatest((SELECT max(seq) FROM ledger), 1));
DROP TABLE ledger_unpartitioned;

INSERT INTO customer_units (tenant, customer, sku, units)
SELECT r.tenant, r.customer, l.sku, sum(l.confirmed)::bigint
  FROM reservations r CROSS JOIN LATERAL unnest(r.line_skus, r.line_confirmed) AS l(sku, confirmed)
  JOIN stock s ON s.tenant = r.tenant AND s.sku = l.sku AND s.max_per_customer IS NOT NULL
 WHERE r.status = 'confirmed' AND r.customer IS NOT NULL
 GROUP BY r.tenant, r.customer, l.sku;
