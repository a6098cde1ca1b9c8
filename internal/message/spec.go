package message

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// Types of messages. A result is made by a reply, or of the ends of jobs.
const (
	Job    = "job"
	Chat   = "chat"
	Mail   = "mail"
	Result = "result"
)

// Types lists them all.
var Types = []string{Job, Chat, Mail, Result}

// Formats are those of the text of a message. It is data, and is shown as it is in all of them.
var Formats = []string{"html", "text", "md", "logs"}

// DefaultFormat is that of a message that names none.
const DefaultFormat = "text"

// Limits of what somebody writes of a message.
const (
	MaxBody    = 1 << 20 // bytes
	MaxJobs    = 100
	MaxRef     = 1<<32 - 1
	MaxTimeout = 365 * 24 * time.Hour
	MaxLease   = time.Hour
	MaxReceive = 100 // messages at once
	MaxActor   = 200 // characters of the name of one
)

// DefaultLease is for how long a receiver is handed a message where nothing is said.
const DefaultLease = 30 * time.Second

// To says where a message is to go.
type To struct {
	Peer    string // "": this installation
	Context string
	Actor   string // "": any executor there
	Topic   string
}

// Spec is what somebody writes of a message, apart from its jobs.
type Spec struct {
	Ref      *int64
	To       To
	Type     string
	Format   string
	Body     string
	Jobs     int // how many
	Timeouts Timeouts
	ReplyTo  string
}

// Validate refuses a message that cannot be meant.
func (s *Spec) Validate() error {
	if err := s.checkNames(); err != nil {
		return err
	}
	switch {
	case s.Ref != nil && (*s.Ref < 0 || *s.Ref > MaxRef):
		return fault.At("/ref", "ref %d: want 0 to %d", *s.Ref, int64(MaxRef))
	case s.To.Context == "":
		return fault.At("/to/context", "to.context is missing: want the context that the message is for, as the "+
			"installation there calls it")
	case s.Type == Result:
		return fault.At("/message_type", "message_type result is made by POST /messages/{id}/reply, and of the "+
			"ends of jobs: want job, chat or mail")
	case s.Type == Job && (s.Jobs == 0 || s.Jobs > MaxJobs):
		return fault.At("/job", "job has %d items: a message of type job has 1 to %d", s.Jobs, MaxJobs)
	case s.Type != Job && s.Jobs > 0:
		return fault.At("/job", "job has %d items: only a message of type job has any, and this one is a %s", s.Jobs,
			fault.Clip(s.Type))
	case s.Type != Job && s.Body == "":
		return fault.At("/message", "message is empty: a %s has 1 to %d bytes", fault.Clip(s.Type), MaxBody)
	}
	if err := CheckBody("/message", s.Body); err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{CodeTimeout, s.Timeouts.Deliver}, {CodeTimeoutAck, s.Timeouts.Ack}, {CodeTimeoutResult, s.Timeouts.Result}} {
		if t.d < 0 || t.d > MaxTimeout {
			return fault.At("/"+t.name, "%s %d: want 0 (none) to %d, in seconds", t.name, int64(t.d/time.Second),
				int64(MaxTimeout/time.Second))
		}
	}
	return nil
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}$`)

// checkNames refuses names that no message has. Those of a request fit its schema, which does not see what an actor has
// signed.
func (s *Spec) checkNames() error {
	switch {
	case !slices.Contains(Types, s.Type):
		return fault.At("/message_type", "message_type %q: want job, chat or mail", fault.Clip(s.Type))
	case !slices.Contains(Formats, s.Format):
		return fault.At("/message_format_type", "message_format_type %q: want one of %s", fault.Clip(s.Format),
			strings.Join(Formats, ", "))
	case s.To.Topic != "" && !topicName.MatchString(s.To.Topic):
		return fault.At("/to/topic", "to.topic %q: want 1 to 200 of A-Z a-z 0-9 . _ : @ -, the first a letter or "+
			"digit", fault.Clip(s.To.Topic))
	case utf8.RuneCountInString(s.To.Actor) > MaxActor:
		return fault.At("/to/actor", "to.actor has %d characters: want at most %d", utf8.RuneCountInString(s.To.Actor),
			MaxActor)
	}
	return nil
}

// CheckBody refuses a text that no message has. at is where it stands in the request.
func CheckBody(at, text string) error {
	switch {
	case len(text) > MaxBody:
		return fault.At(at, "%s has %d bytes: want at most %d", at[1:], len(text), MaxBody)
	case strings.ContainsRune(text, 0):
		return fault.At(at, "%s has a NUL byte, which no text has", at[1:])
	}
	return nil
}

// Seconds reads a deadline as a request has it. One that would not fit a time is out of range in any case.
func Seconds(n int64) time.Duration {
	const most = int64(MaxTimeout / time.Second)
	switch {
	case n > most:
		n = most + 1
	case n < 0:
		n = max(n, -most)
	}
	return time.Duration(n) * time.Second
}
