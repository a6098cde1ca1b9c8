package pg

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Fingerprint is what makes two submissions of one uid the same, through whichever door they came: SHA-256
// over the fields that define a transaction, with sorted keys, without white space, and with numbers by
// their value (the door of SQL keeps no other). The uid is the key itself and not part of it.
func (sub *Submission) Fingerprint() []byte {
	fields := map[string]any{"type": sub.Type, "data": outbox.Canonical(sub.Data)}
	if sub.Queue != "" {
		fields["queue"] = sub.Queue
	}
	if !sub.NotBefore.IsZero() {
		fields["not_before"] = sub.NotBefore.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	}
	if sub.MaxRetries != nil {
		fields["max_retries"] = *sub.MaxRetries
	}
	if tags, ok := outbox.Canonical(sub.Tags).(map[string]any); ok && len(tags) > 0 {
		fields["tags"] = tags
	}
	if sub.Sender != "" {
		fields["sender"] = sub.Sender
	}
	if len(sub.DependsOn) > 0 {
		fields["depends_on"] = sub.DependsOn
	}
	if sub.Insertion != nil {
		fields["place"] = sub.Insertion.key()
	}
	if sub.Callback != nil {
		fields["callback"] = sub.Callback
	}
	b, err := json.Marshal(fields) // maps are written with sorted keys
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
