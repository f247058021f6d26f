package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdfast/internal/idempotency"
	"holdfast/inventory"
)

// imported is what an import came to, with all that it told.
type imported struct {
	inventory.Imported
	results []inventory.RowResult
}

func runImport(ctx context.Context, s *inventory.Store, c inventory.Caller, im inventory.Import) (done imported, err error) {
	done.Imported, err = s.Import(ctx, c, im, func(results []inventory.RowResult) error {
		done.results = append(done.results, results...)
		return nil
	})
	return done, err
}

// importFrom imports what can be read on one replica.
func (w *warehouse) importFrom(replica int, c inventory.Caller, format string, from io.Reader, change ...func(*inventory.Import)) (imported, error) {
	im := inventory.Import{}
	if format == "ndjson" {
		im.Rows = inventory.NewImportNDJSON(from)
	} else {
		var err error
		if im.Rows, err = inventory.NewImportCSV(from); err != nil {
			return imported{}, err
		}
	}
	for _, c := range change {
		c(&im)
	}
	return runImport(w.Context(), w.replicas[replica], c, im)
}

// csv imports a file that must be read to its end.
func (w *warehouse) csv(text string, change ...func(*inventory.Import)) imported {
	w.Helper()
	done, err := w.importFrom(0, caller, "csv", strings.NewReader(text), change...)
	if err != nil {
		w.Fatalf("import: %v", err)
	}
	return done
}

// failures are the bad rows in short.
func (d imported) failures() (short []string) {
	for _, r := range d.results {
		if r.Code != "" {
			short = append(short, strings.TrimRight(fmt.Sprintf("%d %s %s", r.Line, r.Code, r.Field), " "))
		}
	}
	return short
}

func (w *warehouse) wantFailures(d imported, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, d.failures()); diff != "" {
		w.Errorf("bad rows (-want +got):\n%s%v", diff, d.results)
	}
	if d.Failed != int64(len(want)) || d.Rows != d.Applied+d.Failed {
		w.Errorf("counts: %+v", d.ImportTotals)
	}
}

// TestImport changes stock row by row: the good rows stand, each bad row has its line and its reason.
func TestImport(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	d := w.csv("sku,name,delta,counted\n" +
		"mug,Mug,5,\n" + // 2
		"cup,Cup,,7\n" + // 3
		"mug,,-20,\n" + // 4: 15 are on hand
		"plate,Plate,-1,\n" + // 5: there is none, and then it isn't made
		"cup,,-2,\n" + // 6
		"mug,,,15\n" + // 7: so it is
		"mug,Big mug,,15\n" + // 8
		"bowl,,,0\n" + // 9: made, with nothing
		"a b,,1,\n", // 10
	)
	w.wantFailures(d, "4 below_held", "5 below_held", "10 validation_failed sku")
	if got := d.results[0]; got.SKU != "mug" || got.Reason != "-5 would be left, and 0 are held" {
		t.Errorf("a bad row: %+v", got)
	}
	if want := (inventory.ImportTotals{Rows: 9, Applied: 6, Unchanged: 1, Failed: 3, Created: 2}); d.ImportTotals != want {
		t.Errorf("%+v, want %+v", d.ImportTotals, want)
	}
	w.wantCounts("mug", 15, 0, 0)
	w.wantCounts("cup", 5, 0, 0)
	w.wantCounts("bowl", 0, 0, 0)
	if name := w.sku("mug").Name; name != "Big mug" {
		t.Errorf("mug is called %q", name)
	}
	if _, err := w.store().GetSKU(t.Context(), tenant, "plate"); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("a SKU that only a bad row names: %v", err)
	}
	if k := w.sku("cup"); k.Received != 7 || k.WrittenOff != 2 || k.Name != "Cup" {
		t.Errorf("cup: %+v", k)
	}
	ledger, err := w.store().Ledger(t.Context(), tenant, "cup", 0, 10)
	if err != nil || len(ledger) != 2 {
		t.Fatal(ledger, err)
	}
	for i, want := range []struct {
		kind          string
		delta, onHand int64
	}{{"count", 7, 7}, {"write_off", -2, 5}} {
		if e := ledger[i]; e.Kind != want.kind || e.DeltaOnHand != want.delta || e.OnHand != want.onHand || e.Actor != "test" || *e.Reason != "import" {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
}

// TestPitfall14ImportNeverTouchesHolds is pitfall 14: an import changes what is on hand, never what is held.
func TestPitfall14ImportNeverTouchesHolds(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("cup", 10)
	w.hold(one("mug", 4))
	old := w.hold(one("cup", 6))
	w.expire(old)
	d := w.csv("sku,counted,delta,expected\n" +
		"mug,3,,\n" + // 2: 4 are held
		"mug,,-7,\n" + // 3
		"mug,5,,9\n" + // 4: 10 are on hand
		"mug,5,,10\n" + // 5
		"cup,2,,\n" + // 6: of the 6 that were held none is any more
		"cup,,-2,\n" + // 7
		"cup,,-1,\n") // 8
	w.wantFailures(d, "2 below_held", "3 below_held", "4 count_changed expected", "8 below_held")
	w.wantCounts("mug", 5, 4, 0)
	w.wantCounts("cup", 0, 0, 0)
	if n := w.reap(0); n != 0 {
		t.Errorf("%d holds were left to the reaper, that the import should have given back", n)
	}
}

// TestImportGivesBackFirst has a hold in the way that stands on another SKU too, which has to be locked as
// well.
func TestImportGivesBackFirst(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("cup", 10)
	w.receive("mug", 10)
	w.expire(w.hold(cart(map[string]int64{"cup": 2, "mug": 10})))
	w.wantFailures(w.csv("sku,counted\nmug,1\n"))
	w.wantCounts("mug", 1, 0, 0)
	w.wantCounts("cup", 10, 0, 0)
}

func TestImportSettings(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	sold := w.hold(inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 3}}, Customer: "ann"})
	if err := w.confirm(sold.ID); err != nil {
		t.Fatal(err)
	}
	d := w.csv("sku,delta,safety_stock,backorder_limit,max_per_customer,default_ttl\n" +
		"mug,1,2,30,4,90s\n" +
		"cup,1,1,5,2,1h\n" +
		"cup,1,,0,,\n" +
		"tin,1,,,0,\n" +
		"tin,1,,,,500ms\n" +
		"tin,1,,,,10\n" +
		"tin,1,x,,,\n" +
		"tin,1,,1000000001,,\n")
	w.wantFailures(d, "5 validation_failed max_per_customer", "6 validation_failed default_ttl", "7 validation_failed default_ttl",
		"8 validation_failed safety_stock", "9 validation_failed backorder_limit")
	if k := w.sku("mug"); k.SafetyStock != 2 || k.BackorderLimit != 30 || *k.MaxPerCustomer != 4 || *k.DefaultTTL != 90*time.Second || k.OnHand != 8 {
		t.Errorf("mug: %+v", k)
	}
	if k := w.sku("cup"); k.SafetyStock != 1 || k.BackorderLimit != 0 || *k.MaxPerCustomer != 2 || *k.DefaultTTL != time.Hour || k.OnHand != 2 {
		t.Errorf("cup: %+v", k)
	}
	// What was bought before there was a limit counts.
	if _, _, err := w.store().Reserve(t.Context(), caller, inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 2}}, Customer: "ann"}); !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("a fifth unit: %v", err)
	}
	w.hold(inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 4}}, Customer: "bob"})
	for i := range 4 {
		w.hold(inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 4}}, Customer: fmt.Sprint(i)})
	}
	// 20 are held and 8 on hand.
	d = w.csv("sku,delta,backorder_limit,name\nmug,1,10,No\nmug,1,11,Yes\n")
	w.wantFailures(d, "2 settings_conflict backorder_limit")
	if k := w.sku("mug"); k.BackorderLimit != 11 || k.OnHand != 9 || k.Name != "Yes" {
		t.Errorf("mug: %+v", k)
	}
}

func TestImportLocations(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	for _, l := range []string{"berlin", "paris"} {
		if _, _, err := w.store().PutLocation(t.Context(), caller, inventory.LocationSettings{Location: l}); err != nil {
			t.Fatal(err)
		}
	}
	d := w.csv("sku,delta,location\n" +
		"mug,5,berlin\n" +
		"mug,-1,paris\n" + // 3: nothing is there
		"mug,1,rome\n" + // 4
		"cup,2,paris\n" +
		"cup,3,berlin\n" +
		"cup,-1,\n") // 7: nothing is at the default
	w.wantFailures(d, "3 below_held", "4 location_not_found location", "7 below_held")
	at := func(sku string) map[string]int64 {
		units := map[string]int64{}
		for _, l := range w.sku(sku).Locations {
			units[l.Location] = l.OnHand
		}
		return units
	}
	if diff := cmp.Diff(map[string]int64{"default": 10, "berlin": 5}, at("mug")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"default": 0, "berlin": 3, "paris": 2}, at("cup")); diff != "" {
		t.Error(diff)
	}
	// A location that is deleted and there again.
	w.csv("sku,counted,location\ncup,0,paris\n")
	if err := w.store().DeleteLocation(t.Context(), caller, "paris"); err != nil {
		t.Fatal(err)
	}
	w.wantFailures(w.csv("sku,delta\ncup,1\n", func(im *inventory.Import) { im.Location = "paris" }), "2 location_not_found location")
	if _, _, err := w.store().PutLocation(t.Context(), caller, inventory.LocationSettings{Location: "paris"}); err != nil {
		t.Fatal(err)
	}
	w.wantFailures(w.csv("sku,delta\ncup,1\n", func(im *inventory.Import) { im.Location = "paris" }))
	if n := at("cup")["paris"]; n != 1 {
		t.Errorf("%d at paris", n)
	}
}

// TestImportRevives makes a SKU again that was deleted: without its settings, with its past.
func TestImportRevives(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	name, limit := "Old", int64(5)
	w.put(inventory.Settings{SKU: "mug", Name: inventory.Change[string]{Set: true, Value: &name}, SafetyStock: inventory.Change[int64]{Set: true, Value: &limit}})
	w.csv("sku,delta\nmug,3\nmug,-3\n")
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); err != nil {
		t.Fatal(err)
	}
	w.wantFailures(w.csv("sku,delta\nmug,-1\n"), "2 below_held")
	if _, err := w.store().GetSKU(t.Context(), tenant, "mug"); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("revived by a bad row: %v", err)
	}
	d := w.csv("sku,counted,name\nmug,0,\nmug,4,New\n")
	if k := w.sku("mug"); k.OnHand != 4 || k.SafetyStock != 0 || k.Name != "New" || k.Received != 7 || d.Created != 1 {
		t.Errorf("%+v %+v", k, d.ImportTotals)
	}
}

// TestImportServesTheLine holds units that come in for whoever waits for them, before anybody else.
func TestImportServesTheLine(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	place, _, err := w.store().Join(t.Context(), caller, inventory.Join{SKU: "mug", Quantity: 2, Customer: "ann", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	d := w.csv("sku,delta\nmug,3\ncup,1\nmug,-4\n")
	w.wantFailures(d, "4 below_held")
	w.wantCounts("mug", 3, 2, 0)
	place, err = w.store().GetPlace(t.Context(), tenant, place.ID)
	if err != nil || place.Status != inventory.Offered {
		t.Errorf("%+v, %v", place, err)
	}
	w.wantFailures(w.csv("sku,counted\nmug,1\n"), "2 below_held")
}

func TestImportDryRun(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	dry := func(im *inventory.Import) { im.DryRun, im.All = true, true }
	d, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader("sku,delta\nmug,5\nmug,-16\ncup,1\n"), dry)
	if err != nil {
		t.Fatal(err)
	}
	w.wantFailures(d, "3 below_held")
	if d.Created != 1 || *d.results[0].OnHand != 15 {
		t.Errorf("%+v", d)
	}
	w.wantCounts("mug", 10, 0, 0)
	if _, err := w.store().GetSKU(t.Context(), tenant, "cup"); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("made by a dry run: %v", err)
	}
	// Its key is still unused.
	if _, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader("sku,delta\nmug,1\n")); err != nil {
		t.Error(err)
	}
}

// many is a file of n rows, every tenth of them bad.
func many(n int) string {
	var text strings.Builder
	text.WriteString("sku,delta\n")
	for i := range n {
		delta := 1
		if i%10 == 9 {
			delta = -1_000
		}
		fmt.Fprintf(&text, "sku-%d,%d\n", i%700, delta)
	}
	return text.String()
}

func (w *warehouse) onHand() (units int64) {
	w.Helper()
	w.db.Scan(w, "SELECT coalesce(sum(on_hand), 0)::bigint FROM inventory.stock", nil, &units)
	return units
}

// TestImportOnceByItsKey sends a file whose connection is cut, then all of it, then again.
func TestImportOnceByItsKey(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	const rows = 2600
	text := many(rows)
	cut := errors.New("cut")
	part, err := w.importFrom(0, withKey("k"), "csv", io.MultiReader(strings.NewReader(text[:len(text)/2]), failing{cut}))
	if !errors.Is(err, cut) || part.Rows == 0 || part.Rows >= rows || part.NextLine != part.Rows+2 {
		t.Fatalf("cut: %+v, %v", part.Imported, err)
	}
	if got := w.onHand(); got != part.Applied {
		t.Errorf("%d on hand after a part that applied %d", got, part.Applied)
	}
	whole, err := w.importFrom(1, withKey("k"), "csv", strings.NewReader(text))
	if err != nil || whole.Rows != rows || whole.Failed != rows/10 || len(whole.results) != rows/10 {
		t.Fatalf("%+v, %v", whole.Imported, err)
	}
	if got := w.onHand(); got != rows*9/10 {
		t.Errorf("%d on hand, want %d", got, rows*9/10)
	}
	again, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader(text))
	if err != nil || again.Fresh != 0 {
		t.Errorf("again: %+v, %v", again.Imported, err)
	}
	if diff := cmp.Diff(whole.results, again.results); diff != "" || whole.ImportTotals != again.ImportTotals {
		t.Errorf("another answer: %s", diff)
	}
	for name, other := range map[string]string{
		"other":  "sku,delta\nmug,1\n",
		"less":   text[:strings.LastIndex(text[:len(text)-1], "\n")+1],
		"more":   text + "mug,1\n",
		"nearly": text[:len(text)-2] + "2\n",
	} {
		if _, err := w.importFrom(1, withKey("k"), "csv", strings.NewReader(other)); !errors.Is(err, idempotency.ErrReused) {
			t.Errorf("%s rows under the key: %v", name, err)
		}
	}
	if _, err := w.importFrom(1, withKey("k"), "ndjson", strings.NewReader(`{"sku": "mug", "delta": 1}`)); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("another format under the key: %v", err)
	}
	asked := withKey("k")
	asked.Key.Body[0] = 1
	if _, err := w.importFrom(1, asked, "csv", strings.NewReader(text)); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("with other parameters: %v", err)
	}
	if got := w.onHand(); got != rows*9/10 {
		t.Errorf("%d on hand in the end", got)
	}
}

// TestImportOfWholeBatchesIsOver refuses more rows under a key whose first rows were a whole file that
// ended where a batch does.
func TestImportOfWholeBatchesIsOver(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	text := many(250)
	if _, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader(text+"mug,1\n")); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("more: %v", err)
	}
	if again, err := w.importFrom(0, withKey("k"), "csv", strings.NewReader(text)); err != nil || again.Fresh != 0 {
		t.Errorf("the same: %+v, %v", again.Imported, err)
	}
}

// TestImportOneKeyAtOnce sends one file with one key several times at once.
func TestImportOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	const rows = 1400
	text := many(rows)
	won := w.race(6, func(i int, s *inventory.Store) error {
		csv, err := inventory.NewImportCSV(strings.NewReader(text))
		if err != nil {
			return err
		}
		d, err := runImport(t.Context(), s, withKey("k"), inventory.Import{Rows: csv})
		if err == nil && (d.Rows != rows || len(d.results) != rows/10) {
			t.Errorf("%+v", d.Imported)
		}
		return err
	})
	if got := w.onHand(); won != 6 || got != rows*9/10 {
		t.Errorf("%d answers, %d on hand, want %d", won, got, rows*9/10)
	}
}

func TestImportStops(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	stop := make(chan struct{})
	csv, err := inventory.NewImportCSV(strings.NewReader(many(1000)))
	if err != nil {
		t.Fatal(err)
	}
	done, err := w.store().Import(t.Context(), caller, inventory.Import{Rows: csv, Stop: stop}, func([]inventory.RowResult) error {
		close(stop)
		return nil
	})
	if !errors.Is(err, inventory.ErrImportStopped) || done.Rows != 250 || done.NextLine != 252 {
		t.Errorf("%+v, %v", done, err)
	}
}

// failing is a body whose connection breaks.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestImportsAtOnce has imports that make and change the same SKUs in opposite orders, while
// carts of them are sold: nobody is caught in a circle, and nothing is counted twice.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	const skus, rounds = 120, 8
	file := func(i int) string {
		var text strings.Builder
		text.WriteString("sku,delta\n")
		for n := range 600 {
			k := (n * 7) % skus
			if i%2 == 1 {
				k = skus - 1 - k
			}
			fmt.Fprintf(&text, "sku-%d,1\n", k)
		}
		return text.String()
	}
	w.race(rounds, func(i int, s *inventory.Store) error {
		if i%4 == 3 {
			for n := range 60 {
				// The SKUs are made meanwhile.
				_, _, err := s.Reserve(t.Context(), caller, cart(map[string]int64{fmt.Sprintf("sku-%d", n): 1, fmt.Sprintf("sku-%d", skus-1-n): 1}))
				if err != nil && !errors.Is(err, inventory.ErrSKUNotFound) && !errors.Is(err, inventory.ErrSoldOut) {
					return err
				}
			}
			return nil
		}
		csv, err := inventory.NewImportCSV(strings.NewReader(file(i)))
		if err != nil {
			return err
		}
		d, err := runImport(t.Context(), s, caller, inventory.Import{Rows: csv})
		if d.Failed > 0 {
			t.Errorf("%v", d.results)
		}
		return err
	})
	if got := w.onHand(); got != 6*600 {
		t.Errorf("%d on hand, want %d", got, 6*600)
	}
	w.wantNoDeadlock()
}

func (w *warehouse) wantNoDeadlock() {
	w.Helper()
	var deadlocks int
	w.db.Scan(w, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", nil, &deadlocks)
	if deadlocks > 0 {
		w.Errorf("%d deadlocks", deadlocks)
	}
}

// TestImportsMakeSKUsInOneOrder has two imports make the same SKUs, named in opposite orders, which both wait in
// their middle for somebody who is making one of them.
func TestImportsMakeSKUsInOneOrder(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	rival, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rival.Exec(t.Context(), "INSERT INTO inventory.skus (tenant, sku) VALUES ($1, 'sku-150')", tenant); err != nil {
		t.Fatal(err)
	}
	up, down := "sku,delta\n", "sku,delta\n"
	for i := range 100 {
		up += fmt.Sprintf("sku-%d,1\n", 100+i)
		down += fmt.Sprintf("sku-%d,1\n", 199-i)
	}
	done := make(chan error)
	for i, text := range []string{up, down} {
		go func() {
			_, err := w.importFrom(i, caller, "csv", strings.NewReader(text))
			done <- err
		}()
	}
	w.awaitLockWait(2)
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := w.onHand(); got != 200 {
		t.Errorf("%d on hand, want 200", got)
	}
	w.wantNoDeadlock()
}

// TestImportWaitsForItsStock decides on the stock as its rival leaves it.
func TestImportWaitsForItsStock(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	rival, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rival.Exec(t.Context(), "UPDATE inventory.stock SET held = 8 WHERE sku = 'mug'"); err != nil {
		t.Fatal(err)
	}
	done := make(chan imported)
	go func() { done <- w.csv("sku,counted\nmug,7\n") }()
	w.awaitLockWait(1)
	if err := rival.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.wantFailures(<-done, "2 below_held")
	w.db.Exec(w, "UPDATE inventory.stock SET held = 0 WHERE sku = 'mug'")
}
