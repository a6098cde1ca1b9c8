package leader

import "github.com/postern-dev/postern/internal/machine"

// Tables lists the machines of the leader.
func Tables() []machine.Table { return []machine.Table{Event, ChannelMessage} }

// Meanings says in one line what each state means, under "table.state".
var Meanings = map[string]string{
	"event.Queued":            "Stored with the cursor of its source. A message about it waits for the engine, or the time of its next try for that message.",
	"event.Active":            "A transaction of the core calls its tool; afterwards another one tells the workflow what came of it, when a channel is open.",
	"event.Successful":        "The workflow has the tool's output.",
	"event.Dead":              "It could not be read, or its tool failed for good and the workflow knows, or the workflow could not be told.",
	"channel_message.Queued":  "Stored, and not handed out: the channel was full, or its receiver failed. The retrier will meet it.",
	"channel_message.Offered": "The next receiver that asks gets it, the oldest first.",
	"channel_message.Active":  "A receiver has it, under a fence. If it does not say how that ended, the sweeper takes it back.",
	"channel_message.Acked":   "Processed. A record is kept.",
	"channel_message.Dropped": "Failed as often as the channel allows. A record with the reason is kept, and its owner was told.",
}
