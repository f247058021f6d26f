-- +goose Up
ALTER TABLE job_runs SET (fillfactor = 40);
COMMENT ON TABLE job_runs IS 'Runs that have no end yet, one row each: small and hot. A run that ends is moved to run_history by the statement that ends it. No foreign key: a lease is reclaimed even when its job is gone. Pages are filled to 40 %, so that all the runs of one can be leased at once and stay on it (HOT).';

ALTER TABLE run_history
    ADD COLUMN worker text,
    ADD COLUMN started_at timestamptz,
    ADD COLUMN lease_token uuid,
    ADD COLUMN answer jsonb,
    ADD COLUMN outcome jsonb;
COMMENT ON COLUMN run_history.attempts IS 'The attempts before the last. Of a run without outcome: all of them.';
COMMENT ON COLUMN run_history.outcome IS 'What came of the last attempt, whose other facts stand in the columns attempt, worker, started_at, finished_at, lease_token and answer, as the run had them: so a run is moved here without a document being built. NULL: it ended without one.';
