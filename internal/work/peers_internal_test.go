package work

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	letter "github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
)

// Where a message that a peer has lost cannot be posted again, the next question is about the first page once more: the
// later messages of its sender go out behind it.
func TestALostMessageKeepsThoseBehindIt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pg.Connect(ctx, pgtest.New(t).URL, 4)
	must(err)
	t.Cleanup(pool.Close)
	s, err := stores.Open(ctx, pool, slog.New(slog.DiscardHandler))
	must(err)
	s.Messages.Open = true
	by := db.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	_, err = s.Installations.PutPeer(ctx, by, peers.Settings{Name: "far", Secret: make([]byte, 32),
		URL: "https://far.example/contexts/c/peers/near"}, 0)
	must(err)
	m, err := s.Messages.Post(ctx, by, messages.Posted{Spec: letter.Spec{
		To: letter.To{Peer: "far", Context: "c"}, Type: letter.Chat, Format: "text", Body: "x"}})
	must(err)
	_, err = s.Messages.Route(ctx)
	must(err)
	must(s.Messages.AtPeer(ctx, m.ID, nil))
	_, err = pool.Exec(ctx, `INSERT INTO postern.message
		SELECT (jsonb_populate_record(m, jsonb_build_object('message_id', gen_random_uuid()))).*
		FROM postern.message m, generate_series(1, $1)`, messages.MaxAsked)
	must(err)

	e := New(Config{Store: s, NodeName: "n", TTL: time.Hour, Log: slog.New(slog.DiscardHandler)})
	var unknown []uuid.UUID
	p := NewPeers(e, PeersConfig{Call: func(context.Context, remote.PeerCall) (a remote.PeerAnswer) {
		a.Body, _ = json.Marshal(map[string]any{"unknown": unknown})
		return a
	}})
	f := messages.Following{Context: by.Context, Peer: "far"}
	n, last, err := p.followOnce(ctx, f, uuid.UUID{}, 0)
	if err != nil || n != messages.MaxAsked || last == (uuid.UUID{}) {
		t.Errorf("%d were asked about, up to %s: %v", n, last, err)
	}
	unknown = []uuid.UUID{m.ID}
	_, err = pool.Exec(ctx, `ALTER TABLE postern.message ADD CONSTRAINT none_again CHECK (redelivered = 0)`)
	must(err)
	if n, last, err = p.followOnce(ctx, f, uuid.UUID{}, 0); err == nil || last != (uuid.UUID{}) {
		t.Errorf("%d were asked about, and the next question is about those behind %s: %v", n, last, err)
	}
}

// What a peer says of messages that it was not asked about is not taken.
func TestAPeerIsHeardOfWhatItWasAsked(t *testing.T) {
	t.Parallel()
	asked, stop := uuid.New(), uuid.New()
	words := []messages.Word{{ID: uuid.New()}, {ID: asked}, {ID: uuid.New()}, {ID: stop}}
	got := ofThese(words, []messages.Asked{{ID: asked}}, []uuid.UUID{stop})
	if len(got) != 2 || got[0].ID != asked || got[1].ID != stop {
		t.Errorf("%v", got)
	}
}
