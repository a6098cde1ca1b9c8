package leader

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func TestTheTablesAreSound(t *testing.T) {
	for _, table := range Tables() {
		if err := table.Check(); err != nil {
			t.Error(err)
		}
		for _, s := range table.States() {
			if Meanings[table.Name+"."+s] == "" {
				t.Errorf("nobody says what %s.%s means", table.Name, s)
			}
		}
	}
}

func TestEveryNameIsBoundAndEveryBindingUsed(t *testing.T) {
	for _, c := range []struct {
		what        string
		named, have []string
	}{
		{"guards", Event.Guards(), slices.Collect(maps.Keys(eventGuards))},
		{"effects", Event.Effects(), slices.Collect(maps.Keys(eventEffects))},
		{"guards", ChannelMessage.Guards(), slices.Collect(maps.Keys(channelMessageGuards))},
		{"effects", ChannelMessage.Effects(), slices.Collect(maps.Keys(channelMessageEffects))},
	} {
		slices.Sort(c.named)
		slices.Sort(c.have)
		if !slices.Equal(c.named, c.have) {
			t.Errorf("%s: the table names %v, bound are %v", c.what, c.named, c.have)
		}
	}
}

func TestThePageBesideTheCodeIsRenderedFromTheTables(t *testing.T) {
	machinetest.Page(t, Tables(), Meanings, *update)
}

// seedSteps is every arrow of the seed's two diagrams of the channel, and where it is here: an edge of the
// table as "state event state", or why there is none.
var seedSteps = map[string]string{
	"[*] > Receiver: Start":                  "a process",
	"Receiver > ReceiveMessage: recv":        "Offered Received Active",
	"ReceiveMessage > MoveToActiveSet":       "Offered Received Active", // before it is processed
	"MoveToActiveSet > ProcessMessage":       "a process",
	"ProcessMessage > if_successful":         "a process",
	"if_successful > NackMessage: Err":       "Active Err Queued",
	"if_successful > AckMessage: Ok":         "Active Ok Acked",
	"NackMessage > MoveBackToQueued":         "Active Err Queued",
	"AckMessage > RemoveMessage":             "Active Ok Acked",
	"MoveBackToQueued > [*]":                 "a process",
	"RemoveMessage > [*]":                    "a process",
	"[*] > Sender: Start":                    "a process",
	"Sender > CheckMessageExists":            "a process",
	"CheckMessageExists > if_exists":         "a process",
	"if_exists > [*]: Exists":                "Active Sent Active", // and Queued, and Offered
	"if_exists > SaveMessageData: NotExists": " Sent Queued",
	// stored and offered in one commit: nothing lies between
	"SaveMessageData > CheckChannelCapacity":             "a process",
	"CheckChannelCapacity > if_channel_capacity":         "a process",
	"if_channel_capacity > [*]: Full":                    " Sent Queued",
	"if_channel_capacity > SendMessage: NotFull":         " Sent Offered",
	"SendMessage > [*]: send":                            "a process",
	"[*] > Retrier: Start":                               "a process",
	"Retrier > FetchRandomQueuedMessage":                 "a process",
	"FetchRandomQueuedMessage > if_message_exists":       "a process",
	"if_message_exists > CheckRetryCount: MessageExists": "a process",
	"if_message_exists > [*]: NoMessage":                 "a process",
	"CheckRetryCount > if_retry_count":                   "a process",
	"if_retry_count > DropMessage: MaxRetriesReached":    "Queued Drawn Dropped",
	"if_retry_count > ResendMessage: RetriesRemaining":   "Queued Drawn Offered",
	"ResendMessage > [*]: resend":                        "a process",
	"DropMessage > [*]":                                  "a process",
	"[*] > Sweeper: Start":                               "a process",
	"Sweeper > CheckStaleMessages":                       "a process",
	"CheckStaleMessages > if_stale":                      "a process",
	"if_stale > MoveBackToQueuedSet: Stale":              "Active Stale Queued",
	"if_stale > [*]: NotStale":                           "a process",
	"MoveBackToQueuedSet > [*]":                          "a process",
}

// Deviations: Offered is a state, where the seed's process holds messages in its memory; a retrier that meets
// a full channel leaves the message Queued; both because a process may die.
func TestTheSeedsDiagramsAreInTheTable(t *testing.T) {
	drawn := map[string]bool{}
	for _, edges := range machinetest.PublishedIn(t, "../../testdata/diagrams.txt", "1-leader.md").Diagrams {
		for _, e := range edges {
			key := e.From + " > " + e.To
			if e.Label != "" {
				key += ": " + e.Label
			}
			drawn[key] = true
			if seedSteps[key] == "" {
				t.Errorf("the seed draws %q: where is it in the table?", key)
			}
		}
	}
	have := map[string]bool{"a process": true}
	for _, r := range ChannelMessage.Rules {
		have[strings.Join([]string{r.From, r.On, r.To}, " ")] = true
	}
	for key, edge := range seedSteps {
		if !drawn[key] || !have[edge] {
			t.Errorf("%q is in the seed: %v; %q is in the table: %v", key, drawn[key], edge, have[edge])
		}
	}
}
