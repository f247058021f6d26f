package webhook

import (
	"io"
	"strings"
	"unicode/utf8"
)

// excerpt reads the beginning of a body. A body that breaks off, or isn't done
// by the deadline, gives what had come.
func excerpt(body io.Reader) string {
	read, _ := io.ReadAll(io.LimitReader(body, MaxResponse))
	text := string(read)
	if len(text) == MaxResponse {
		text = whole(text)
	}
	return clean(text, MaxResponse)
}

// whole drops a last character that was cut in two.
func whole(s string) string {
	for i := len(s) - 1; i >= 0 && i >= len(s)-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return s[:i]
			}
			break
		}
	}
	return s
}

// clean makes s valid UTF-8 without NUL, which PostgreSQL stores neither of, in
// at most size bytes. Each run of bad bytes becomes one replacement character.
func clean(s string, size int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\xff"), "\uFFFD")
	if len(s) > size {
		s = whole(s[:size])
	}
	return s
}
