package idempotency_test

import (
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var schema = pg.Schema{Name: "shop", Sources: []pg.Source{idempotency.Migrations()}}

type receipt struct {
	Number int `json:"number"`
}

// sale is a change to make once: it counts how often it was made.
type sale struct {
	*pgtest.DB
}

func newSale(t *testing.T) sale {
	db := pgtest.New(t, schema)
	db.Exec(t, "CREATE TABLE shop.sales (n int)")
	return sale{db}
}

func (s sale) sell(t *testing.T, key idempotency.Key, fail error) (r receipt, replayed bool, err error) {
	err = pg.InTx(t.Context(), s.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		var err error
		r, replayed, err = idempotency.Once(t.Context(), tx, schema.Name, key, func() (receipt, error) {
			if _, err := tx.Exec(t.Context(), "INSERT INTO shop.sales VALUES (1)"); err != nil {
				return receipt{}, err
			}
			var n int
			err := tx.QueryRow(t.Context(), "SELECT count(*) FROM shop.sales").Scan(&n)
			return receipt{n}, errors.Join(fail, err)
		})
		return err
	})
	return r, replayed, err
}

func (s sale) sales(t *testing.T) (n int) {
	s.Scan(t, "SELECT count(*) FROM shop.sales", nil, &n)
	return n
}

func key(value, body string) idempotency.Key {
	return idempotency.Key{Tenant: "acme", Path: "/v1/sales", Value: value, Body: sha256.Sum256([]byte(body))}
}

func TestTheSameKeyGivesTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	first, replayed, err := s.sell(t, key("k", "body"), nil)
	if err != nil || replayed {
		t.Fatalf("replayed=%t, %v", replayed, err)
	}
	if _, _, err := s.sell(t, key("other", "body"), nil); err != nil {
		t.Fatal(err)
	}
	again, replayed, err := s.sell(t, key("k", "body"), nil)
	if err != nil || !replayed || again != first {
		t.Errorf("again: %+v, replayed=%t, %v; want %+v", again, replayed, err, first)
	}
	if n := s.sales(t); n != 2 {
		t.Errorf("%d sales, want 2", n)
	}
}

func TestAKeyBelongsToTenantPathAndBody(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	k := key("k", "body")
	if _, _, err := s.sell(t, k, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.sell(t, key("k", "another"), nil); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("another body: %v, want ErrReused", err)
	}
	otherTenant, otherPath := k, k
	otherTenant.Tenant, otherPath.Path = "globex", "/v1/returns"
	for _, other := range []idempotency.Key{otherTenant, otherPath} {
		if _, replayed, err := s.sell(t, other, nil); err != nil || replayed {
			t.Errorf("%+v: replayed=%t, %v", other, replayed, err)
		}
	}
	if n := s.sales(t); n != 3 {
		t.Errorf("%d sales, want 3", n)
	}
}

func TestARefusalIsNotStored(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	refused := errors.New("sold out")
	if _, _, err := s.sell(t, key("k", "body"), refused); !errors.Is(err, refused) {
		t.Fatalf("error is %v", err)
	}
	if _, replayed, err := s.sell(t, key("k", "body"), nil); err != nil || replayed {
		t.Errorf("after a refusal: replayed=%t, %v", replayed, err)
	}
	if n := s.sales(t); n != 1 {
		t.Errorf("%d sales, want 1", n)
	}
}

func TestOfParallelRequestsOneActs(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	type result struct {
		receipt
		replayed bool
		err      error
	}
	results := make(chan result)
	const rivals = 10
	for range rivals {
		go func() {
			r, replayed, err := s.sell(t, key("k", "body"), nil)
			results <- result{r, replayed, err}
		}()
	}
	acted := 0
	for range rivals {
		r := <-results
		if r.err != nil || r.Number != 1 {
			t.Errorf("%+v, want receipt 1", r)
		}
		if !r.replayed {
			acted++
		}
	}
	if n := s.sales(t); acted != 1 || n != 1 {
		t.Errorf("%d acted, %d sales; want 1 and 1", acted, n)
	}
}

func TestKeysAreClearedAfterADay(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	for _, k := range []string{"old", "young"} {
		if _, _, err := s.sell(t, key(k, ""), nil); err != nil {
			t.Fatal(err)
		}
	}
	old := key("old", "")
	s.Exec(t, `UPDATE shop.idempotency_keys SET day = day - CASE id WHEN $1 THEN 2 ELSE 1 END`, uuid.UUID(old.ID()))
	if err := idempotency.Clear(t.Context(), s.Pool, schema.Name); err != nil {
		t.Fatal(err)
	}
	var days int
	s.Scan(t, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'shop.idempotency_keys'::regclass`, nil, &days)
	if days != 5 { // yesterday, today, and three to come
		t.Errorf("%d days are left, want 5", days)
	}
	_, replayed, err := s.sell(t, key("young", ""), nil)
	if err != nil || !replayed {
		t.Errorf("a key of yesterday: replayed=%t, %v", replayed, err)
	}
	_, replayed, err = s.sell(t, key("old", ""), nil)
	if err != nil || replayed {
		t.Errorf("a key of the day before: replayed=%t, %v", replayed, err)
	}
}
