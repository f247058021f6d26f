package chronos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
	"holdfast/webhook"
)

// previousFor is how long a secret goes on signing after it was replaced.
const previousFor = 24 * time.Hour

// SigningSecret is what a tenant's deliveries are signed with.
type SigningSecret struct {
	Secret   webhook.Secret
	Previous *PreviousSecret // signs too; nil: none
}

// PreviousSecret is a replaced secret that still signs.
type PreviousSecret struct {
	Secret     webhook.Secret
	ValidUntil time.Time
}

// ensureSecret makes the tenant's first secret.
func ensureSecret(ctx context.Context, tx pgx.Tx, tenant string) error {
	_, err := tx.Exec(ctx, `INSERT INTO chronos.signing_secrets (tenant, secret) VALUES ($1, $2)
		ON CONFLICT (tenant) WHERE valid_until IS NULL DO NOTHING`, tenant, webhook.NewSecret().Reveal())
	return err
}

// SigningSecret gives the tenant's secrets; the first question makes the first secret.
func (s *Store) SigningSecret(ctx context.Context, tenant string) (SigningSecret, error) {
	var out SigningSecret
	err := pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		if err := ensureSecret(ctx, tx, tenant); err != nil {
			return err
		}
		var err error
		out, err = readSecret(ctx, tx, tenant)
		return err
	})
	return out, err
}

func readSecret(ctx context.Context, tx pgx.Tx, tenant string) (SigningSecret, error) {
	var out SigningSecret
	rows, err := tx.Query(ctx, `SELECT secret, valid_until FROM chronos.signing_secrets
		WHERE tenant = $1 AND (valid_until IS NULL OR valid_until > clock_timestamp())`, tenant)
	if err != nil {
		return out, err
	}
	var (
		text  string
		until *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&text, &until}, func() error {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return fmt.Errorf("stored secret of tenant %s: %w", tenant, err)
		}
		if until == nil {
			out.Secret = secret
		} else {
			out.Previous = &PreviousSecret{secret, *until}
		}
		return nil
	})
	return out, err
}

// RotatedSecret is the stored answer to a rotation: it carries the secret's text, since it
// must survive being stored for the idempotency key.
type RotatedSecret struct {
	Secret     string
	Previous   string
	ValidUntil time.Time
}

// RotateSecret makes a new secret. The one until now signs too for 24 h; one from before that ends.
func (s *Store) RotateSecret(ctx context.Context, c Caller) (RotatedSecret, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (RotatedSecret, error) {
		out := RotatedSecret{Secret: webhook.NewSecret().Reveal()}
		if err := ensureSecret(ctx, tx, c.Tenant); err != nil {
			return out, err
		}
		// Rivals wait here for each other, so that each sees the one before it as current.
		if _, err := tx.Exec(ctx, `SELECT 1 FROM chronos.signing_secrets WHERE tenant = $1 FOR UPDATE`, c.Tenant); err != nil {
			return out, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM chronos.signing_secrets WHERE tenant = $1 AND valid_until IS NOT NULL`, c.Tenant); err != nil {
			return out, err
		}
		err := tx.QueryRow(ctx, `UPDATE chronos.signing_secrets SET valid_until = clock_timestamp() + make_interval(secs => $2)
			WHERE tenant = $1 AND valid_until IS NULL RETURNING secret, valid_until`, c.Tenant, previousFor.Seconds()).Scan(&out.Previous, &out.ValidUntil)
		if err != nil {
			return out, noRows(err, pg.ErrRepeat)
		}
		_, err = tx.Exec(ctx, `INSERT INTO chronos.signing_secrets (tenant, secret) VALUES ($1, $2)`, c.Tenant, out.Secret)
		return out, err
	})
}

// signingSecrets gives, for tenants that deliver, the secrets that sign, the current one first.
func signingSecrets(ctx context.Context, tx pgx.Tx, tenants []string) (map[string][]webhook.Secret, error) {
	secrets := make(map[string][]webhook.Secret, len(tenants))
	for _, tenant := range tenants {
		if _, done := secrets[tenant]; done {
			continue
		}
		found, err := readSecret(ctx, tx, tenant)
		if err == nil && found.Secret.IsZero() {
			if err = ensureSecret(ctx, tx, tenant); err == nil {
				found, err = readSecret(ctx, tx, tenant)
			}
		}
		if err != nil {
			return nil, err
		}
		secrets[tenant] = []webhook.Secret{found.Secret}
		if found.Previous != nil {
			secrets[tenant] = append(secrets[tenant], found.Previous.Secret)
		}
	}
	return secrets, nil
}
