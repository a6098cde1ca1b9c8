package coord

import (
	"slices"
	"time"
)

// Domain is the image of a domain in one installation: what its rows hold. Its parts are plain data.
type Domain struct {
	Name     string
	Self     string // the name of this node
	Settings Settings
	Height   int64
	Paused   bool // the store has lost something: nothing goes on before an operator releases it
	Seat     Seat
	Peers    []*Peer   // each node, this one too, by name
	Intents  []*Intent // in the order of their arrival
	Permits  []*Permit // in the order in which they were given
	Works    []*Work   // in the order of the pool
	Calls    []*Call   // that the domain's service has not answered yet

	fault  Fault
	places map[string]int // of intents, by id, as of a clone; without those that came since
}

// Seat is the pair of role machines of a node, and what they know.
type Seat struct {
	Originator, Coordinator           State
	OriginatorSince, CoordinatorSince time.Time

	Install int64 // the life of the store: drawn anew when it may have lost something
	Beat    int64 // of the last message
	GapFrom int64 // no beat between the two was said by this life
	GapTo   int64
	HelloAt time.Time // since when it waits until the others have said what they heard; zero: it waits no more

	TickedAt  time.Time // the last heartbeat interval
	DownAt    time.Time // the last one before all processes were down
	LostAt    time.Time // when it went on behind a quarantine: its store had lost rows; zero: it has lost none
	MadeGood  bool      // nothing that this node posted in the life that is lost is on its way, or done and not told
	Leader    string    // the node that coordinated last, as this one knows; "": it knows of none
	Successor string    // who coordinates next, as the one that flushes says
	Rival     string    // from whom the seat is to be taken over
	RivalAt   time.Time // since when
	Points    []string  // flush points: public transactions of the one before that are not confirmed
	Spent     []string  // states that those spend
	PointsOf  string    // the node that said so
	Closed    int       // heartbeats in Closing
	Place     int64     // of the last work
	Posted    int       // public transactions that it has posted in this tenure
	Before    int       // and in the one before
	Hushed    bool      // the messages of the last step were not sent
	Anew      int       // how often the wait for greetings began anew, since no step was taken for long
}

// Peer is what is known of one node.
type Peer struct {
	Node    string
	Install int64 // highest heard
	Beat    int64 // highest heard of that install; hellos do not count
	GapFrom int64 // what it said between the two was said by a life that it has lost, or not at all
	GapTo   int64
	Before  int64     // the highest beat that was heard before the node told of the gap
	AtLoss  int64     // the install that was known of it when this store had lost rows
	Greeted bool      // it has answered our hello
	HeardAt time.Time // its last message

	State     State // its coordinator's
	StateBeat int64 // the beat of the word that told it
	LiveAt    time.Time
	Tenure    time.Duration // how long it has been Active
	Successor string
	Height    int64
	Digest    string

	Room     *int  // how many more works it takes, as it said last; nil: it has not said
	RoomBeat int64 // the beat of that word
	Full     bool  // it was told here that there is no room for its works

	RefusedAt time.Time // when works of it were refused here, and none was taken since

	FailedAt time.Time // it did not take what it was given
	Silent   time.Time // as an originator: until when its works are not selected
	Silences int       // how often in a row it did not answer
}

// Counts are what bounds the tries of an intent, over all nodes that coordinate it one after the other.
type Counts struct {
	Rejections int `json:"rejections,omitempty"` // how often too few endorsed it
	Reverts    int `json:"reverts,omitempty"`    // how often its public transaction was reverted
}

// raise keeps the higher of each.
func (c *Counts) raise(o Counts) {
	c.Rejections, c.Reverts = max(c.Rejections, o.Rejections), max(c.Reverts, o.Reverts)
}

// Receipts of intents.
const (
	Success = "success"
	Failure = "failure"
)

// Intent is what a node of an originator holds.
type Intent struct {
	ID        string
	Seq       int64
	DependsOn []string // intents of this node that must succeed before
	Named     bool     // it has a uid: its client may have submitted it before
	State     State
	Since     time.Time

	Delegate    string    // "": none yet
	GivenAt     time.Time // since when it is that node's
	DelegatedAt time.Time // when it was last told so
	NotBefore   time.Time // it is not handed over earlier
	Line        int64     // its place in the line of those that are handed over, where it is behind that of its Seq
	Rejected    int       // how many nodes in a row did not take it
	Acked       int64     // the beat of the delegate's word that it has it; 0: none
	Said        State     // what its delegate said last of its work
	SaidWhy     string    // and why, where it did
	Counts      Counts    // as its coordinators said
	Generation  int64     // highest seen
	Key         string
	Response    *Message // the answer to that key
	Assembled   Assembled
	Nonce       int64
	Hash        string // newest of its public transaction
	Failed      string // its last dispatch was reverted for good, and others may be on their way
	LookedAt    time.Time
	ResumeAt    time.Time // of one that is parked: when it goes on by itself
	Trouble     string    // why its last try came to nothing; "" once it has a permit

	Receipt, Text string
	EndedAt       time.Time
}

// Ended says whether an intent has its receipt.
func (i *Intent) Ended() bool { return i.Receipt != "" }

// Assembled is what the assembler made of an intent.
type Assembled struct {
	Hash    string        `json:"hash"`
	Inputs  []string      `json:"inputs,omitempty"` // ids of states
	Outputs []string      `json:"outputs,omitempty"`
	Plan    []Attestation `json:"plan,omitempty"`
	Size    int           `json:"size,omitempty"` // bytes of its states
}

// Attestation is what an assembled intent needs: of the parties (name@node) so many.
type Attestation struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"` // sign or endorse
	Parties   []string `json:"parties"`
	Threshold int      `json:"threshold,omitempty"`
}

// Work is a coordinator's transaction for an intent.
type Work struct {
	ID         string
	Origin     string // the node of the intent
	Place      int64
	State      State
	Since      time.Time
	After      string // the work before it in its delegation: an order dependency until that is assembled
	Generation int64
	Install    int64 // ours when this generation began
	SentAt     int64 // the beat of the confirmation request of this generation
	NotBefore  time.Time
	Tried      bool // it has been assembled, or was to be

	Assembled Assembled
	Offered   []string // states that the assembler was told it may use, of works on their way
	Barred    []string // states that it was told are spent by works on their way
	Needs     []string // works that make its inputs
	Asks      []*Ask
	Prepared  bool
	UID       string // of the public transaction
	Nonce     int64
	Hash      string

	Errors  int    // of its assembly, here
	Trouble string // why its last try came to nothing; "" once it has its permit
	Counts

	Outcome  string // success or failure, once there is one
	Reason   string
	Retry    bool // a failure that may be assembled anew
	Unknown  bool // the core gave up, and it may land
	Other    bool // the ledger has the intent by another dispatch: the outputs of this one are none
	LookedAt time.Time
	Told     bool // the originator has acknowledged the outcome
	Beats    int  // heartbeats since the end
}

// Ask is a request that a work waits for. Its key is the same over all resends.
type Ask struct {
	Kind        Kind
	Node        string
	Name, Party string // of an attestation
	Key         string
	First, Last time.Time
	Answer      string // "", yes or no
	Error       string // that was answered instead, last
}

// Call is one to the domain's service, under a key: the same key gets the same answer.
type Call struct {
	Key         string
	Kind        string // assemble, sign, endorse, prepare, look
	ID          string
	Generation  int64
	Node        string // who asked for an endorsement
	Name, Party string
	Assembled   Assembled
	Pending     []string // states that may be used though the ledger does not have them yet
	Spent       []string // states that are spent by what is on its way
}

// Answer is what the domain's service says.
type Answer struct {
	Key       string
	Result    string // OK, REVERT, PARK, ERROR; of look: fulfilled or unknown
	Reason    string
	Assembled Assembled
	After     time.Duration // of PARK: when it is to go on; 0: once somebody resumes it
}

// The results of an answer.
const (
	OK        = "OK"
	Revert    = "REVERT"
	Park      = "PARK"
	Err       = "ERROR"
	Fulfilled = "fulfilled"
	Unknown   = "unknown"
)

// New returns the image of a domain that has just been put.
func New(name, self string, s Settings, install int64) *Domain {
	d := &Domain{Name: name, Self: self, Settings: s}
	d.Seat.Originator, d.Seat.Coordinator, d.Seat.Install = Idle, Idle, install
	for _, node := range slices.Compact(slices.Sorted(slices.Values(append([]string{self}, s.Nodes...)))) {
		d.Peers = append(d.Peers, &Peer{Node: node})
	}
	return d
}

func (d *Domain) peer(node string) *Peer {
	for _, p := range d.Peers {
		if p.Node == node {
			return p
		}
	}
	return nil
}

// few intents are found faster without an index.
const few = 64

// Intent returns the intent of an id, or nil.
func (d *Domain) Intent(id string) *Intent {
	n, there := d.places[id]
	switch {
	case there && n < len(d.Intents) && d.Intents[n].ID == id:
		return d.Intents[n]
	case !there && len(d.places) == len(d.Intents):
		return nil
	}
	for _, i := range d.Intents {
		if i.ID == id {
			return i
		}
	}
	return nil
}

// Work returns the newest work of an id, or nil.
func (d *Domain) Work(id string) *Work {
	for _, w := range slices.Backward(d.Works) {
		if w.ID == id {
			return w
		}
	}
	return nil
}

// Clone returns a copy that shares nothing that Handle changes.
func (d *Domain) Clone() *Domain {
	c := *d
	c.Seat.Points, c.Seat.Spent = slices.Clone(d.Seat.Points), slices.Clone(d.Seat.Spent)
	c.Peers, c.Intents, c.Permits = copies(d.Peers), copies(d.Intents), copies(d.Permits)
	c.Works, c.Calls = copies(d.Works), slices.Clone(d.Calls)
	if len(c.places) != len(c.Intents) && len(c.Intents) > few {
		c.places = make(map[string]int, len(c.Intents))
		for n, i := range c.Intents {
			c.places[i.ID] = n
		}
	}
	for _, w := range c.Works {
		w.Asks, w.Needs = copies(w.Asks), slices.Clone(w.Needs)
	}
	return &c
}

func copies[T any](list []*T) []*T {
	if len(list) == 0 {
		return nil
	}
	values, out := make([]T, len(list)), make([]*T, len(list))
	for i, x := range list {
		values[i] = *x
		out[i] = &values[i]
	}
	return out
}
