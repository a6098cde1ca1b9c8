package work

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/pg/messages"
)

// Whatever a peer answers to a question about messages, its words that are kept are those of messages that it was asked
// about or was told to stop, in their order, and none of these is lost.
func FuzzFollowAnswer(f *testing.F) {
	asked, stopped, other := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	word := func(id uuid.UUID) string { return `{"message":"` + id.String() + `","id":"` + id.String() + `"}` }
	for _, s := range []string{`{}`, `null`, `[]`, `{"words":null}`, `{"words":[null]}`, `{"words":[{}]}`,
		`{"words":[` + word(asked) + `,` + word(other) + `,` + word(stopped) + `,` + word(asked) + `]}`,
		`{"words":[` + word(other) + `],"unknown":["` + other.String() + `"],"life":7}`, `{"words":[{"id":"x"}]}`,
		`{"words":[` + strings.ToUpper(word(asked)) + `]}`, `{"words":[{"id":"urn:uuid:` + asked.String() + `"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var said followAnswer
		if json.Unmarshal(text, &said) != nil {
			return
		}
		all := slices.Clone(said.Words)
		kept := ofThese(said.Words, []messages.Asked{{ID: asked}}, []uuid.UUID{stopped})
		for _, w := range all {
			if w.ID != asked && w.ID != stopped {
				continue
			}
			if len(kept) == 0 || kept[0].ID != w.ID {
				t.Fatalf("%s: the word of %s is lost", text, w.ID)
			}
			kept = kept[1:]
		}
		if len(kept) > 0 {
			t.Errorf("%s: the word of %s is kept", text, kept[0].ID)
		}
		if len(ofThese(all, nil, nil)) > 0 {
			t.Errorf("%s: a word is kept where nothing was asked", text)
		}
	})
}

// The message that a refusal is about has a place in what was sent, or none is named; a refusal is found again by the
// place that it names.
func FuzzWhichRefused(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"errors":[]}`, `{"errors":[{"pointer":"/messages/3/kind"}]}`,
		`{"errors":[{"pointer":"/messages/-1"}]}`, `{"errors":[{"pointer":"/x"},{"pointer":"/messages/0"}]}`,
		`{"errors":[{"pointer":"/messages/99999999999999999999"}]}`, `{"errors":{}}`, `{"errors":[null]}`,
		`{"errors":[{"pointer":7}]}`, `{"errors":[{"pointer":"/messages/1e3"}]}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, place int) {
		if n := whichRefused(body); n < -1 || n >= 0 && !strings.Contains(string(body), "errors") &&
			json.Valid(body) && !strings.ContainsAny(string(body), `\ſRrEeOoSs`) {
			t.Errorf("%q is about message %d", body, n)
		}
		if place < 0 {
			return
		}
		said, _ := json.Marshal(map[string]any{"errors": []any{map[string]any{
			"pointer": "/messages/" + strconv.Itoa(place), "detail": string(body)}}})
		if n := whichRefused(said); n != place {
			t.Errorf("%s is about message %d, not %d", said, n, place)
		}
	})
}
