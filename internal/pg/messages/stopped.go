package messages

import (
	"context"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
)

// WordsOfStopped says of messages that a peer has had stopped how their receivers had answered here before: processed,
// with a result or without, or rejected. The peer asks about none of them any more, and keeps that as late. done lists
// those that have no more to be told: the peer has the others stopped again, since one answer does not have the room,
// which is that of Words.
func (s *Store) WordsOfStopped(ctx context.Context, contextID int32, peer string, ids []uuid.UUID, room int) (
	words []Word, done []uuid.UUID, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	room = roomOf(room)
	asked := make([]Asked, len(ids))
	for i, id := range ids {
		asked[i] = Asked{ID: id, Steps: -1}
	}
	told, done, err := s.readWords(ctx, contextID, peer, asked)
	if err != nil {
		return nil, nil, err
	}
	size := 0
	for _, w := range told {
		if message.Status(w.Status) == message.Processed || w.Code == message.CodeRejected {
			w.fit(room)
			if size += w.size(); size > room && len(words) > 0 {
				break
			}
			words = append(words, w.Word)
		}
		done = append(done, w.ID)
	}
	return words, done, nil
}
