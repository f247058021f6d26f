// Command cron measures package chronos/cron beside other Go libraries, and shows where each of
// them is wrong: it puts the cases of cron's vector files to all.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "", "file for the page; default: print it")
	dir := flag.String("vectors", "../chronos/cron/testdata/vectors", "folder of the vector files")
	rounds := flag.Int("rounds", 15, "how often each library has its turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		return errors.New("usage: cron [-out FILE] [-vectors DIR] [-rounds N]")
	}
	vectors, others, err := readVectors(*dir)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	reportHead(&page)
	const about = "Medians of %d rounds, the libraries taking turns of %v; after each time, the objects that one call allocates. "
	rows, err := parseSpeed(*rounds)
	if err != nil {
		return err
	}
	reportSpeed(&page, "Parse", fmt.Sprintf(about, *rounds, turn), rows)
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		rows, err := nextSpeed(zone, *rounds)
		if err != nil {
			return err
		}
		reportSpeed(&page, "Next in "+zone, fmt.Sprintf(about+"Each call begins at another of %d random instants of a year.", *rounds, turn, instants), rows)
	}
	verdicts := make([][]verdict, len(vectors))
	for i, v := range vectors {
		for _, l := range libraries {
			verdicts[i] = append(verdicts[i], judge(l, v))
		}
		if got := verdicts[i][ours]; got.kind != right {
			return fmt.Errorf("%s: %q in %s: we are wrong: %s", v.rule, v.expr, v.zone, got.text)
		}
	}
	reportVerdicts(&page, vectors, others, verdicts)
	if *out == "" {
		_, err = os.Stdout.Write(page.Bytes())
		return err
	}
	return os.WriteFile(*out, page.Bytes(), 0o644)
}
