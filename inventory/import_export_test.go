package inventory

import (
	"fmt"
	"io"
)

// Check reads all rows and says whether one of them makes no sense.
func (r *ImportRows) Check() error {
	last := int64(0)
	for {
		row, err := r.next()
		if err == io.EOF {
			return nil
		}
		switch {
		case err != nil:
			return err
		case row.line <= last:
			return fmt.Errorf("line %d after %d", row.line, last)
		case row.bad == nil && (!isName(row.sku) || (row.delta == nil) == (row.counted == nil)):
			return fmt.Errorf("taken for good: %+v", row)
		case row.bad != nil && (row.bad.code == "" || row.bad.reason == ""):
			return fmt.Errorf("refused without a reason: %+v", row.bad)
		}
		last = row.line
	}
}
