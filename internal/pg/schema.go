package pg

import (
	"bytes"
	"context"
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

// unjudged asks run to hold submissions against the schemas that their types have by now, and to begin again: a check
// may take a second, so none is made while queues are locked.
type unjudged struct {
	s    *Store
	subs []*Submission
}

func (e *unjudged) Error() string { return "a schema has changed meanwhile" }

// Mend holds the data against the schemas as they are now.
func (e *unjudged) Mend(context.Context) error {
	for _, sub := range e.subs {
		if sub.judged {
			e.s.Judge(sub)
		}
	}
	return nil
}

// Elsewhere is true: it may take long.
func (e *unjudged) Elsewhere() bool { return true }

// Judge holds data against the schema of its type, as this process knows it. Where it does not fit, Ingest refuses it
// as Invalid schema_mismatch, with pointers into the transaction: unless it was accepted before, whatever the schema is
// by now.
func (s *Store) Judge(sub *Submission) {
	d := s.DispatcherOf(sub.ContextID, sub.Type)
	switch {
	case d == nil || d.Removed || len(d.Schema) == 0:
		sub.schema, sub.misfit = nil, nil
	case !bytes.Equal(sub.schema, d.Schema):
		sub.schema, sub.misfit = d.Schema, s.misfit(d, sub.Data)
	}
	sub.judged = true
}

// misfit says what in data does not fit the schema of a dispatcher: nil if all does.
func (s *Store) misfit(d *Dispatcher, data json.RawMessage) error {
	var err error
	known, _ := s.Conf.schemas.Load(d.ID)
	schema, ok := known.(*readSchema)
	if !ok || !bytes.Equal(schema.raw, d.Schema) {
		schema = &readSchema{raw: d.Schema}
		if schema.Schema, err = leader.StoredSchema("/schema", d.Schema); err != nil {
			return fault.New(fault.Invalid, "schema_mismatch", "the schema of type %s cannot be run: put another", d.Type).Because(err)
		}
		s.Conf.schemas.Store(d.ID, schema)
	}
	if err = schema.Check(data); err == nil {
		return nil
	}
	f := fault.New(fault.Invalid, "schema_mismatch", "data does not fit the schema of type %s: %s", d.Type, strings.TrimPrefix(err.Error(), "the document: "))
	var m *leader.Mismatch
	if errors.As(err, &m) {
		for _, field := range m.Fields {
			field.Pointer = "/data" + field.Pointer
			f.Fields = append(f.Fields, field)
		}
	}
	return f
}
