package pg

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// readSchema is the schema of a dispatcher as it was read last, so that it is not read for each transaction.
type readSchema struct {
	raw []byte
	*leader.Schema
}

// Fits says what in data does not fit the schema of its type: nil if all does, or if there is no schema; else Invalid
// schema_mismatch, with pointers into the transaction.
func (s *Store) Fits(contextID int32, typ string, data json.RawMessage) error {
	d := s.DispatcherOf(contextID, typ)
	if d == nil || d.Removed || len(d.Schema) == 0 {
		return nil
	}
	var err error
	known, _ := s.conf.schemas.Load(d.ID)
	schema, ok := known.(*readSchema)
	if !ok || !bytes.Equal(schema.raw, d.Schema) {
		schema = &readSchema{raw: d.Schema}
		if schema.Schema, err = leader.StoredSchema("/schema", d.Schema); err != nil {
			return fault.New(fault.Invalid, "schema_mismatch", "the schema of type %s cannot be run: put another", typ).Because(err)
		}
		s.conf.schemas.Store(d.ID, schema)
	}
	if err = schema.Check(data); err == nil {
		return nil
	}
	f := fault.New(fault.Invalid, "schema_mismatch", "data does not fit the schema of type %s: %s", typ, strings.TrimPrefix(err.Error(), "the document: "))
	var m *leader.Mismatch
	if errors.As(err, &m) {
		for _, field := range m.Fields {
			field.Pointer = "/data" + field.Pointer
			f.Fields = append(f.Fields, field)
		}
	}
	return f
}
