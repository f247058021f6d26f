package alert

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Source is the job or monitor that an alert is about: one of the ids is zero.
type Source struct {
	Tenant    string
	JobID     int64
	MonitorID int64
	Name      string
}

// News is what is told to one or several rules.
type News struct {
	Source
	Kind  Kind
	Cause string // what of the source it is about: the same again makes no other alert
	At    time.Time
	Data  map[string]any // facts; the source's name is added
	Rules []Rule
}

// raiseSQL leaves an alert of the same cause as it is.
const raiseSQL = `
INSERT INTO chronos.alerts (tenant, job_id, monitor_id, source, kind, cause, url, payload)
SELECT tenant, nullif(job_id, 0), nullif(monitor_id, 0), source, kind, cause, url, payload
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
       AS a(tenant, job_id, monitor_id, source, kind, cause, url, payload)
ON CONFLICT DO NOTHING`

// Raise writes alerts, one for each rule. The caller holds the rows of the sources.
func Raise(ctx context.Context, tx pgx.Tx, all []News) error {
	var (
		tenants, sources, kinds, causes, urls, payloads []string
		jobs, monitors                                  []int64
	)
	for _, n := range all {
		if len(n.Rules) == 0 {
			continue
		}
		of, data := "job", map[string]any{}
		if n.MonitorID != 0 {
			of = "monitor"
		}
		for k, v := range n.Data {
			data[k] = v
		}
		data[of] = n.Name
		payload, err := json.Marshal(struct {
			Type      string         `json:"type"`
			Timestamp time.Time      `json:"timestamp"`
			Data      map[string]any `json:"data"`
		}{of + "." + string(n.Kind), n.At.UTC(), data})
		if err != nil {
			return err
		}
		for _, r := range n.Rules {
			tenants, jobs, monitors, sources = append(tenants, n.Tenant), append(jobs, n.JobID), append(monitors, n.MonitorID), append(sources, n.Name)
			kinds, causes, urls, payloads = append(kinds, string(n.Kind)), append(causes, n.Cause), append(urls, r.URL), append(payloads, string(payload))
		}
	}
	if len(urls) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, raiseSQL, tenants, jobs, monitors, sources, kinds, causes, urls, payloads)
	return err
}
