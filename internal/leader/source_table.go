package leader

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// SourceTable says which rows of a database are events: those of a table or view, in the order of a column.
type SourceTable struct {
	Name    string `json:"name" maxLength:"127" example:"shop.orders" doc:"A table or view, with its schema; public unless said."`
	Key     string `json:"key" maxLength:"63" example:"id" doc:"The column that names a row: what has a key that is known is no new event."`
	Cursor  string `json:"cursor" maxLength:"63" example:"id" doc:"The column that only grows, by which rows are read; key tells apart those that have the same."`
	Payload string `json:"payload,omitempty" maxLength:"63" example:"data" doc:"The column that is the event: json, jsonb, or text with JSON in it. Without it, the row as an object."`
	Settle  string `json:"settle,omitempty" example:"5s" doc:"A row is read when its cursor has been passed for so long: longer than a transaction takes that writes rows, since numbers do not become visible in their order. 5s unless said; 0s where rows become visible in the order of the cursor."`
}

// DefaultSettle is how long rows have to become visible.
const DefaultSettle = "5s"

var sqlName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// ours are schemas whose tables are no events: those of the database itself, and those in which the contexts of
// Postern are kept apart.
var ours = []string{"postern", "report", "river", "information_schema"}

// Readable says whether a schema may be read as events at all. No setting allows the others.
func Readable(schema string) bool {
	schema = strings.ToLower(schema)
	return sqlName.MatchString(schema) && !strings.HasPrefix(schema, "pg_") && !slices.Contains(ours, schema)
}

// AllowedBy refuses a table whose schema is not among those that the installation lets sources read. It is about the
// database in which Postern is, where a source reads what the role of the process may; of another, the role in the URL
// says what is read.
func (t SourceTable) AllowedBy(schemas []string) error {
	schema := t.Relation()[0]
	if slices.Contains(schemas, schema) {
		return nil
	}
	return fault.At("/table/name", "table.name %q: sources may not read the schema %s of this database: who runs Postern allows it with "+
		"--source-schemas %s (POSTERN_SOURCE_SCHEMAS)", fault.Clip(t.Name), schema, strings.Join(append(slices.Clone(schemas), schema), ","))
}

// Relation is the table's schema and its name in it.
func (t SourceTable) Relation() []string {
	schema, name, ok := strings.Cut(t.Name, ".")
	if !ok {
		return []string{"public", t.Name}
	}
	return []string{schema, name}
}

// SettleTime is Settle as a duration.
func (t SourceTable) SettleTime() time.Duration {
	d, _ := time.ParseDuration(t.Settle)
	return d
}

func (t SourceTable) validate() error {
	for _, part := range t.Relation() {
		if !sqlName.MatchString(part) {
			return fault.At("/table/name", "table.name %q: want a table or view, or schema.table, of letters, digits and _, at most 63 each", fault.Clip(t.Name))
		}
	}
	if schema := t.Relation()[0]; !Readable(schema) {
		return fault.At("/table/name", "table.name %q: the schema %s is not read as events", fault.Clip(t.Name), schema)
	}
	for field, column := range map[string]string{"key": t.Key, "cursor": t.Cursor, "payload": t.Payload} {
		if !sqlName.MatchString(column) && (field != "payload" || column != "") {
			return fault.At("/table/"+field, "table.%s %q: want the name of a column, of letters, digits and _, at most 63", field, fault.Clip(column))
		}
	}
	if d, err := time.ParseDuration(t.Settle); err != nil || d < 0 || d > time.Hour {
		return fault.At("/table/settle", "table.settle %q: want a duration of 0s to 1h", fault.Clip(t.Settle))
	}
	return nil
}

// checkDatabase refuses a URL that is no database's. Secrets are not stored (S2.7), so that it has no password; and
// of what a URL may ask of a driver only sslmode, since the rest has it read files.
func checkDatabase(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" || strings.Contains(u.Host, ",") ||
		u.User.Username() == "" || len(u.Path) < 2 || u.Fragment != "":
		return fault.At("/url", "url: want postgres://user@host:port/database, or none for the database in which Postern is")
	}
	if _, has := u.User.Password(); has {
		return fault.At("/url", "url: it has a password, which is not stored: leave it out, and give it to the nodes in their password file (PGPASSFILE)")
	}
	for name, values := range u.Query() {
		if name != "sslmode" || len(values) != 1 {
			return fault.At("/url", "url: parameter %q: only sslmode may be given", fault.Clip(name))
		}
	}
	return nil
}

// TableCursor is how far a table was read: after the row with At and Key. Seen is the highest value that the cursor
// column had at Since. Rows up to Seen are read once they have had the time to settle.
type TableCursor struct {
	At    *string    `json:"at,omitempty"`
	Key   *string    `json:"key,omitempty"`
	Seen  *string    `json:"seen,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// ReadTableCursor is what a cursor of a table says; nil is its start. *Trouble: it is none.
func ReadTableCursor(raw json.RawMessage) (c TableCursor, trouble *Trouble) {
	if notNull(raw) == nil {
		return c, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil || c.At == nil && c.Seen == nil || (c.Seen == nil) != (c.Since == nil) || c.Key != nil && c.At == nil {
		return c, &Trouble{Text: `the cursor ` + fault.Clip(string(raw)) + ` is none of a table: rewind to {"at": "...", "key": "..."}, or without a key to read on after all rows that have this value`}
	}
	return c, nil
}

// Row makes an event of a row: its key, its cursor column, and its payload of size bytes, "" for NULL or one that is
// too large.
func (s Source) Row(key *string, at, payload string, size int) Item {
	it := Item{JSON: json.RawMessage("null")}
	if len(at) <= maxIdentity {
		it.Checkpoint = at
	}
	if key == nil || *key == "" || len(*key) > maxIdentity {
		it.Identity = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(at+"\x00"+payload)))
		it.Undecoded = fmt.Sprintf("the key of its row is NULL, empty, or longer than %d bytes", maxIdentity)
		return it
	}
	it.Identity = *key
	switch {
	case size > MaxEvent:
		it.Undecoded = oversize(int64(size))
	case size == 0:
		it.Undecoded = "its payload is NULL or empty"
	case !json.Valid([]byte(payload)):
		it.Undecoded = "its payload is no JSON"
	default:
		return s.Item(it, json.RawMessage(payload))
	}
	return it
}
