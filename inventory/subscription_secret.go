package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/signing"
	"holdfast/webhook"
)

var signer = signing.Secrets{Schema: schemaName, New: func() string { return webhook.NewSecret().Reveal() }}

// SigningSecret gives what the tenant's deliveries are signed with; the first question makes the first secret.
func (s *Store) SigningSecret(ctx context.Context, tenant string) (signing.Pair, error) {
	return signer.Get(ctx, s.pool, tenant)
}

// RotateSecret makes a new secret. The one until now signs too for 24 h; one from before that ends.
func (s *Store) RotateSecret(ctx context.Context, c Caller) (signing.Pair, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (signing.Pair, error) {
		pair, err := signer.Rotate(ctx, tx, c.Tenant)
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		return pair, err
	})
}

// signingSecrets gives the secrets that sign a tenant's deliveries, the current one first.
func signingSecrets(ctx context.Context, db executor, tenant string) ([]webhook.Secret, error) {
	pair, err := signer.Get(ctx, db, tenant)
	if err != nil {
		return nil, err
	}
	texts := []string{pair.Secret}
	if pair.Previous != nil {
		texts = append(texts, pair.Previous.Secret)
	}
	secrets := make([]webhook.Secret, len(texts))
	for i, text := range texts {
		if secrets[i], err = webhook.ParseSecret(text); err != nil {
			return nil, fmt.Errorf("stored secret of tenant %s: %w", tenant, err)
		}
	}
	return secrets, nil
}
