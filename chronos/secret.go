package chronos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/signing"
	"holdfast/webhook"
)

var signer = signing.Secrets{Schema: schemaName, New: func() string { return webhook.NewSecret().Reveal() }}

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
	return signer.Ensure(ctx, tx, tenant)
}

// SigningSecret gives the tenant's secrets; the first question makes the first secret.
func (s *Store) SigningSecret(ctx context.Context, tenant string) (SigningSecret, error) {
	pair, err := signer.Get(ctx, s.pool, tenant)
	if err != nil {
		return SigningSecret{}, err
	}
	return parseSecrets(tenant, pair)
}

func parseSecrets(tenant string, pair signing.Pair) (out SigningSecret, err error) {
	if out.Secret, err = webhook.ParseSecret(pair.Secret); err == nil && pair.Previous != nil {
		out.Previous = &PreviousSecret{ValidUntil: pair.Previous.ValidUntil}
		out.Previous.Secret, err = webhook.ParseSecret(pair.Previous.Secret)
	}
	if err != nil {
		return out, fmt.Errorf("stored secret of tenant %s: %w", tenant, err)
	}
	return out, nil
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
		pair, err := signer.Rotate(ctx, tx, c.Tenant)
		if err != nil {
			return RotatedSecret{}, err
		}
		return RotatedSecret{pair.Secret, pair.Previous.Secret, pair.Previous.ValidUntil}, nil
	})
}

// signingSecrets gives, for tenants that deliver, the secrets that sign, the current one first.
func signingSecrets(ctx context.Context, tx pgx.Tx, tenants []string) (map[string][]webhook.Secret, error) {
	sign := make(map[string][]webhook.Secret, len(tenants))
	for _, tenant := range tenants {
		if _, done := sign[tenant]; done {
			continue
		}
		pair, err := signer.Get(ctx, tx, tenant)
		if err != nil {
			return nil, err
		}
		found, err := parseSecrets(tenant, pair)
		if err != nil {
			return nil, err
		}
		sign[tenant] = []webhook.Secret{found.Secret}
		if found.Previous != nil {
			sign[tenant] = append(sign[tenant], found.Previous.Secret)
		}
	}
	return sign, nil
}
