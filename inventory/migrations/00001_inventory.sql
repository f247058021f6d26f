-- +goose Up
CREATE TABLE skus (
    tenant      text        NOT NULL,
    sku         text        NOT NULL,
    name        text        NOT NULL DEFAULT '',
    default_ttl interval,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at  timestamptz,
    PRIMARY KEY (tenant, sku)
);
COMMENT ON TABLE skus IS 'What can be held. What a decision needs stands in stock, on the row that it locks.';
COMMENT ON COLUMN skus.deleted_at IS 'A deleted SKU keeps its counters, so that ledger and totals still agree when it is made again.';

CREATE TABLE stock (
    tenant           text   NOT NULL,
    sku              text   NOT NULL,
    location         text   NOT NULL,
    active           boolean NOT NULL DEFAULT true,
    on_hand          bigint NOT NULL DEFAULT 0,
    held             bigint NOT NULL DEFAULT 0,
    sold             bigint NOT NULL DEFAULT 0,
    written_off      bigint NOT NULL DEFAULT 0,
    received         bigint NOT NULL DEFAULT 0,
    safety_stock     bigint NOT NULL DEFAULT 0,
    backorder_limit  bigint NOT NULL DEFAULT 0,
    max_per_customer bigint,
    PRIMARY KEY (tenant, sku, location),
    CONSTRAINT stock_held_not_negative    CHECK (held >= 0),
    CONSTRAINT stock_held_within_on_hand  CHECK (held <= on_hand + backorder_limit),
    CONSTRAINT stock_sold_not_negative    CHECK (sold >= 0 AND written_off >= 0 AND received >= 0),
    CONSTRAINT stock_everything_somewhere CHECK (on_hand + sold + written_off = received),
    CONSTRAINT stock_settings             CHECK (safety_stock >= 0 AND backorder_limit >= 0 AND max_per_customer >= 1)
) WITH (fillfactor = 50);
COMMENT ON TABLE stock IS 'The counters, one narrow row per SKU and location: the row whose lock every decision about it waits for. Counters are in no index, and pages have room, so that each update is a HOT one.';
COMMENT ON COLUMN stock.active IS 'False once its SKU is deleted: kept here, so that whoever waits for the lock sees it.';
COMMENT ON CONSTRAINT stock_held_within_on_hand ON stock IS 'I1: nothing is sold twice, whatever a caller believes.';
COMMENT ON CONSTRAINT stock_everything_somewhere ON stock IS 'I3: what came in is here, sold or written off.';

CREATE TABLE reservations (
    id              uuid        PRIMARY KEY,
    tenant          text        NOT NULL,
    status          text        NOT NULL DEFAULT 'held' CHECK (status IN ('held', 'confirmed', 'released', 'expired')),
    line_skus       text[]      NOT NULL,
    line_locations  text[]      NOT NULL,
    line_quantities bigint[]    NOT NULL,
    line_wanted     bigint[],
    line_confirmed  bigint[],
    customer        text,
    reference       text,
    first_ttl       interval    NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    settled_at      timestamptz,
    reap_after      timestamptz NOT NULL DEFAULT '-infinity',
    CHECK (cardinality(line_skus) > 0
           AND cardinality(line_skus) = cardinality(line_locations)
           AND cardinality(line_skus) = cardinality(line_quantities))
);
COMMENT ON TABLE reservations IS 'Holds, with their lines inline. A hold leaves the status held once, in the transaction that takes its units out of stock.held.';
COMMENT ON COLUMN reservations.line_wanted IS 'What was asked for of each line; NULL unless less would have done.';
COMMENT ON COLUMN reservations.line_confirmed IS 'What was sold of each line; NULL unless confirmed.';
COMMENT ON COLUMN reservations.expires_at IS 'From this instant the hold counts as free, whether or not the status says so yet.';
COMMENT ON COLUMN reservations.reap_after IS 'When the reaper looks at it again, after it could not be given back.';

-- The claiming pattern: due rows in order of expiry, FOR UPDATE SKIP LOCKED, see SelectDueReservations.
CREATE INDEX reservations_due_idx ON reservations (expires_at) WHERE status = 'held';
CREATE INDEX reservations_customer_idx ON reservations (tenant, customer, id) WHERE customer IS NOT NULL;
CREATE INDEX reservations_reference_idx ON reservations (tenant, reference, id) WHERE reference IS NOT NULL;

CREATE TABLE ledger (
    seq            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant         text        NOT NULL,
    sku            text        NOT NULL,
    location       text        NOT NULL,
    kind           text        NOT NULL CHECK (kind IN ('receive', 'write_off', 'count', 'hold', 'confirm', 'release', 'expire', 'retake', 'repair')),
    delta_on_hand  bigint      NOT NULL,
    delta_held     bigint      NOT NULL,
    on_hand        bigint      NOT NULL,
    held           bigint      NOT NULL,
    reservation_id uuid,
    reference      text,
    reason         text,
    actor          text        NOT NULL
);
CREATE INDEX ledger_sku_idx ON ledger (tenant, sku, seq);
COMMENT ON TABLE ledger IS 'Every change of on_hand and held, with the counters after it, written by the transaction that made it. Within one stock row, seq is the order of the changes.';
