package inventory

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// readHeader reads the names of the columns.
func (r *ImportRows) readHeader() error {
	const field = "header"
	length, tooLong, err := r.text.nextLine()
	switch {
	case err == io.EOF:
		return invalid(field, "there is none: the first line names the columns, such as sku,name,delta")
	case err != nil:
		return err
	case tooLong != nil:
		return invalid(field, "line %d: %s", tooLong.line, tooLong.bad.reason)
	}
	line := r.text.line
	text := r.text.take(length)
	bad := textFault(text)
	if bad == nil {
		r.columns, bad = splitRecord(string(trimBreak(text)), nil)
	}
	if bad != nil {
		return invalid(field, "line %d: %s", line, bad.reason)
	}
	for i, name := range r.columns {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case !isImportColumn(name):
			return invalid(field, "line %d: unknown column %s; there may be, with commas between them, %s", line, quoted(name), strings.Join(importColumns, ", "))
		case slices.Contains(r.columns[:i], name):
			return invalid(field, "line %d: the column %s is there twice", line, name)
		}
		r.columns[i] = name
	}
	if !slices.Contains(r.columns, "sku") {
		return invalid(field, "line %d: the column sku is missing", line)
	}
	if !slices.Contains(r.columns, "delta") && !slices.Contains(r.columns, "counted") {
		return invalid(field, "line %d: the column delta is missing, or counted", line)
	}
	return nil
}

func (r *ImportRows) nextRecord() (row importRow, err error) {
	length, tooLong, err := r.text.nextLine()
	if tooLong != nil || err != nil {
		if tooLong != nil {
			row = *tooLong
		}
		return row, err
	}
	row.line = r.text.line
	whole, err := r.recordEnd(length)
	if err != nil {
		return row, err
	}
	text := r.text.buf[r.text.begin : r.text.begin+whole]
	bad := textFault(text)
	if bad == nil {
		r.cells, bad = splitRecord(string(trimBreak(text)), r.cells[:0])
	}
	if bad != nil {
		// Whatever its quotes seemed to enclose, the next line is a row of its own.
		first := string(trimBreak(r.text.take(length)))
		if whole > length {
			_, bad = splitRecord(first, nil)
		}
		row.bad = bad
		return row, nil
	}
	r.text.take(whole)
	if len(r.cells) != len(r.columns) {
		row.bad = malformed("has %d cells, and there are %d columns", len(r.cells), len(r.columns))
		return row, nil
	}
	for i, cell := range r.cells {
		if cell != "" {
			row.set(r.columns[i], cell)
		}
	}
	row.check()
	return row, nil
}

// recordEnd is how long the record is whose first line is given: a line break between quotes doesn't end it. Where
// a quote is never closed, it is that line alone.
func (r *ImportRows) recordEnd(length int) (int, error) {
	begin, whole := 0, length
	for quotes := 0; ; {
		quotes += bytes.Count(r.text.buf[r.text.begin+begin:r.text.begin+whole], []byte{'"'})
		if quotes%2 == 0 {
			return whole, nil
		}
		next, err := r.text.lineEnd(whole)
		if err == io.EOF || err == errTooLong {
			return length, nil
		} else if err != nil {
			return 0, err
		}
		begin, whole = whole, next
	}
}

// splitRecord splits a record into its cells.
func splitRecord(record string, cells []string) ([]string, *rowError) {
	for {
		if !strings.HasPrefix(record, `"`) {
			cell, rest, more := strings.Cut(record, ",")
			if strings.Contains(cell, `"`) {
				return cells, malformed("cell %d has a quote in it, and isn't between quotes as a whole", len(cells)+1)
			}
			cells = append(cells, cell)
			if !more {
				return cells, nil
			}
			record = rest
			continue
		}
		record = record[1:]
		var cell string
		for {
			part, rest, closed := strings.Cut(record, `"`)
			if !closed {
				return cells, malformed("the quote of cell %d is never closed", len(cells)+1)
			}
			cell += part
			if record = rest; !strings.HasPrefix(record, `"`) {
				break
			}
			cell, record = cell+`"`, record[1:]
		}
		cells = append(cells, cell)
		switch {
		case record == "":
			return cells, nil
		case record[0] != ',':
			return cells, malformed("after the closing quote of cell %d there is no comma", len(cells))
		}
		record = record[1:]
	}
}
