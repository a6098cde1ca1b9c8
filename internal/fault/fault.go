// Package fault is how Postern says that something cannot be done. A fault has a kind from a closed
// set (what the caller can do about it), a stable code (what a program compares) and a sentence (what
// a person reads). internal/httpapi turns kinds and codes into statuses, in one table.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what a caller can do about a fault.
type Kind string

const (
	Invalid   Kind = "invalid"   // the request is wrong: change it
	NotFound  Kind = "not_found" // there is no such thing, or not for you
	Conflict  Kind = "conflict"  // right, but not in this state
	Forbidden Kind = "forbidden" // right, but not for you
	Retry     Kind = "retry"     // right, but not now: send it again
	Internal  Kind = "internal"  // our fault
)

// Field names one part of a request that is wrong.
type Field struct {
	Pointer string `json:"pointer"` // JSON pointer into the body, or the name of a parameter
	Code    string `json:"code,omitempty"`
	Detail  string `json:"detail"`
}

// Error is a fault. Detail names the field, the value (at most 64 characters) and what would be right.
type Error struct {
	Kind       Kind
	Code       string
	Detail     string
	Fields     []Field
	RetryAfter time.Duration  // kind Retry: when it may work, 0 if that is unknown
	Extra      map[string]any // further members of the problem document
	Err        error          // the cause, for logs; never shown to a client
}

// Error returns the sentence, with the cause behind it.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes a fault whose sentence is formatted like fmt.Sprintf.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// At makes an Invalid fault of code "invalid" about one field.
func At(pointer, format string, args ...any) *Error {
	detail := fmt.Sprintf(format, args...)
	return &Error{Kind: Invalid, Code: "invalid", Detail: detail, Fields: []Field{{Pointer: pointer, Detail: detail}}}
}

// With adds a member to the problem document and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[name] = value
	return e
}

// About names the field that a fault is about and returns e.
func (e *Error) About(pointer string) *Error {
	e.Fields = append(e.Fields, Field{Pointer: pointer, Code: e.Code, Detail: e.Detail})
	return e
}

// After says when a retry may work and returns e.
func (e *Error) After(d time.Duration) *Error { e.RetryAfter = d; return e }

// Because keeps the cause and returns e.
func (e *Error) Because(err error) *Error { e.Err = err; return e }

// As returns the fault in err, or an Internal one that wraps it, so that nothing leaks by accident.
// nil stays nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Code: "internal", Detail: "something went wrong on our side", Err: err}
}

// KindOf returns the kind of err, Internal for what is no fault and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return As(err).Kind
}

// CodeOf returns the code of err, "internal" for what is no fault and "" for nil.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	return As(err).Code
}

// Wrap puts an operation with its arguments in front of *err, if there is one. A fault stays one.
// Use it deferred, as the first line of a function.
func Wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// Clip shortens a value from outside for a sentence: at most 64 characters.
func Clip(s string) string {
	r := []rune(s)
	if len(r) <= 64 {
		return s
	}
	return string(r[:61]) + "..."
}
