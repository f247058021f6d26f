package cron

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io"
	"strings"
	"sync"
	"time"
)

// The zone data is the file lib/time/zoneinfo.zip of a Go release, unchanged.
// time.LoadLocation would ask the machine first, and two replicas on two
// machines could then disagree about the same job; importing time/tzdata
// doesn't help, since it is only asked last. So the file is embedded here.
//
//go:generate go run ./zonedata
//go:embed zonedata/zoneinfo.zip
var zoneZip []byte

//go:embed zonedata/version.txt
var zoneVersion string

// ZoneDataVersion is the release of the IANA time zone database in the
// binary, such as "2026c".
func ZoneDataVersion() string { return strings.TrimSpace(zoneVersion) }

// zoneFiles indexes the embedded archive by zone name, once.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	r, err := zip.NewReader(bytes.NewReader(zoneZip), int64(len(zoneZip)))
	if err != nil {
		panic("cron: embedded zone data: " + err.Error())
	}
	files := make(map[string]*zip.File, len(r.File))
	for _, f := range r.File {
		if !f.FileInfo().IsDir() {
			files[f.Name] = f
		}
	}
	return files
})

// loaded holds each zone that was asked for; at most as many as exist.
var loaded sync.Map // zone name → *time.Location

// LoadLocation returns the zone of that name, such as "Europe/Berlin", from
// the zone data in the binary; what the machine has installed is not
// consulted. Names are case-sensitive. A name that isn't known, "" and "Local"
// fail with an *Error for the field timezone; nothing falls back to UTC. It is
// safe for concurrent use, and the same name gives the same pointer.
func LoadLocation(name string) (*time.Location, error) {
	switch name {
	case "":
		return nil, refuse(fieldTimezone, name, "is empty: name a zone, such as UTC or Europe/Berlin")
	case "Local":
		return nil, refuse(fieldTimezone, name, "is the machine's own zone, which replicas may not share: name a zone, such as Europe/Berlin")
	case "UTC":
		return time.UTC, nil
	}
	if loc, ok := loaded.Load(name); ok {
		return loc.(*time.Location), nil
	}
	f, ok := zoneFiles()[name]
	if !ok {
		return nil, refuse(fieldTimezone, name, "is not a zone in the database "+ZoneDataVersion()+resembling(name))
	}
	r, err := f.Open()
	if err != nil {
		panic("cron: embedded zone data: " + err.Error())
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		panic("cron: embedded zone data: " + err.Error())
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		panic("cron: embedded zone data: " + name + ": " + err.Error())
	}
	first, _ := loaded.LoadOrStore(name, loc)
	return first.(*time.Location), nil
}

// resembling suggests the zone that was probably meant, if only the case of
// its letters or a space for an underscore is wrong.
func resembling(name string) string {
	const longest = 64 // bytes; no zone has a longer name
	if len(name) > longest {
		return ""
	}
	name = strings.ReplaceAll(name, " ", "_")
	for known := range zoneFiles() {
		if strings.EqualFold(known, name) {
			return "; did you mean " + known + "?"
		}
	}
	return ""
}
