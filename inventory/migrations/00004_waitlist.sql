-- +goose Up
-- Places in the lines of SKUs: those that wait stand in waitlist, those that are over in
-- waitlist_history. Every change of a line happens under the lock of its SKU's stock rows.

CREATE TABLE waitlist (
    id         uuid        NOT NULL,
    tenant     text        NOT NULL,
    sku        text        NOT NULL,
    seq        bigint      NOT NULL,
    quantity   bigint      NOT NULL CHECK (quantity > 0),
    customer   text        NOT NULL,
    hold_ttl   interval    NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX waitlist_line_idx ON waitlist (tenant, sku, seq) INCLUDE (expires_at);
CREATE UNIQUE INDEX waitlist_customer_idx ON waitlist (tenant, sku, customer);
CREATE INDEX waitlist_quantity_idx ON waitlist (tenant, sku, quantity);
CREATE INDEX waitlist_due_idx ON waitlist (expires_at);
COMMENT ON TABLE waitlist IS 'Places that wait for units of a SKU. A place leaves the table once, for waitlist_history, by the statement that also counts it out of stock.waiting and waitlist_blocks.';
COMMENT ON COLUMN waitlist.seq IS 'The order of the line: one more than the last that waits when it joins.';
COMMENT ON COLUMN waitlist.hold_ttl IS 'How long units are held for the customer when the turn comes.';
COMMENT ON COLUMN waitlist.expires_at IS 'From this instant the place has lapsed, whether or not it stands here still.';
COMMENT ON INDEX waitlist_quantity_idx IS 'What the smallest place wants: if less is free, nobody in the line needs to be looked at.';

CREATE TABLE waitlist_blocks (
    tenant  text   NOT NULL,
    sku     text   NOT NULL,
    block   bigint NOT NULL,
    waiting bigint NOT NULL CHECK (waiting > 0),
    PRIMARY KEY (tenant, sku, block)
) WITH (fillfactor = 70);
COMMENT ON TABLE waitlist_blocks IS 'How many places with a seq of 1000 block to 1000 block + 999 stand in waitlist, so that a position in a long line is a short sum.';

CREATE TABLE waitlist_history (
    id             uuid        NOT NULL,
    tenant         text        NOT NULL,
    sku            text        NOT NULL,
    quantity       bigint      NOT NULL,
    customer       text        NOT NULL,
    status         text        NOT NULL CHECK (status IN ('offered', 'lapsed', 'left')),
    reason         text        CHECK (reason IN ('expired', 'customer_limit', 'sku_deleted')),
    reservation_id uuid,
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    settled_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, id),
    CHECK ((status = 'offered') = (reservation_id IS NOT NULL)),
    CHECK ((status = 'lapsed') = (reason IS NOT NULL))
) PARTITION BY RANGE (id);
COMMENT ON TABLE waitlist_history IS 'Places that wait no more, by the month of their ids as in reservation_history.';
COMMENT ON COLUMN waitlist_history.status IS 'How the waiting ended. What became of an offer, its reservation says.';

-- +goose StatementBegin
DO $$
DECLARE
    month date := date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC');
    id_of text := 'lpad(to_hex((extract(epoch FROM (%L::timestamp AT TIME ZONE ''UTC'')) * 1000)::bigint), 12, ''0'') || repeat(''0'', 20)';
    low uuid; high uuid;
BEGIN
    FOR n IN 0..2 LOOP
        EXECUTE format('SELECT (' || id_of || ')::uuid, (' || id_of || ')::uuid', month, month + interval '1 month') INTO low, high;
        EXECUTE format('CREATE TABLE waitlist_history_%s PARTITION OF waitlist_history FOR VALUES FROM (%L) TO (%L)', to_char(month, 'YYYYMM'), low, high);
        month := month + interval '1 month';
    END LOOP;
END $$;
-- +goose StatementEnd

-- Not the counters: an update of held or on_hand stays a HOT one.
CREATE INDEX stock_waiting_idx ON stock (tenant, sku) WHERE waiting > 0;

-- Wider than before, so what stands there needn't be looked through.
ALTER TABLE ledger DROP CONSTRAINT ledger_kind_check1; -- the number comes from migration 2, where the table before had the name
ALTER TABLE ledger ADD CONSTRAINT ledger_kind_check
    CHECK (kind IN ('receive', 'write_off', 'count', 'hold', 'offer', 'confirm', 'release', 'expire', 'retake', 'return', 'repair')) NOT VALID;
ALTER TABLE ledger DROP CONSTRAINT ledger_event_check;
ALTER TABLE ledger ADD CONSTRAINT ledger_event_check
    CHECK (event IN ('reservation.held', 'reservation.confirmed', 'reservation.released', 'reservation.expired', 'waitlist.offered')) NOT VALID;
COMMENT ON COLUMN ledger.event IS 'What became of the reservation, on one entry of each transition, the others have NULL; and on the entry that follows a hold made for a place in the waiting list, that it was.';
