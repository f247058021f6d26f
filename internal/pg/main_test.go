package pg_test

import (
	"testing"

	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
