package pg

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrCommitUnknown means the connection was lost between sending COMMIT and
	// its answer: the transaction may or may not stand. Ask again with the same
	// idempotency key to learn which.
	ErrCommitUnknown = errors.New("commit outcome unknown")

	// ErrDeadline means the request's deadline had passed by the database's
	// clock, so nothing was done.
	ErrDeadline = errors.New("request deadline passed before it could be carried out")
)

// Unavailable reports whether err says that the database could not be reached
// or is refusing work for now, so that the same call may succeed later.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgerrcode.IsConnectionException(pgErr.Code) ||
			pgerrcode.IsOperatorIntervention(pgErr.Code) ||
			pgerrcode.IsInsufficientResources(pgErr.Code) ||
			pgErr.Code == pgerrcode.ReadOnlySQLTransaction || // an old primary that became a standby
			pgErr.Code == pgerrcode.IdleInTransactionSessionTimeout
	}
	var netErr net.Error
	return errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) ||
		pgconn.Timeout(err) ||
		// pgx says "conn closed" without a type when a pooled connection broke under a statement.
		err.Error() == "conn closed"
}

// Constraint returns the name of the constraint that err says was violated, or "".
func Constraint(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgerrcode.IsIntegrityConstraintViolation(pgErr.Code) {
		return pgErr.ConstraintName
	}
	return ""
}

// Code returns the SQLSTATE of err, or "".
func Code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// repeatable reports whether the whole transaction was rolled back for a reason
// that lies in its rivals, so that it may be run again.
func repeatable(err error) bool {
	code := Code(err)
	return code == pgerrcode.SerializationFailure || code == pgerrcode.DeadlockDetected
}
