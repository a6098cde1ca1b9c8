package demo

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// Config of one run.
type Config struct {
	API     string    // address of the API
	Worker  string    // worker URL of the dispatchers
	Ledger  string    // address of the devnet behind it
	Tools   [2]string // of the leader: addresses of the tools in Go, and of those of the script
	Runners Runners   // of flows
	Key     string    // the public key of the installation, by which the tools in Go know it
	Name    string    // of the run; part of every queue and uid
	Out     io.Writer // for the table or the lines; nil: silence
	Redraw  bool      // Out is a terminal: draw the table over itself, else a line a second
	Columns int       // of the terminal

	// StartNode starts another installation of a domain, or starts one again: its rows are kept. kill ends it as
	// kill -9 does, and waits until it is gone.
	StartNode func(ctx context.Context, name string) (api string, kill func(), err error)
}

// RunName makes the name of a run that begins now.
func RunName(now time.Time) string { return strconv.FormatInt(now.Unix(), 36) }

// life is one sample on its way.
type life struct {
	sample Sample
	tx     Transaction
}

// run is one run of the demo.
type run struct {
	Config
	client  *client
	ledger  *devnet.Client
	from    uint64                   // the height of the ledger before the first post
	before  map[devnet.Address]int64 // balances of who receives, before the first post
	reorged bool
	samples []Sample
	byUID   map[string]*life
	order   []string // uids as posted
	senders []Sender
	began   time.Time
	posted  time.Time
}

// Run sets up dispatchers and senders, posts every sample, watches until all are terminal, and sums up.
// An error says that the API refused or could not be reached, or that ctx ended before the samples did;
// samples that ended otherwise than they should are no error but are counted in the Summary.
func Run(ctx context.Context, c Config) (*Summary, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	r := &run{Config: c, client: &client{base: c.API, http: &http.Client{Timeout: 30 * time.Second}},
		byUID: map[string]*life{}, began: time.Now()}
	r.ledger = devnet.NewClient(c.Ledger, 10*time.Second)
	defer r.client.http.CloseIdleConnections()
	defer r.ledger.Close()
	var err error
	if r.samples, err = Samples(c.Name); err != nil {
		return nil, err
	}
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	if r.before, err = r.balances(ctx); err != nil {
		return nil, err
	}
	head, err := r.ledger.Health(ctx)
	if err != nil {
		return nil, err
	}
	r.from = head.Height
	r.posted = time.Now()
	if err := r.post(ctx); err != nil {
		return nil, err
	}
	if err := r.watch(ctx); err != nil {
		return nil, err
	}
	return r.sum(ctx)
}

// watch looks after the samples until all are terminal.
func (r *run) watch(ctx context.Context) error {
	every := time.Second
	if r.Redraw {
		every = 200 * time.Millisecond
	}
	show := r.line
	if r.Redraw {
		var t table
		show = func() { t.draw(r.Out, r.rows(), r.Columns) }
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ended, err := r.look(ctx)
		if err == nil {
			err = r.reorg(ctx)
		}
		if err != nil {
			return err
		}
		show()
		if ended {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look reads every sample and sender once and says whether all samples have ended.
func (r *run) look(ctx context.Context) (ended bool, err error) {
	query := url.Values{"queue": r.queues()}
	txs, err := all[Transaction](ctx, r.client, "/transactions", query)
	if err != nil {
		return false, err
	}
	for _, t := range txs {
		if l := r.byUID[t.UID]; l != nil {
			l.tx = t
		}
	}
	senders, err := all[Sender](ctx, r.client, "/senders", url.Values{})
	if err != nil {
		return false, err
	}
	r.senders = r.senders[:0]
	for _, s := range senders {
		for _, a := range Accounts {
			if s.Account == a {
				r.senders = append(r.senders, s)
			}
		}
	}
	ended = true
	for _, l := range r.byUID {
		ended = ended && l.tx.State.Terminal()
	}
	return ended, nil
}

// queues lists the queues of this run in the order of the samples.
func (r *run) queues() []string {
	var names []string
	seen := map[string]bool{}
	for _, s := range r.samples {
		if q := s.Transaction.Queue; !seen[q] {
			seen[q] = true
			names = append(names, q)
		}
	}
	return names
}
