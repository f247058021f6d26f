package crontab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variable is a line NAME = value.
type variable struct{ name, value string }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// ignored are the variables that steer cron itself, and why they do nothing here.
var ignored = map[string]string{
	"MAILTO":                    noMail,
	"MAILFROM":                  noMail,
	"CONTENT_TYPE":              noMail,
	"CONTENT_TRANSFER_ENCODING": noMail,
	"RANDOM_DELAY":              "each job has a jitter of its own",
	"LOGNAME":                   "cron sets it to the name of the user and takes no other",
}

const noMail = "no mail is sent: a job has alerts, and its runs keep their results"

// readVariable reads a line as NAME = value; is is false if it has another form. The
// error says what is wrong with one that has this form.
func readVariable(content string) (v variable, is bool, err error) {
	name, rest, quoted := cutQuoted(content)
	switch {
	case quoted:
	case content[0] == '"' || content[0] == '\'':
		return v, false, nil // a quote that doesn't end: no schedule begins like this, either
	default:
		end := strings.IndexAny(content, blanks+"=")
		if end < 0 {
			return v, false, nil
		}
		name, rest = content[:end], content[end:]
	}
	rest = strings.TrimLeft(rest, blanks)
	if !strings.HasPrefix(rest, "=") {
		return v, false, nil
	}
	if !variableName.MatchString(name) {
		return v, false, fmt.Errorf("%q can't be the name of a variable", name)
	}
	v.name, rest = name, strings.Trim(rest[1:], blanks)
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		v.value = rest
		return v, true, nil
	}
	value, after, ends := cutQuoted(rest)
	switch {
	case !ends:
		return v, false, errors.New("has a quote that doesn't end")
	case after != "":
		return v, false, errors.New("has more after the closing quote")
	}
	v.value = value
	return v, true, nil
}

// cutQuoted cuts a text in quotes from the front.
func cutQuoted(text string) (inner, rest string, ok bool) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return "", "", false
	}
	return strings.Cut(text[1:], text[:1])
}
