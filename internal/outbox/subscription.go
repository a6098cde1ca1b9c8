package outbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is something that somebody may want to hear of. Of a transaction these are that it was accepted,
// and its end; the states between are no events. Of a batch it is its result, and each time it was not delivered and
// may be sent again. Of a job and of a flow it is the end, and of a message that it stands in msg_in. Of an intent it
// is the end, and each time it is parked; of a domain that another node coordinates.
type Event string

const (
	EventAccepted   Event = "accepted"
	EventDone       Event = "done"
	EventFailed     Event = "failed"
	EventUnresolved Event = "unresolved"
	EventCancelled  Event = "cancelled"
	EventResult     Event = "result"  // of a batch of a processor
	EventTimeout    Event = "timeout" // of one that was not delivered in time; a subscriber may send it again (S4.14)
	EventTest       Event = "test"    // asked for by a person, to try an endpoint

	EventJobFinished  Event = "job-finished"
	EventJobError     Event = "job-error"
	EventFlowFinished Event = "flow-finished"
	EventFlowError    Event = "flow-error"

	EventMessageReceived Event = "message-received"

	EventIntentConfirmed    Event = "intent-confirmed"
	EventIntentReverted     Event = "intent-reverted"
	EventIntentParked       Event = "intent-parked"
	EventCoordinatorChanged Event = "coordinator-changed"
)

// Events lists the events that can be subscribed to.
var Events = slices.Concat(TransactionEvents, []Event{EventResult, EventTimeout}, JobEvents,
	[]Event{EventMessageReceived}, DomainEvents)

// JobEvents are those of jobs and flows.
var JobEvents = []Event{EventJobFinished, EventJobError, EventFlowFinished, EventFlowError}

// DomainEvents are those of domains and their intents.
var DomainEvents = []Event{EventIntentConfirmed, EventIntentReverted, EventIntentParked, EventCoordinatorChanged}

// TransactionEvents are those of transactions.
var TransactionEvents = []Event{EventAccepted, EventDone, EventFailed, EventUnresolved, EventCancelled}

// EventOf returns the event that a transaction in this state makes: accepted, or its end.
func EventOf(s State) Event {
	if s == WAITING {
		return EventAccepted
	}
	return Event(strings.ToLower(string(s)))
}

// Name is the event as people write it: transaction.done.
func (e Event) Name() string {
	switch e {
	case EventTest:
		return "subscription.test"
	case EventResult, EventTimeout:
		return "batch." + string(e)
	case EventJobFinished, EventJobError, EventFlowFinished, EventFlowError, EventMessageReceived,
		EventIntentConfirmed, EventIntentReverted, EventIntentParked, EventCoordinatorChanged:
		return strings.Replace(string(e), "-", ".", 1)
	}
	return "transaction." + string(e)
}

// State is the state that a transaction is in after e, "" for an event of none.
func (e Event) State() State {
	switch e {
	case EventAccepted:
		return WAITING
	case EventTest, EventResult, EventTimeout, EventJobFinished, EventJobError, EventFlowFinished, EventFlowError,
		EventMessageReceived, EventIntentConfirmed, EventIntentReverted, EventIntentParked, EventCoordinatorChanged:
		return ""
	}
	return State(strings.ToUpper(string(e)))
}

// ParseEvent reads what Name writes, of those that can be subscribed to.
func ParseEvent(s string) (Event, bool) {
	for _, e := range Events {
		if e.Name() == s {
			return e, true
		}
	}
	return "", false
}

// EventID is the id of the message about an event that happened at a moment, the same however often it is delivered
// (S0.4). The moment is in it, so that what a store forgot and what happened instead are never taken for one another.
func (id ID) EventID(at time.Time, e Event) string {
	switch e {
	case EventResult: // numbers that are given once
		return fmt.Sprintf("batch-%d.%s", id.Seq, e)
	case EventTimeout:
		return fmt.Sprintf("notice-%d.%s", id.Seq, e)
	case EventJobFinished, EventJobError, EventFlowFinished, EventFlowError, EventMessageReceived,
		EventIntentConfirmed, EventIntentReverted, EventIntentParked, EventCoordinatorChanged:
		return id.sealed(at, e.Name())
	}
	return id.sealed(at, string(e.State()))
}

// trackOfProcessor is what the events of a processor have instead of the id of a queue: in 44 bits, and beyond all that
// queues are numbered with.
const trackOfProcessor = 1 << 43

// OfProcessor names an event of a processor's batches, as an ID names a transaction in events and deliveries. number is
// the id of the batch for its end. For a timeout it is a notice, since a batch may have several. Those of a processor
// are told in order, as those of a queue are. The numbers are longer than positions, and take the place of the salt.
func OfProcessor(processor int32, number int64, day Day) ID {
	return ID{Queue: trackOfProcessor + int64(processor), Seq: number, Day: day}
}

// trackOfFlows is what the events of jobs and flows have instead of the id of a queue: beyond those of processors, the
// last 42 bits of the id of the flow, or of a job that is in none.
const (
	trackOfFlows = trackOfProcessor + 1<<trackBits
	trackBits    = 42
	flowBit      = 1 << 60 // in Seq, of an event of a flow: it comes behind those of its jobs
	messageBit   = 1 << 61 // of an event of a message, which is alone in its line
)

// OfJob names an event of a job, whose id is a UUIDv7, as an ID names a transaction in events and deliveries. line is
// the id of its flow, or its own: what happens to the jobs of a flow and to the flow is told in order. Seq has the time
// in the id of the job, and what follows it, so that its row is found by the key (postern.told_of).
func OfJob(job, line [16]byte, day Day) ID {
	hi, lo := binary.BigEndian.Uint64(job[:8]), binary.BigEndian.Uint64(line[8:])
	return ID{Queue: trackOfFlows + int64(lo&(1<<trackBits-1)), Seq: int64(hi>>16<<12 | hi&0xfff), Day: day}
}

// OfFlow names an event of a flow, as OfJob does those of its jobs.
func OfFlow(flow [16]byte, day Day) ID {
	id := OfJob(flow, flow, day)
	id.Seq |= flowBit
	return id
}

// OfMessage names an event of a message, as OfJob does one of a job.
func OfMessage(message [16]byte, day Day) ID {
	id := OfJob(message, message, day)
	id.Seq |= messageBit
	return id
}

// trackOfDomains is what the events of domains and intents have instead of the id of a queue: below those of flows. A
// domain has a line for each of the last bits of its intents' numbers, so that what is told of an intent comes in
// order, and an endpoint that fails for one holds back few others.
const (
	trackOfDomains = trackOfProcessor + 1<<41
	domainBits     = 31      // of the id of a domain
	lineBits       = 10      // of the number of an intent
	stepBits       = 27      // of the number of a step, which tells two events of one intent on one day apart
	seatBit        = 1 << 61 // in Seq, of an event of the domain itself
)

// OfIntent names an event of an intent, by its number in its domain, that a step made.
func OfIntent(domain int32, intent, step int64, day Day) ID {
	line := intent & (1<<lineBits - 1)
	return ID{
		Queue: trackOfDomains + line<<domainBits + int64(domain),
		Seq:   intent<<stepBits | step&(1<<stepBits-1),
		Day:   day,
	}
}

// OfDomain names an event of a domain itself that a step made.
func OfDomain(domain int32, step int64, day Day) ID {
	return ID{Queue: trackOfDomains + int64(domain), Seq: seatBit | step, Day: day}
}

// Filter narrows a subscription or a stream. A repeated field means or, different ones and; empty ones do
// not narrow.
type Filter struct {
	Queue       []string `json:"queue,omitempty"`
	QueuePrefix []string `json:"queue_prefix,omitempty"`
	Type        []string `json:"type,omitempty"`
	State       []State  `json:"state,omitempty"` // that the event leads to
}

// Takes says whether an event of this queue ("" for unordered work) and type passes.
func (f *Filter) Takes(queue, typ string, e Event) bool {
	if e == EventTest {
		return true
	}
	if len(f.Queue)+len(f.QueuePrefix) > 0 && !slices.Contains(f.Queue, queue) &&
		!slices.ContainsFunc(f.QueuePrefix, func(p string) bool { return queue != "" && strings.HasPrefix(queue, p) }) {
		return false
	}
	return (len(f.Type) == 0 || slices.Contains(f.Type, typ)) && (len(f.State) == 0 || slices.Contains(f.State, e.State()))
}

// Subscription says who wants to hear of what. A webhook is called; a pull subscription is fetched and
// acknowledged.
type Subscription struct {
	Name    string
	Kind    string // webhook, pull
	URL     string // of a webhook
	Events  []Event
	Filter  Filter
	OnError string   // skip: a delivery that failed for good lets go of its queue; block: it never does
	Include []string // data, result
}

// Wants says whether an event may concern the subscription, as far as that is known where it happens; queue
// and type are looked at later.
func (s *Subscription) Wants(e Event) bool {
	return (len(s.Events) == 0 || slices.Contains(s.Events, e)) && (len(s.Filter.State) == 0 || slices.Contains(s.Filter.State, e.State()))
}

// Callback is where a transaction's own end is to be told.
type Callback struct {
	URL string  `json:"url"`
	On  []State `json:"on,omitempty"` // terminal states; empty: all of them
}

// Wants says whether the callback is called for this end.
func (c *Callback) Wants(s State) bool {
	return c != nil && (len(c.On) == 0 || slices.Contains(c.On, s))
}
