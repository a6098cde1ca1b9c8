package flows

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
)

// Dispatcher is that of the jobs of a type where nothing else is said. The worker is never asked in vain: a try that
// ends has its transaction asked about at once, so that the poll is the longest there may be, and has no deadline,
// since a job may wait for a runner for as long as it takes.
func Dispatcher(typ string) outbox.Dispatcher {
	d, none := outbox.DefaultDispatcher(), 0
	d.Type, d.WorkerURL, d.Idempotent, d.Slots = typ, flow.WorkerURL, true, 1000
	d.Retry.MaxRetries = &none // a job brings its own
	d.Retry.Initial, d.Retry.Cap = outbox.Duration(time.Second), outbox.Duration(time.Minute)
	d.Fee = outbox.Fee{Kind: "none", CapPercent: 100}
	d.Inclusion = outbox.Inclusion{PollEvery: outbox.Duration(24 * time.Hour),
		UnknownGrace: outbox.Duration(5 * time.Minute), Confirmations: 1}
	d.Unknown = outbox.UnknownUnresolved
	d.PostedBy = outbox.ByAdmin // it has scripts executed
	if typ != flow.TypeNeed {
		d.Schema = json.RawMessage(flow.Schema)
	}
	return d
}

// equip gives a context the dispatchers of the built-in script types. Settings that are there stay as they are; a type
// that somebody removed stays removed.
func equip(b *pgx.Batch, contextID int32) {
	types := make([]string, 0, len(flow.BuiltIn))
	settings := make([]string, 0, len(flow.BuiltIn))
	for _, name := range append([]string{"need"}, flow.BuiltIn...) {
		d := Dispatcher(flow.Type(name))
		text, _ := json.Marshal(d) // strings, numbers and a schema that is there
		types, settings = append(types, d.Type), append(settings, string(text))
	}
	b.Queue(`INSERT INTO postern.dispatcher (context_id, type, settings)
		SELECT $1, n.type, n.settings::jsonb
		FROM ROWS FROM (unnest($2::text[]), unnest($3::text[])) n(type, settings)
		ORDER BY n.type
		ON CONFLICT (context_id, type) DO NOTHING`, contextID, types, settings)
}
