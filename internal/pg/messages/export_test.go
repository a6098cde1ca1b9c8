package messages

import (
	"context"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
)

// Loaded is how many bytes of results are read to say what became of messages that a peer has brought, and how many of
// them are not here.
func (s *Store) Loaded(ctx context.Context, contextID int32, peer string, asked []Asked) (n, unknown int, err error) {
	list, gone, err := s.readWords(ctx, contextID, peer, asked)
	for _, w := range list {
		n += len(w.Result.Body) + len(w.Result.Result)
	}
	return n, len(gone), err
}

// CarryRead posts the transaction of a chat to a peer as a process does that read the message before it was delivered.
func (s *Store) CarryRead(ctx context.Context, contextID int32, id uuid.UUID, peer, actor string) (int, error) {
	return s.carry(ctx, []uncarried{{ID: id, Context: contextID, Peer: peer, Actor: actor, Type: message.Chat}},
		map[string]bool{})
}
