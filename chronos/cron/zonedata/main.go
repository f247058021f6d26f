// Command zonedata replaces the zone data that package cron embeds by that of
// the Go release in use: its lib/time/zoneinfo.zip, unchanged, and the number
// of the IANA release that it was built from. The data is in the public
// domain. It is run by "go generate" in chronos/cron.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var versionLine = regexp.MustCompile(`(?m)^DATA=([0-9]{4}[a-z]+)$`)

func main() {
	log.SetFlags(0)
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		log.Fatalf("go env GOROOT: %v", err)
	}
	from := filepath.Join(strings.TrimSpace(string(out)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(from, "update.bash"))
	if err != nil {
		log.Fatal(err)
	}
	version := versionLine.FindSubmatch(script)
	if version == nil {
		log.Fatalf("%s/update.bash names no data version", from)
	}
	data, err := os.ReadFile(filepath.Join(from, "zoneinfo.zip"))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("zonedata/zoneinfo.zip", data, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("zonedata/version.txt", append(version[1], '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("zone data %s, %d bytes\n", version[1], len(data))
}
