package worker

import (
	"errors"
	"fmt"
	"time"
)

// The classes of errors.
const (
	ClassBlocked   = "blocked"
	ClassAmbiguous = "ambiguous"
	ClassRejected  = "rejected"
	ClassRetry     = "retry"
)

// Error is what a handler returns to say what Postern shall make of it. Make one with Blocked, Ambiguous,
// Rejected or Retry.
type Error struct {
	Class   string     `json:"class"`
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Until   *time.Time `json:"until,omitempty"` // of a blocked one
	Scope   string     `json:"scope,omitempty"` // of a blocked one: what it blocks; "": its own queue
	After   string     `json:"after,omitempty"` // of a retry: a duration
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s): %s", e.Class, e.Code, e.Message) }

// Blocked says that nothing was done and nothing can be done now: the same attempt comes again, after until
// unless that is zero. Only for what surely did not happen.
//
// It is this queue that waits, and no other one. Where nothing of the sender, or of the worker, can go out, say so with
// BlockedSender or BlockedWorker: then the others are not tried in vain.
func Blocked(code, message string, until time.Time) error { return blocked("", code, message, until) }

// BlockedSender is Blocked for all that goes out through the sender of the call.
func BlockedSender(code, message string, until time.Time) error {
	return blocked("sender", code, message, until)
}

// BlockedWorker is Blocked for all that this worker is sent.
func BlockedWorker(code, message string, until time.Time) error {
	return blocked("worker", code, message, until)
}

func blocked(scope, code, message string, until time.Time) error {
	e := &Error{Class: ClassBlocked, Code: code, Message: message, Scope: scope}
	if !until.IsZero() {
		until = until.UTC()
		e.Until = &until
	}
	return e
}

// Ambiguous says that it may have been done. Postern asks /status by token; without Options.Status, or if
// that says Unknown, the same token comes again with Call.Again set.
func Ambiguous(code, message string) error {
	return &Error{Class: ClassAmbiguous, Code: code, Message: message}
}

// Rejected says that it can never be done: the transaction ends FAILED without a retry.
func Rejected(code, message string) error {
	return &Error{Class: ClassRejected, Code: code, Message: message}
}

// Retry says that this attempt failed and left nothing behind; the next one comes no sooner than after.
func Retry(code, message string, after time.Duration) error {
	e := &Error{Class: ClassRetry, Code: code, Message: message}
	if after > 0 {
		e.After = after.String()
	}
	return e
}

// asError makes an Error of an error that a handler returned. An error that is not of this package does not say how far
// the handler came: it is ambiguous.
func asError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Class: ClassAmbiguous, Code: "handler_failed", Message: err.Error()}
	}
	switch e.Class {
	case ClassBlocked, ClassAmbiguous, ClassRejected, ClassRetry:
		return e
	}
	return &Error{Class: ClassAmbiguous, Code: e.Code, Message: e.Message}
}
