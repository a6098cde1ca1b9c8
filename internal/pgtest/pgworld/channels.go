package pgworld

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/stores"
)

func Received(t *testing.T, c *channels.Conduit[Note], by pg.Node, max int) []channels.Held[Note] {
	t.Helper()
	list, err := c.Receive(t.Context(), by, max)
	OK(t, err)
	return list
}

func Sent(t *testing.T, c *channels.Conduit[Note], ids ...string) string {
	t.Helper()
	var list []channels.Outgoing[Note]
	for i, id := range ids {
		list = append(list, channels.Outgoing[Note]{ID: id, Payload: Note{i}})
	}
	out, err := c.Send(t.Context(), list...)
	OK(t, err)
	return fmt.Sprint(out)
}

// Note is what the channels of these tests carry.
type Note struct {
	N int `json:"n"`
}

// Conduit makes a channel, and opens it in a store.
func (w *World) Conduit(s *stores.Store, change func(*channels.ChannelSettings)) *channels.Conduit[Note] {
	w.T.Helper()
	c := channels.DefaultChannel()
	c.Name = "c"
	if change != nil {
		change(&c)
	}
	_, err := w.S.Channels.PutChannel(w.Ctx, w.By, c, 0)
	w.Must(err)
	return w.Opened(s)
}

func (w *World) Opened(s *stores.Store) *channels.Conduit[Note] {
	w.T.Helper()
	c, err := channels.OpenConduit[Note](w.Ctx, s.Channels, w.ID, "c")
	w.Must(err)
	return c
}

// Lies shows the messages that have not ended, by id.
func (w *World) Lies() string {
	w.T.Helper()
	rows, err := w.S.Pool().Query(w.Ctx,
		`SELECT message_id || ' ' || state || ' ' || retries FROM postern.channel_message ORDER BY message_id`)
	w.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	return strings.Join(list, ", ")
}
