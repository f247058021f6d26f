-- +goose Up
CREATE TABLE leaderships (
    name        text PRIMARY KEY,
    epoch       bigint      NOT NULL,
    holder      text        NOT NULL,
    backend_pid integer     NOT NULL,
    renewed_at  timestamptz NOT NULL,
    UNIQUE (name, epoch)
);
COMMENT ON TABLE leaderships IS 'Who leads what. The advisory lock decides who may lead; the epoch, raised by every win, lets writes of an earlier leader be refused.';
COMMENT ON CONSTRAINT leaderships_name_epoch_key ON leaderships IS 'Makes the epoch a key, so that a fence (FOR KEY SHARE) holds off the next win, which changes it, but not a renewal, which does not.';
COMMENT ON COLUMN leaderships.backend_pid IS 'The session that holds the advisory lock: what a challenger ends when renewed_at has gone stale.';
