-- +goose Up
ALTER TABLE jobs
    DROP CONSTRAINT jobs_overlap_check,
    ADD CONSTRAINT jobs_overlap_check CHECK (overlap IN ('allow', 'skip', 'queue', 'replace')),
    ADD COLUMN max_concurrent integer NOT NULL DEFAULT 1 CHECK (max_concurrent > 0),
    ADD COLUMN calendars text[] NOT NULL DEFAULT '{}',
    ADD COLUMN skips timestamptz[] NOT NULL DEFAULT '{}',
    ADD COLUMN faulty_at timestamptz,
    ADD COLUMN fault text;
CREATE INDEX jobs_calendars_idx ON jobs USING gin (calendars) WHERE calendars <> '{}' AND deleted_at IS NULL;
CREATE INDEX jobs_faulty_idx ON jobs (id) WHERE faulty_at IS NOT NULL;
COMMENT ON COLUMN jobs.max_concurrent IS 'How many runs may go at once before overlap has a say.';
COMMENT ON COLUMN jobs.calendars IS 'The calendars that exclude instants, by name.';
COMMENT ON COLUMN jobs.skips IS 'Instants to come that somebody asked to have skipped.';
COMMENT ON COLUMN jobs.faulty_at IS 'Since when the planner has set the job aside, because it can''t make sense of it; NULL: it has not. A pause is another matter, and stays.';

ALTER TABLE job_runs
    DROP CONSTRAINT job_runs_priority_check,
    ADD CONSTRAINT job_runs_priority_check CHECK (priority BETWEEN -1 AND 9),
    ADD COLUMN parked boolean NOT NULL DEFAULT false;
DROP INDEX job_runs_job_idx;
CREATE INDEX job_runs_job_idx ON job_runs (job_id, parked, priority DESC, effective_at);
COMMENT ON COLUMN job_runs.priority IS 'That of its job; -1 for the runs of a backfill, which come after all others.';
COMMENT ON COLUMN job_runs.parked IS 'Waits for its turn among its job''s runs: out of the way of those that look for due ones, and woken when a run of the job ends.';
COMMENT ON INDEX job_runs_job_idx IS 'The runs of a job, those that wait for their turn in their order. None of its columns changes when a run is leased.';

CREATE TABLE calendars (
    tenant     text        NOT NULL,
    name       text        NOT NULL,
    timezone   text        NOT NULL,
    dates      json        NOT NULL CHECK (json_typeof(dates) = 'array'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, name)
);
COMMENT ON TABLE calendars IS 'Days without runs, shared by jobs. Whoever changes one locks it before its jobs.';
COMMENT ON COLUMN calendars.dates IS '[{"From": "2026-12-24", "To": "2026-12-26"}, …]: dates of the timezone, both included; no To: From alone.';
