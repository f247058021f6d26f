package web

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/alert"
	"holdfast/internal/httpapi"
)

// How many rows the pages of monitors and alerts show.
const (
	monitorsPerPage = 50
	alertsShown     = 10
	eventsShown     = 100
)

// monitorRow is a monitor as a list shows it.
type monitorRow struct {
	chronos.Monitor
	Words string // its schedule
}

func rowOfMonitor(m chronos.Monitor) monitorRow {
	if every := m.Spec.Schedule.Every; every > 0 {
		return monitorRow{m, "Every " + spell(every) + ", counted from the last check-in"}
	}
	words, err := m.Describe()
	if err != nil {
		words = err.Error()
	}
	return monitorRow{m, words}
}

// Overdue reports whether what is expected should have come.
func (m monitorRow) Overdue() bool {
	return m.State == chronos.MonitorLate && m.StartedAt == nil && m.Deadline != nil
}

// expectation is what a monitor awaits, as a page shows it.
type expectation struct {
	Now     time.Time
	Monitor monitorRow
}

// Expects is for the pages' shared part.
func (m monitorRow) Expects(now time.Time) expectation { return expectation{now, m} }

type monitorsView struct {
	Monitors []monitorRow
	Next     *string
	Paged    bool
}

func (p jobPages) monitors(ctx context.Context, v visit) (page, error) {
	const kind = "monitors"
	var after string
	paged, err := listParams(v, monitorsPerPage).After(kind, &after)
	if err != nil {
		return page{}, err
	}
	found, err := p.store.ListMonitors(ctx, v.tenant, after, monitorsPerPage+1)
	if err != nil {
		return page{}, err
	}
	list := httpapi.NewPage(found, monitorsPerPage, kind, func(last chronos.Monitor) string { return last.Name })
	body := monitorsView{Next: list.NextCursor, Paged: paged}
	for _, m := range list.Items {
		body.Monitors = append(body.Monitors, rowOfMonitor(m))
	}
	return page{name: "monitors", title: "Monitors", body: body}, nil
}

// alertList is alerts as the pages' shared part shows them.
type alertList struct {
	Now   time.Time
	Items []chronos.Alert
}

type monitorView struct {
	monitorRow
	Tells  []fact
	Events []chronos.MonitorEvent
	Alerts alertList
}

func (p jobPages) monitor(ctx context.Context, v visit) (page, error) {
	name := v.PathValue("name")
	if chronos.CheckName(name) != nil {
		return page{}, notFound
	}
	m, err := p.store.GetMonitor(ctx, v.tenant, name)
	if err != nil {
		return page{}, err
	}
	events, err := p.store.ListMonitorEvents(ctx, v.tenant, name, 0, eventsShown)
	if err != nil {
		return page{}, err
	}
	alerts, err := p.store.ListAlerts(ctx, v.tenant, chronos.AlertFilter{Monitor: name, Limit: alertsShown})
	if err != nil {
		return page{}, err
	}
	body := monitorView{rowOfMonitor(m), rulesText(m.Spec.Alerts), events, alertList{v.now, alerts}}
	return page{name: "monitor", title: m.Name, body: body}, nil
}

// rulesText says what is told to whom.
func rulesText(rules []alert.Rule) []fact {
	var facts []fact
	for _, r := range rules {
		var kinds []string
		for _, k := range r.On {
			kinds = append(kinds, string(k))
		}
		text := strings.Join(kinds, ", ") + " → " + r.URL
		if r.After > 0 {
			text += fmt.Sprintf(" (after %s)", spell(r.After))
		}
		facts = append(facts, fact{"Tells", text})
	}
	return facts
}
