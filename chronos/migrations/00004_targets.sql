-- +goose Up
ALTER TABLE jobs ADD COLUMN target bigint NOT NULL DEFAULT 0;
ALTER TABLE job_runs ADD COLUMN target bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN jobs.target IS 'The receiver that its webhook goes to: the first 64 bits of the SHA-256 of its origin (scheme, host, port unless it is the scheme''s own). 0: it has no webhook.';
COMMENT ON COLUMN job_runs.target IS 'That of its job, so that runs of a receiver that can take no more are passed over.';

WITH origins AS (
    SELECT id, regexp_replace(lower(substring(spec #>> '{target,webhook,url}' FROM '^[A-Za-z]+://[^/?#]+')),
                              '^(http://.*):80$|^(https://.*):443$', '\1\2') AS origin
      FROM jobs WHERE spec #>> '{target,webhook,url}' IS NOT NULL)
UPDATE jobs j SET target = ('x' || encode(substring(sha256(convert_to(o.origin, 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint
  FROM origins o WHERE o.id = j.id AND o.origin IS NOT NULL;
UPDATE job_runs r SET target = j.target FROM jobs j WHERE j.id = r.job_id AND j.target <> 0;
