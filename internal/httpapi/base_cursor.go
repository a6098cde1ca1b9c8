package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/internal/fault"
)

// Paging is what every list takes.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Order  string `query:"order" enum:"asc,desc" default:"desc"`
	Cursor string `query:"cursor" doc:"next of the page before, with the same filters."`
}

// limit is how many items the page may have.
func (p *Paging) limit(a *API) (int, error) {
	if p.Limit == 0 {
		p.Limit = 50
	}
	if p.Limit < 1 || p.Limit > a.Limits.Page {
		return 0, fault.At("limit", "limit %d: want 1 to %d", p.Limit, a.Limits.Page)
	}
	return p.Limit, nil
}

// sealed is a cursor before it is encoded: the hash of the filters that it was made with, and the key at which the next
// page begins.
type sealed struct {
	Of string          `json:"of"`
	At json.RawMessage `json:"at"`
}

// read opens the cursor, if there is one; one of other filters is refused.
func (p *Paging) read(filters []any, into any) error {
	if p.Cursor == "" {
		return nil
	}
	var c sealed
	b, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.Of != seal(filters) || json.Unmarshal(c.At, into) != nil {
		return badCursor(p.Cursor)
	}
	return nil
}

func badCursor(cursor string) error {
	return fault.New(fault.Invalid, "bad_cursor",
		"cursor %q is none of ours, or was made with other filters: begin without one", fault.Clip(cursor))
}

// next makes the cursor of the next page, and its Link.
func (p *Paging) next(ctx context.Context, filters []any, at any) (*string, string) {
	raw, err := json.Marshal(at)
	if err != nil {
		return nil, ""
	}
	b, err := json.Marshal(sealed{seal(filters), raw})
	if err != nil {
		return nil, ""
	}
	s := base64.RawURLEncoding.EncodeToString(b)
	query := scopeOf(ctx).query
	query.Set("cursor", s)
	return &s, fmt.Sprintf(`<?%s>; rel="next"`, query.Encode())
}

func seal(filters []any) string {
	b, _ := json.Marshal(filters)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}
