package webhook_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A leaked goroutine here is a receiver that can hold on to the sender.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
