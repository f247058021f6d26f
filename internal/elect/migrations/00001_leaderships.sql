-- +goose Up
CREATE TABLE leaderships (
    name        text PRIMARY KEY,
    epoch       bigint      NOT NULL,
    holder      text        NOT NULL,
    backend_pid integer     NOT NULL,
    renewed_at  timestamptz NOT NULL
);
COMMENT ON TABLE leaderships IS 'Who leads what. The advisory lock decides who may lead; the epoch, raised by every win, lets writes of an earlier leader be refused.';
COMMENT ON COLUMN leaderships.backend_pid IS 'The session that holds the advisory lock: what a challenger ends when renewed_at has gone stale.';
