package inventory

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"unicode/utf8"
)

// MaxImportRow is how long a row of an import may be, in bytes.
const MaxImportRow = 64 << 10

// ImportRows reads the rows of an import one after the other, in bounded memory. It is
// one goroutine's.
type ImportRows struct {
	text    importText
	columns []string // of a CSV file, as in its header
	cells   []string
	ndjson  bool
}

// NewImportCSV reads rows of CSV, as RFC 4180 has it, below a header that names the columns. It fails with
// an [InvalidError] where the header can't be right, and with what reading from fails with.
//
// A quoted cell may hold line breaks. A quote that is never closed spoils only the line that opens it.
func NewImportCSV(from io.Reader) (*ImportRows, error) {
	r := &ImportRows{text: newImportText(from, "csv")}
	return r, r.readHeader()
}

// NewImportNDJSON reads rows that are JSON objects, each on a line of its own.
func NewImportNDJSON(from io.Reader) *ImportRows {
	return &ImportRows{text: newImportText(from, "ndjson"), ndjson: true}
}

// next reads one row; lines with nothing on them aren't rows. It fails with io.EOF at the end, and
// with what reading fails with: then a row that has come in part isn't read.
func (r *ImportRows) next() (importRow, error) {
	if r.ndjson {
		return r.nextObject()
	}
	return r.nextRecord()
}

// importText is the text of an import, of which a window is in memory.
type importText struct {
	from  io.Reader
	buf   []byte
	begin int   // of what hasn't been taken yet
	end   int   // of what has come
	err   error // what reading ended with
	line  int64 // the number of the line at begin, from 1
	sum   hash.Hash
}

func newImportText(from io.Reader, format string) importText {
	t := importText{from: from, buf: make([]byte, 4*MaxImportRow), line: 1, sum: sha256.New()}
	t.sum.Write([]byte(format + "\n"))
	return t
}

var errTooLong = errors.New("longer than a row may be")

// lineEnd is how long the window has to be for a line that begins offset bytes after its beginning to be in it,
// line break included. The last line may lack one. It fails with io.EOF where there is no line, and with
// errTooLong where there is none within the bounds of a row.
func (t *importText) lineEnd(offset int) (int, error) {
	searched := offset
	for {
		window := t.buf[t.begin:t.end]
		if i := bytes.IndexByte(window[searched:], '\n'); i >= 0 && searched+i < MaxImportRow+2 {
			return searched + i + 1, nil
		} else if i >= 0 || len(window) > MaxImportRow+2 {
			return 0, errTooLong
		}
		searched = len(window)
		if t.err != nil {
			if t.err == io.EOF && len(window) > offset {
				return len(window), nil
			}
			return 0, t.err
		}
		t.read()
	}
}

func (t *importText) read() {
	if t.end == len(t.buf) {
		copy(t.buf, t.buf[t.begin:t.end])
		t.end -= t.begin
		t.begin = 0
	}
	n, err := t.from.Read(t.buf[t.end:])
	t.end += n
	t.err = err
}

// take takes so many bytes out of the window. They are valid until the next reading.
func (t *importText) take(n int) []byte {
	taken := t.buf[t.begin : t.begin+n]
	t.begin += n
	t.line += int64(bytes.Count(taken, []byte{'\n'}))
	t.sum.Write(taken)
	return taken
}

// skipLine takes the rest of a line that is too long.
func (t *importText) skipLine() error {
	for {
		if i := bytes.IndexByte(t.buf[t.begin:t.end], '\n'); i >= 0 {
			t.take(i + 1)
			return nil
		}
		t.take(t.end - t.begin)
		if t.err == io.EOF {
			return nil
		} else if t.err != nil {
			return t.err
		}
		t.read()
	}
}

// nextLine finds the next line with something on it, and leaves it where it is: it is the first so many
// bytes of the window. A line that is too long is taken, and told as a row that can't be read.
func (t *importText) nextLine() (length int, tooLong *importRow, err error) {
	for {
		length, err := t.lineEnd(0)
		if err == errTooLong {
			row := importRow{line: t.line, bad: malformed("a row may have at most %d bytes", MaxImportRow)}
			return 0, &row, t.skipLine()
		}
		if err != nil {
			return 0, nil, err
		}
		if t.line == 1 && bytes.HasPrefix(t.buf[t.begin:t.end], byteOrderMark) {
			t.sum.Write(byteOrderMark)
			t.begin += len(byteOrderMark)
			if length -= len(byteOrderMark); length == 0 {
				continue
			}
		}
		if len(bytes.TrimSpace(t.buf[t.begin:t.begin+length])) > 0 {
			return length, nil, nil
		}
		t.take(length)
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// textFault says why a row can't be text.
func textFault(row []byte) *rowError {
	if bytes.IndexByte(row, 0) >= 0 {
		return malformed("holds a NUL character")
	}
	if !utf8.Valid(row) {
		return malformed("isn't UTF-8")
	}
	return nil
}

// trimBreak is a line without its line break.
func trimBreak(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}
