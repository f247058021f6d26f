package crontab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// userName is a user, perhaps with the group and login class that the BSDs allow.
var userName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*\$?(:[A-Za-z0-9_.-]+)?(/[A-Za-z0-9_.-]+)?$`)

// cutSchedule cuts the schedule from the front of a line: a name, @every with its
// duration, or five fields, with one blank between them.
func cutSchedule(content string) (schedule, rest string, err error) {
	if strings.HasPrefix(content, "@") {
		schedule, rest = cutWord(content)
		if schedule == "@every" {
			var duration string
			duration, rest = cutWord(rest)
			schedule += " " + duration
		}
		return schedule, rest, nil
	}
	const needed = 5
	fields := make([]string, 0, needed)
	rest = content
	for len(fields) < needed && rest != "" {
		var field string
		field, rest = cutWord(rest)
		fields = append(fields, field)
	}
	if len(fields) < needed {
		return "", "", fmt.Errorf("has %d of five fields (minute hour day month weekday), which stand before the command", len(fields))
	}
	for i, field := range fields {
		if fields[i], err = stable(field, i); err != nil {
			return "", "", err
		}
	}
	return strings.Join(fields, " "), rest, nil
}

// stable writes the random numbers of a field, a~b, as H(a-b). i says which of the
// five fields it is.
func stable(field string, i int) (string, error) {
	if !strings.Contains(field, "~") {
		return field, nil
	}
	ends := [...][2]string{{"0", "59"}, {"0", "23"}, {"1", "31"}, {"1", "12"}, {"0", "6"}}[i]
	entries := strings.Split(field, ",")
	for n, entry := range entries {
		span, step, stepped := strings.Cut(entry, "/")
		low, high, random := strings.Cut(span, "~")
		switch {
		case !random:
			continue
		case strings.Contains(high, "~"):
			return "", errors.New("has more than one ~ in " + entry)
		case low == "" && high == "":
			entries[n] = "H"
		default:
			if low == "" {
				low = ends[0]
			}
			if high == "" {
				high = ends[1]
			}
			entries[n] = "H(" + low + "-" + high + ")"
		}
		if stepped {
			entries[n] += "/" + step
		}
	}
	return strings.Join(entries, ","), nil
}

// splitCommand splits a command at its first % that no backslash stands before,
// and reads both sides as cron does.
func splitCommand(text string) (command, stdin string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '%':
			return b.String(), readStdin(text[i+1:])
		case c == '\\' && i+1 < len(text):
			// Only before a % does a backslash mean anything, but it takes away
			// the meaning of whatever follows: \\% is \\ and the end of the command.
			i++
			if text[i] != '%' {
				b.WriteByte(c)
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// readStdin is what a command reads: a line end for each %, a % for each \%, and a
// line end after the last line. A second backslash does not guard the first.
func readStdin(text string) string {
	const kept = "\x00" // which no line holds
	text = strings.ReplaceAll(text, `\%`, kept)
	text = strings.ReplaceAll(text, "%", "\n")
	text = strings.ReplaceAll(text, kept, "%")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// cutWord cuts text after its first word and the blanks that follow.
func cutWord(text string) (word, rest string) {
	if i := strings.IndexAny(text, blanks); i >= 0 {
		return text[:i], strings.TrimLeft(text[i:], blanks)
	}
	return text, ""
}

const (
	longestWords = 48 // characters of a name that are made of the command
	hashLength   = 8  // hexadecimal digits
)

var notInName = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// nameOf names a job by its user and its command, as it is written and as it is run.
func nameOf(user, written, command string) string {
	sum := sha256.Sum256([]byte(user + "\x00" + written))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	var words []string
	length := 0
	for i, word := range strings.Fields(command) {
		if strings.ContainsAny(word, "|&;<>") {
			break // what it is for has been said
		}
		if i == 0 {
			word = path.Base(word)
		}
		word = strings.Trim(notInName.ReplaceAllString(word, "-"), "-.")
		if length += len(word) + 1; length > longestWords {
			break
		}
		if word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "crontab-" + hash
	}
	return strings.Join(words, "-") + "-" + hash
}
