package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

const (
	// importBatch is how many rows one transaction carries out. It bounds how long a SKU that is being
	// sold waits for an import. What keys remember is told apart by it: imports that were begun before a
	// change of it can't be gone on with after it.
	importBatch = 250
	// importBatchTime is within which a batch is carried out, by the database's clock, or never.
	importBatchTime = 10 * time.Second
	// importPatience is what is left, after that, to learn what became of it.
	importPatience = 5 * time.Second
)

// DefaultImportReason stands in the ledger where an import gives no reason.
const DefaultImportReason = "import"

// Import is a command to change what is on hand of many SKUs, row by row: by a delta or by a count, as
// [Store.Adjust] and [Store.Count] do. A row may name its SKU and change its settings too; a SKU that
// isn't there is made.
type Import struct {
	Rows     *ImportRows
	Location string // of the rows that name none; "": default
	Reason   string // of the rows that give none; "": [DefaultImportReason]
	All      bool   // tell of the good rows too
	DryRun   bool   // change nothing
	// Stop, when it is closed, ends the import after the batch in hand.
	Stop <-chan struct{}
}

// ErrImportStopped means that an import was ended by its Stop.
var ErrImportStopped = errors.New("the import was stopped before its end")

// RowResult is what became of one row.
type RowResult struct {
	Line     int64  `json:"line" doc:"Where the row begins in what was sent, from 1"`
	SKU      string `json:"sku,omitempty" doc:"Missing where it can't be read"`
	Location string `json:"location,omitempty"`
	OnHand   *int64 `json:"on_hand,omitempty" doc:"After the row; only of one that was applied"`
	Field    string `json:"field,omitempty" doc:"What of the row is wrong; missing where it is the row as a whole"`
	Code     string `json:"code,omitempty" doc:"Why the row wasn't applied: malformed_row, validation_failed, location_not_found, below_held, count_changed or settings_conflict"`
	Reason   string `json:"reason,omitempty" doc:"The same for people"`
}

// ImportTotals count the rows that are done.
type ImportTotals struct {
	Rows      int64 `json:"rows" doc:"Rows that were looked at: applied and failed ones"`
	Applied   int64 `json:"applied"`
	Unchanged int64 `json:"unchanged" doc:"Of the applied rows, those that said what was so already; the ledger doesn't mention them"`
	Failed    int64 `json:"failed"`
	Created   int64 `json:"created" doc:"SKUs that weren't there before"`
}

func (t *ImportTotals) add(more ImportTotals) {
	t.Rows += more.Rows
	t.Applied += more.Applied
	t.Unchanged += more.Unchanged
	t.Failed += more.Failed
	t.Created += more.Created
}

// Imported is what an import has come to, however it ended.
type Imported struct {
	ImportTotals
	// Fresh counts the batches that were carried out now. With a key, the others were found done.
	Fresh int
	// NextLine is where the first row begins that isn't done, where the import ended early.
	NextLine int64
}

// importAnswer is what a key remembers of a batch.
type importAnswer struct {
	ImportTotals
	Results []RowResult `json:"results,omitempty"`
}

// Import reads rows and carries them out in batches of some hundred, each in a transaction
// of its own that locks its stock rows in the one order: so the good rows stand, a bad row changes nothing and
// holds up no other, and stock that is being sold is held up for no longer than one batch. It changes what is on
// hand, never what is held. tell is called after each batch, with the results of its bad rows (with All, of
// all its rows), in their order.
//
// With a key, each batch is remembered by the transaction that carries it out, together with the hash of all
// that came before its end. So an import that ended early is gone on with by sending the same
// again: what is done is found, not done again. Two that are sent at once take turns, and get the same
// answer. The key's Body stands for what is asked for beside the rows. Others than the first rows under the
// same key fail with [idempotency.ErrReused], at the latest at the end of the first batch that differs.
//
// It fails with what reading the rows fails with, with [ErrImportStopped], with what tell fails with, or
// with what a batch does, [pg.ErrCommitUnknown] among it. Then the batches before stand, and what has been
// read of a batch that isn't full isn't carried out. The caller's deadline isn't used.
func (s *Store) Import(ctx context.Context, c Caller, im Import, tell func([]RowResult) error) (done Imported, err error) {
	if im.Location == "" {
		im.Location = DefaultLocation
	}
	if im.Reason == "" {
		im.Reason = DefaultImportReason
	}
	if err := checkSKU("location", im.Location); err != nil {
		return done, err
	}
	if err := checkText("reason", im.Reason, 500); err != nil {
		return done, err
	}
	if im.DryRun {
		c.Key = idempotency.Key{} // nothing to remember
	}
	im.Rows.text.sum.Write(c.Key.Body[:])
	for n := 0; ; n++ {
		select {
		case <-im.Stop:
			done.NextLine = im.Rows.text.line
			return done, ErrImportStopped
		default:
		}
		done.NextLine = im.Rows.text.line
		b := batchOfRows{Import: im, caller: c}
		if err := b.read(importBatch); err != nil {
			return done, err
		}
		b.caller.Key.Path += "#" + strconv.Itoa(n)
		b.caller.Key.Body = [sha256.Size]byte(im.Rows.text.sum.Sum(nil))
		if err := s.importRows(ctx, &b); err != nil {
			return done, err
		}
		created := done.Created
		done.add(b.answer.ImportTotals)
		if !b.replayed {
			done.Fresh++
			s.analyzeGrown(ctx, created, done.Created)
		}
		if err := tell(b.answer.Results); err != nil {
			return done, err
		}
		if b.last {
			return done, nil
		}
	}
}

// read reads the rows of a batch. They are a batch only once all of them have come, or their end: what
// a batch is must not depend on how fast they come. The last one may have none: with its key, nothing can be
// added to the import under the same key any more.
func (b *batchOfRows) read(size int) error {
	for len(b.rows) < size {
		row, err := b.Rows.next()
		if err == io.EOF {
			b.last = true
			return nil
		}
		if err != nil {
			return err
		}
		if row.location == "" {
			row.location = b.Location
		}
		if row.reason == "" {
			row.reason = b.Reason
		}
		b.rows = append(b.rows, row)
	}
	return nil
}

// importRows carries a batch out, or finds it done.
func (s *Store) importRows(ctx context.Context, b *batchOfRows) error {
	if len(b.rows) == 0 && b.caller.Key.Value == "" {
		return nil
	}
	b.caller.Deadline = time.Now().Add(importBatchTime)
	ctx, cancel := context.WithDeadline(ctx, b.caller.Deadline.Add(importPatience))
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return pg.ErrDeadline
	}
	b.prepare()
	for attempt := 1; ; attempt++ {
		err := pg.InPipeline(ctx, s.pool, pg.TxOptions{RepeatUnknown: b.caller.Key.Value != ""}, func(tx *pg.Pipeline) error {
			return b.carryOut(ctx, s, tx)
		})
		var first *reapFirstError
		if !errors.As(err, &first) || attempt == maxReapFirst {
			return err
		}
		if _, err := s.reapEach(ctx, first.due); err != nil {
			return err
		}
	}
}

// analyzeGrown tells the planner when the stock has grown by some orders of magnitude: it would learn
// that by itself a minute later, and until then all replicas go on as planned for few SKUs, reading all there
// are. It is no harm if it fails.
func (s *Store) analyzeGrown(ctx context.Context, before, after int64) {
	for limit := int64(1000); limit <= after; limit *= 10 {
		if before >= limit {
			continue
		}
		_ = pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "ANALYZE inventory.stock, inventory.skus")
			return err
		})
	}
}

// replay takes a batch for done that was done before.
func (b *batchOfRows) replay(stored idempotency.Stored) error {
	if !stored.IsFor(b.caller.Key) {
		return idempotency.ErrReused
	}
	b.answer = importAnswer{}
	if err := json.Unmarshal(stored.Text, &b.answer); err != nil {
		return fmt.Errorf("read a stored batch: %w", err)
	}
	b.replayed = true
	return nil
}
