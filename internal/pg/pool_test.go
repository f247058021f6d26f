package pg_test

import (
	"strings"
	"testing"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestOpenPoolSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, c := range map[string]struct{ url, want string }{
		"empty":      {"", "DATABASE_URL"},
		"scheme":     {"mysql://u:secret@127.0.0.1/x", "postgres://"},
		"unparsable": {"postgres://u:secret@127.0.0.1:port/x", "can't be parsed"},
		"nobody":     {"postgres://u:secret@127.0.0.1:1/x", "can't reach the database at 127.0.0.1:1"},
		"password":   {strings.Replace(db.URL, "tester:tester", "tester:secret", 1), "password authentication failed"},
		"database":   {strings.Replace(db.URL, "/test_", "/missing_", 1), "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pg.OpenPool(t.Context(), c.url, pg.PoolOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

func TestUnavailableKnowsALostDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.SetAllowConnections(t, false)
	_, err := db.Pool.Exec(t.Context(), "SELECT 1")
	for err == nil {
		_, err = db.Pool.Exec(t.Context(), "SELECT 1")
	}
	if !pg.Unavailable(err) {
		t.Errorf("%v isn't seen as unavailable", err)
	}
	db.SetAllowConnections(t, true)
	for range 20 { // as many broken connections as the pool may hold
		if _, err = db.Pool.Exec(t.Context(), "SELECT 1"); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("the pool doesn't come back: %v", err)
	}
	if _, err := db.Pool.Exec(t.Context(), "SELECT 1/0"); pg.Unavailable(err) {
		t.Error("a division by zero is seen as an unavailable database")
	}
}
