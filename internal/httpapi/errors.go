package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgerrcode"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// Rule says how clients are told of one kind of error. The first rule of a service
// whose Err matches with errors.Is decides.
type Rule struct {
	Err    error
	Status int
	Code   string
	// Tell may set the problem's Detail (until then the text of Err), Errors and Members
	// from the facts in err, whose own text is for operators. Optional.
	Tell func(err error, p *Problem)
}

// TellAll is a [Rule.Tell] for errors whose whole text was written for clients.
func TellAll(err error, p *Problem) { p.Detail = err.Error() }

// Clients are asked to come back after so long.
const (
	retryDatabase = 2 * time.Second
	retryOverload = time.Second
)

// kernelRules stand behind every service's own.
var kernelRules = []Rule{
	{Err: idempotency.ErrReused, Status: http.StatusUnprocessableEntity, Code: CodeReusedIdemKey},
	// Before ErrDeadline and Unavailable: an unknown commit wraps what broke the connection.
	{Err: pg.ErrCommitUnknown, Status: http.StatusServiceUnavailable, Code: CodeCommitUnknown, Tell: func(_ error, p *Problem) {
		p.Detail = "The connection to the database was lost while this was being committed, so it may or may not have been carried out. " +
			"Ask again with the same Idempotency-Key: that gives the final word, and carries it out at most once."
		p.RetryAfter = retryDatabase
	}},
	{Err: pg.ErrDeadline, Status: http.StatusServiceUnavailable, Code: CodeRequestTimeout, Tell: func(_ error, p *Problem) {
		p.Detail = "The request could not be carried out within its time, so nothing was done. Ask again."
		p.RetryAfter = retryOverload
	}},
}

// problemOf turns what a handler returned into what the client is told. An error that
// nobody has foreseen is logged, and the client learns only that there was one.
func (a *API) problemOf(ctx context.Context, err error) *Problem {
	var told *Problem
	if errors.As(err, &told) {
		return told
	}
	for _, rules := range [][]Rule{a.cfg.Errors, kernelRules} {
		for _, rule := range rules {
			if errors.Is(err, rule.Err) {
				p := &Problem{Status: rule.Status, Code: rule.Code, Detail: rule.Err.Error()}
				if rule.Tell != nil {
					rule.Tell(err, p)
				}
				if p.Status >= http.StatusInternalServerError {
					a.logFailure(ctx, slog.LevelWarn, p.Code, err)
				}
				return p
			}
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// It waited for its turn, for a lock or a connection, until its time was over.
		return a.problemOf(context.WithoutCancel(ctx), fmt.Errorf("%w: %w", pg.ErrDeadline, err))
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		// The client is gone, or the drain's time is over: hardly anyone reads this.
		return &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeRequestTimeout, RetryAfter: retryOverload,
			Detail: "The request was cut short. Ask again with the same Idempotency-Key to learn whether it was carried out.",
		}
	case pg.Unavailable(err):
		a.logFailure(ctx, slog.LevelWarn, CodeUnavailable, err)
		return &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeUnavailable, RetryAfter: retryDatabase,
			Detail: "The database can't be reached at the moment. Ask again, with the same Idempotency-Key if there was one.",
		}
	case contended(err):
		a.logFailure(ctx, slog.LevelWarn, CodeOverloaded, err)
		return &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeOverloaded, RetryAfter: retryOverload,
			Detail: "Too many requests change the same thing at once; nothing was done. Ask again.",
		}
	}
	a.logFailure(ctx, slog.LevelError, CodeInternal, err)
	return internalProblem(ctx)
}

// contended reports whether err is the database's refusal of a transaction whose rivals
// kept winning.
func contended(err error) bool {
	switch pg.Code(err) {
	case pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.LockNotAvailable:
		return true
	}
	return errors.Is(err, pg.ErrRepeat)
}

func internalProblem(ctx context.Context) *Problem {
	return &Problem{
		Status: http.StatusInternalServerError, Code: CodeInternal,
		Detail: fmt.Sprintf("Something went wrong here. The operator finds it in the log as request %s.", RequestID(ctx)),
	}
}

func (a *API) logFailure(ctx context.Context, level slog.Level, code string, err error) {
	a.log.LogAttrs(ctx, level, "request failed",
		slog.String("request_id", RequestID(ctx)), slog.String("code", code), slog.Any("error", err))
}
