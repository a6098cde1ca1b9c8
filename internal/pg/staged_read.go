package pg

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// stagedRow is a staged submission and the number that orders it. uid and queue are those of the row, which differ from
// those of the submission where the row cannot be read.
type stagedRow struct {
	number     int64
	uid, queue string
	sub        *Submission
}

// stagedSelect reads staged rows as scanStaged wants them: what a row may hold past its trigger is read as text of
// JSON.
const stagedSelect = `SELECT o.stage_id, o.context_id, o.uid, coalesce(o.queue, ''), o.type, o.data, o.max_retries,
	o.not_before, o.tags, to_jsonb(o.depends_on), o.callback, o.actor FROM postern.outbox o `

// scanStaged reads one row. The trigger of the table has judged it, unless a superuser went past that: then a
// submission that nothing can be made of is marked as unread, without what cannot be kept of it, and ends FAILED. So
// no row stops a drain.
func scanStaged(r pgx.Rows) (row stagedRow, err error) {
	var notBefore pgtype.Timestamptz
	var dependsOn, callback []byte
	sub := &Submission{}
	err = r.Scan(&row.number, &sub.ContextID, &row.uid, &row.queue, &sub.Type, (*[]byte)(&sub.Data), &sub.MaxRetries,
		&notBefore, (*[]byte)(&sub.Tags), &dependsOn, &callback, &sub.Actor)
	if err != nil {
		return row, err
	}
	row.sub, sub.UID, sub.Queue = sub, row.uid, row.queue
	sub.readNames()
	sub.readTime(notBefore)
	sub.readLists(dependsOn, callback)
	if sub.Hash = []byte{0}; sub.unread == nil {
		sub.Hash = sub.Fingerprint()
	}
	return row, nil
}

// cannot marks a submission as unread, because of the field at pointer.
func (sub *Submission) cannot(pointer, want string) {
	if sub.unread == nil {
		sub.unread = fault.At(pointer, "%s was staged past the checks of postern.outbox: want %s", pointer[1:], want)
	}
}

// nameIs is what a name is made of.
const nameIs = "A-Z a-z 0-9 . _ : @ -, the first a letter or digit"

// wellNamed says whether the API takes a name: up to most characters, letters, digits and . _ : @ - alone.
func wellNamed(name string, most int) bool {
	if name == "" || len(name) > most {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '@' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// A name has at most so many characters, a uid as many.
const mostName, mostUID = 200, 255

func (sub *Submission) readNames() {
	if !wellNamed(sub.Type, mostName) {
		sub.cannot("/type", "1 to 200 of "+nameIs)
		sub.Type = fault.Clip(sub.Type)
	}
	if sub.Queue != "" && !wellNamed(sub.Queue, mostName) {
		sub.cannot("/queue", "1 to 200 of "+nameIs)
		sub.Queue = ""
	}
	if !wellNamed(sub.UID, mostUID) {
		sub.cannot("/uid", "1 to 255 of "+nameIs)
		sub.UID = ""
	}
	if sub.MaxRetries != nil && *sub.MaxRetries < 0 {
		sub.cannot("/max_retries", "a number >= 0")
		sub.MaxRetries = nil
	}
}

func (sub *Submission) readTime(at pgtype.Timestamptz) {
	switch {
	case !at.Valid:
	case at.InfinityModifier != pgtype.Finite, at.Time.UTC().Year() < 1970, at.Time.UTC().Year() > 9999:
		sub.cannot("/not_before", "a time from 1970 to 9999")
	default:
		sub.NotBefore = at.Time
	}
}

func (sub *Submission) readLists(dependsOn, callback []byte) {
	if !json.Valid(sub.Data) { // of jsonb, it is too deep for our reader
		sub.cannot("/data", "JSON of at most 64 levels")
		sub.Data = json.RawMessage("{}")
	}
	var tags map[string]string
	if len(sub.Tags) > 0 && (json.Unmarshal(sub.Tags, &tags) != nil || tags == nil) {
		sub.cannot("/tags", "an object of strings")
		sub.Tags = nil
	}
	if len(dependsOn) > 0 {
		err := json.Unmarshal(dependsOn, &sub.DependsOn)
		for _, name := range sub.DependsOn {
			if err != nil || !wellNamed(name, mostUID) {
				sub.cannot("/depends_on", "ids or uids")
			}
		}
		if err != nil || sub.unread != nil {
			sub.cannot("/depends_on", "a list of ids or uids")
			sub.DependsOn = nil
		}
	}
	if len(callback) > 0 {
		c := &outbox.Callback{}
		if err := json.Unmarshal(callback, c); err != nil || c.URL == "" {
			sub.cannot("/callback", "an object with a url")
		} else {
			sub.Callback = c
		}
	}
}
