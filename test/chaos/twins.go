package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"time"
)

// twin is a program with a planted fault, and the scenario of some seconds that provokes it: a schedule of this
// harness, or a test where what it takes is a moment that no schedule hits.
type twin struct {
	name    string
	planted string
	caught  string // the invariant that has to find it; the output of a test names the test
	faults  string // with commas between, "-" for none
	o       options
	pkg     string // of the test
	stands  bool   // some transactions wait on purpose, as in a run
}

// twins are all that are planted, in the order of the promises that they break.
var twins = []twin{
	{
		name: "ack_before_commit", planted: "commits are answered before they are on disk",
		caught: "nothing acknowledged is lost", faults: "crash", o: options{seconds: 8, settle: 5 * time.Second,
			// The processes notice what the first crash costs, and take no posts any more.
			every:    5 * time.Second,
			settings: "bgwriter_lru_maxpages = 0\n"},
	},
	{
		name: "fatal_is_refusal", planted: "an error that ends the session at a commit is taken for a refusal",
		caught: "unknown is never no", faults: "terminate", o: options{seconds: 10, every: 700 * time.Millisecond, settings: "commit_delay = 20000\ncommit_siblings = 0\n"},
	},
	{
		name: "lost_commit_is_no", planted: "a commit whose answer was lost is taken for a refusal",
		caught: "unknown is never no", faults: "commit-lost", o: options{seconds: 8, every: time.Second},
	},
	{
		name: "standby_not_waited_for", planted: "a commit whose wait for its standby was cancelled is taken for durable",
		caught: "nothing acknowledged is lost", faults: "standby-away", o: options{seconds: 12, settle: 10 * time.Second, every: 2 * time.Second},
	},
	{
		name: "unread_is_no", planted: "a post that is stored and cannot be read back is answered as if it were not",
		caught: "TestWhatIsStoredIsToldThoughItCannotBeRead", pkg: "./internal/httpapi",
	},
	{
		name: "cancel_at_commit", planted: "the end of a context sends a cancel request",
		caught: "TestTheEndOfAContextCancelsNothing", pkg: "./internal/pg/watch",
	},
	{
		name: "key_lookup_then_insert", planted: "a key that two posts bring at once is given to both",
		caught: "one transaction per key", faults: "-", o: options{seconds: 10, rate: 120},
	},
	{
		name: "cache_asked_twice", planted: "a post asks the cache again for the queue that it has locked",
		caught: "TestAPostGoesOnWithTheQueueThatItLocked", pkg: "./internal/pg",
	},
	{
		name: "position_from_sequence", planted: "positions have gaps",
		caught: "positions are dense", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "drained_backwards", planted: "what was staged by SQL is taken in last first",
		caught: "positions follow acceptance", faults: "lock",
		o: options{seconds: 12, every: 2 * time.Second, rate: 240, queues: 4},
	},
	{
		name: "idle_by_not_exists", planted: "the end of a transaction does not look for what was posted behind it meanwhile",
		caught: "nothing stands still", faults: "-", o: options{seconds: 8, settle: 8 * time.Second, queues: 4, worker: workerSettings{Takes: 20 * time.Millisecond}},
	},
	{
		name: "no_fence", planted: "an answer is recorded without a look at the fence",
		caught: "a late process changes nothing", faults: "freeze",
		o: options{seconds: 40, every: time.Second, settle: 20 * time.Second},
	},
	{
		name: "hand_back_without_fence", planted: "a queue is handed back under whatever fence it has",
		caught: "TestNothingIsHandedBackThatWasNotMeant", pkg: "./internal/pg",
	},
	{
		name: "no_release", planted: "the queues of a dead node are not released",
		caught: "no owner is dead", faults: "kill-work", o: options{seconds: 8, every: time.Second, settle: 8 * time.Second, worker: workerSettings{Takes: 200 * time.Millisecond}},
	},
	{
		name: "effect_before_intent", planted: "workers are called, and the lease is never committed",
		caught: "asked before it is sent again", faults: "-", o: options{seconds: 6, settle: 6 * time.Second},
	},
	{
		name: "sent_again_unasked", planted: "what was in the hands of a dead node is sent again, and its worker is not asked",
		caught: "asked before it is sent again", faults: "kill-work", o: options{seconds: 10, every: 2 * time.Second, settle: 15 * time.Second, worker: workerSettings{Takes: 300 * time.Millisecond}},
	},
	{
		name: "attempt_without_row", planted: "attempts that do not end a transaction leave no row",
		caught: "postern verify", faults: "-", o: options{seconds: 6, settle: 8 * time.Second},
	},
	{
		name: "sender_not_given_back", planted: "a sender stays bound when its transaction has ended",
		caught: "sender and queue agree", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "sender_of_two_queues", planted: "a sender that a queue has is given to the next one, too",
		caught: "a sender serves one queue at a time", faults: "-",
		o: options{seconds: 6, settle: 6 * time.Second, worker: workerSettings{Takes: 100 * time.Millisecond}},
	},
	{
		name: "retry_after_terminal", planted: "retries go on behind the last",
		caught: "terminal is final", faults: "-", o: options{seconds: 6, settle: 6 * time.Second},
	},
	{
		name: "timer_forgotten", planted: "what waits for a time has no timer",
		caught: "what waits will be woken", faults: "-", o: options{seconds: 6, settle: 6 * time.Second},
	},
	{
		name: "callback_in_memory", planted: "the end of a transaction does not write whom it has to tell",
		caught: "callbacks have rows", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "failed_callback_forgotten", planted: "a callback that failed has its next try in a hundred years",
		caught: "callbacks arrive", faults: "worker-away",
		o: options{seconds: 8, every: 2 * time.Second, settle: 40 * time.Second},
	},
	{
		name: "callback_tells_another_end", planted: "a callback tells of what is done that it has failed",
		caught: "a callback tells what is recorded", faults: "-", o: options{seconds: 5, settle: 8 * time.Second},
	},
	{
		name: "callback_out_of_turn", planted: "a callback does not wait for those before it",
		caught: "callbacks of a queue keep their order", faults: "-", o: options{seconds: 6, settle: 10 * time.Second,
			rate: 240, queues: 4, worker: workerSettings{TellLag: 50 * time.Millisecond}},
	},
	{
		name: "nonce_without_row", planted: "the nonce of an end is dropped",
		caught: "a nonce is kept as it was told", faults: "-",
		o: options{seconds: 6, settle: 15 * time.Second},
	},
	{
		name: "wait_without_deadline", planted: "connections are not watched",
		caught: "every process works in the end", faults: "black-hole",
		o: options{seconds: 8, every: 2 * time.Second, settle: 60 * time.Second},
	},
	{
		name: "redirect_followed", planted: "redirects of a worker are followed",
		caught: "no redirect is followed", faults: "worker-redirect", o: options{seconds: 5, every: 2 * time.Second, settle: 8 * time.Second},
	},
	{
		name: "fence_counts", planted: "fences count up, and begin anew with a backup",
		caught: "fences never fall", faults: "restore", o: options{seconds: 8, every: 3 * time.Second, settle: 10 * time.Second},
	},
	{
		name: "no_quarantine", planted: "a process does not notice that the database went back",
		caught: "a restore is noticed", faults: "restore",
		o: options{seconds: 8, every: 3 * time.Second, settle: 10 * time.Second},
	},
	{
		name: "quarantine_unheeded", planted: "a quarantine that is there holds nothing back",
		caught: "nothing leaves a store that lost something", faults: "restore", o: options{seconds: 12,
			every: 3 * time.Second, settle: 10 * time.Second},
	},
	{
		name: "hash_not_asked", planted: "a reconciliation does not ask about the hash that it has found",
		caught: "reconcile learns what was done", faults: "restore", o: options{seconds: 24, every: 3 * time.Second,
			settle: 10 * time.Second},
	},
	{
		name: "why_forgets_pause", planted: "why does not name the pause of a type",
		caught: "nothing stands still", faults: "-", stands: true,
		o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "next_leased_beside", planted: "the second of a queue is leased together with the first",
		caught: "one of a queue is under way", faults: "-",
		o: options{seconds: 6, settle: 6 * time.Second, queues: 4, worker: workerSettings{Takes: 50 * time.Millisecond}},
	},
	{
		name: "second_before_first", planted: "of what waits in a queue the second is called before the first",
		caught: "order of a queue", faults: "-",
		o: options{seconds: 6, settle: 6 * time.Second, queues: 4, worker: workerSettings{Takes: 50 * time.Millisecond}},
	},
	{
		name: "attempt_anew_on_takeover", planted: "what was in the hands of a dead node begins another attempt",
		caught: "executed once", faults: "kill-work",
		o: options{seconds: 10, settle: 15 * time.Second, worker: workerSettings{Takes: 300 * time.Millisecond}},
	},
	{
		name: "unclear_is_done", planted: "a call whose answer does not say what was done is taken for done",
		caught: "what is DONE was executed", faults: "worker-lie", o: options{seconds: 6, settle: 6 * time.Second},
	},
	{
		name: "hash_is_inclusion", planted: "a transaction that has a hash is done, whether that is included or not",
		caught: "a hash is no end until it is included", faults: "-", o: options{seconds: 5, settle: 6 * time.Second},
	},
	{
		name: "failure_is_done", planted: "the end of a transaction that failed is recorded as DONE",
		caught: "it ends as its worker says", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "data_of_neighbour", planted: "of posts that share a commit one has the data of another",
		caught: "a transaction is what was posted", faults: "-",
		o: options{seconds: 5, settle: 5 * time.Second, rate: 240},
	},
	{
		name: "key_known_is_conflict", planted: "a post that is repeated is refused",
		caught: "every answer is a success or retryable", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "key_takes_any_body", planted: "a key that is known is answered as a repetition, whatever the body",
		caught: "a key is one body's", faults: "-", o: options{seconds: 5, settle: 8 * time.Second},
	},
	{
		name: "key_logged", planted: "the first admin key is logged",
		caught: "no secret is logged", faults: "-", o: options{seconds: 3, settle: 5 * time.Second},
	},
	{
		name: "panic_in_request", planted: "a request panics",
		caught: "no process panics", faults: "-", o: options{seconds: 5, settle: 5 * time.Second},
	},
	{
		name: "goroutine_left", planted: "each post leaves a goroutine behind",
		caught: "everything returns to its baseline", faults: "-",
		o: options{seconds: 10, settle: 10 * time.Second, rate: 240},
	},
	{
		name: "context_not_heeded", planted: "a request goes to the context of its key, whichever it names",
		caught: "a context is a wall", faults: "-", o: options{load: "systems", seconds: 5, settle: 10 * time.Second},
	},
	{
		name: "result_told_twice", planted: "the result of an event is told by two transactions",
		caught: "an event calls its tool once, and its result is told once", faults: "-",
		o: options{load: "systems", seconds: 5, settle: 10 * time.Second},
	},
	{
		name: "rejection_is_success", planted: "a batch goes on behind a message that was rejected",
		caught: "a batch ends as its messages do", faults: "-",
		o: options{load: "systems", seconds: 5, settle: 10 * time.Second},
	},
	{
		name: "success_tried_again", planted: "a job is tried again though it has succeeded",
		caught: "no job is executed again after a recorded success", faults: "-",
		o: options{load: "flows", seconds: 6, settle: 10 * time.Second},
	},
	{
		name: "inputs_left_out", planted: "a job is not given the results of those that it needs",
		caught: "a job reads the recorded results", faults: "-",
		o: options{load: "flows", seconds: 6, settle: 10 * time.Second},
	},
	{
		name: "result_of_retry_dropped", planted: "the result of a job that was tried again is dropped",
		caught: "a job has one recorded result", faults: "-",
		o: options{load: "flows", seconds: 6, settle: 10 * time.Second},
	},
	{
		name: "exit_code_dropped", planted: "the exit code of a script is dropped",
		caught: "a try ends as its script does", faults: "-",
		o: options{load: "flows", seconds: 6, settle: 10 * time.Second},
	},
	{
		name: "message_new_each_time", planted: "a message is stored whenever it is brought",
		caught: "no message is processed twice", faults: "line-double",
		o: options{load: "peers", seconds: 8, settle: 10 * time.Second},
	},
	{
		name: "unclear_is_refusal", planted: "a call of a peer without an answer is taken for a refusal",
		caught: "no message is lost", faults: "line-cut,line-drop",
		o: options{load: "peers", seconds: 10, settle: 15 * time.Second},
	},
	{
		name: "letters_without_queue", planted: "what an actor writes to a peer is brought without an order",
		caught: "messages of one caller keep their order", faults: "line-drop,line-late",
		o: options{load: "peers", seconds: 12, settle: 15 * time.Second},
	},
	{
		name: "done_is_reverted", planted: "a public transaction that is done is told as reverted, and not looked for",
		caught: "no intent is on the ledger twice", faults: "-",
		o: options{load: "domains", seconds: 6, settle: 10 * time.Second, rate: 240},
	},
	{
		name: "start_on_any", planted: "what depends on something open goes out with all others",
		caught: "what depends on another one waits for it", faults: "-",
		o: options{seconds: 12, rate: 240, queues: 4, worker: workerSettings{Takes: 100 * time.Millisecond}},
	},
}

// picked lists the twins that names picks: all, short (those of some seconds, one for each promise that they break), or
// names with commas between.
func picked(names string) (list []*twin, err error) {
	left := map[string]bool{}
	for _, name := range strings.Split(names, ",") {
		left[name] = true
	}
	for i := range twins {
		t := &twins[i]
		if left[t.name] || names == "all" || names == "short" && slices.Contains(short, t.name) {
			list = append(list, t)
		}
		delete(left, t.name)
	}
	delete(left, "all")
	delete(left, "short")
	for name := range left {
		return nil, fmt.Errorf("twin %q is not known: test/chaos/twins.md lists them; all, and short for %s", name,
			strings.Join(short, ", "))
	}
	return list, nil
}

// short are the twins that a change can be tried with in few minutes.
var short = []string{"lost_commit_is_no", "position_from_sequence", "effect_before_intent", "attempt_without_row",
	"sender_not_given_back", "callback_in_memory", "redirect_followed"}

// runTwins runs the scenarios of twins, and says after each which of them were caught. With control each of them runs
// again without its fault, and must not find it then. The table has each as soon as it
// was caught, beside those of earlier runs, so that a run that was broken off goes on with the names that it lacks.
func runTwins(ctx context.Context, bin, names, table string, control bool) error {
	list, err := picked(names)
	if err != nil {
		return err
	}
	var missed []string
	begun := time.Now()
	for i, t := range list {
		fmt.Printf("%d of %d, %s after the start: %s: %s\n", i+1, len(list), time.Since(begun).Round(time.Second),
			t.name, t.planted)
		began := time.Now()
		by, err := t.run(ctx, bin, t.name)
		took := time.Since(began).Seconds()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !slices.Contains(by, t.caught) {
			missed = append(missed, t.name)
			fmt.Printf("  MISSED in %.0f s: want %q, found %q %v\n", took, t.caught, by, err)
			continue
		}
		fmt.Printf("  caught in %.0f s by %s\n", took, t.caught)
		if control && t.pkg == "" {
			by, err := t.run(ctx, bin, "")
			if err != nil || slices.Contains(by, t.caught) {
				missed = append(missed, t.name)
				fmt.Printf("  WITHOUT THE FAULT it finds %q, too %v\n", by, err)
				continue
			}
		}
		if table == "" {
			continue
		}
		line := fmt.Sprintf("| `%s` | %s | %s | %.0f |", t.name, t.planted, t.by(), took)
		if err := intoTable(table, t.name, line); err != nil {
			return err
		}
	}
	fmt.Printf("%d of %d caught, in %s\n", len(list)-len(missed), len(list), time.Since(begun).Round(time.Second))
	if len(missed) > 0 {
		return fmt.Errorf("not caught: %s; again with -twins %s", strings.Join(missed, ", "), strings.Join(missed, ","))
	}
	return nil
}

// intoTable puts the line of a twin into the table, and keeps those of the others.
func intoTable(path, name, line string) error {
	text, _ := os.ReadFile(path)
	have := map[string]string{name: line}
	for _, old := range strings.Split(string(text), "\n") {
		if parts := strings.SplitN(old, "`", 3); len(parts) == 3 && parts[0] == "| " && parts[1] != name {
			have[parts[1]] = old
		}
	}
	out := tableHead
	for _, t := range twins {
		if have[t.name] != "" {
			out += have[t.name] + "\n"
		}
	}
	return os.WriteFile(path, []byte(out), 0o644)
}

const tableHead = "# Planted faults, and what found them\n\n" +
	"`make chaos-twins` writes this table. Each fault is planted behind the build tag `twin` (`internal/twin`), and has a scenario\n" +
	"of its own in `test/chaos/twins.go`, which also runs without the fault and must find nothing of it then. " +
	"Where a test\nis what finds it, the test passes without it in `make test`.\n\n" +
	"| twin | planted | caught by | seconds |\n|---|---|---|---|\n"

// by is how the table names what caught it.
func (t *twin) by() string {
	if t.pkg != "" {
		return "`" + t.caught + "` in `" + t.pkg + "`"
	}
	return t.caught
}

// run returns what found the fault that is planted, by names.
func (t *twin) run(ctx context.Context, bin, planted string) (by []string, err error) {
	os.Setenv("POSTERN_TWIN", planted)
	defer os.Unsetenv("POSTERN_TWIN")
	if t.pkg != "" {
		return t.runTest(ctx)
	}
	o := t.o
	o.bin, o.seed, o.bare = bin, 1, !t.stands
	o.rate, o.queues = max(o.rate, 60), max(o.queues, 40)
	if t.o.queues > 0 {
		o.queues = t.o.queues
	}
	if o.settle == 0 {
		o.settle = 15 * time.Second
	}
	if o.every == 0 {
		o.every = 2 * time.Second
	}
	if o.hasFlows() { // fewer than fewOpen, as what is broken may keep them open
		o.flows, o.open, o.runners, o.box, o.brief = fewOpen-1, fewOpen, 2, os.Getuid() == 0, true
	}
	if t.faults != "-" {
		if o.faults, err = chosen(t.faults, ""); err != nil {
			return nil, err
		}
		o.schedule = plan(o.seed, o.seconds, o.every, o.faults)
	}
	out, err := chaos(ctx, o)
	if err != nil {
		return nil, err
	}
	if os.Getenv("POSTERN_CHAOS_KEEP") == "" {
		os.RemoveAll(out.Dir)
	}
	for name := range out.Violations {
		by = append(by, name)
	}
	if out.Verify != "" {
		by = append(by, "postern verify")
	}
	sort.Strings(by)
	return slices.Compact(by), nil
}

// runTest runs the test that has to fail.
func (t *twin) runTest(ctx context.Context) (by []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "./internal/pgtest/cmd/with-postgres", "--",
		"go", "test", "-tags", "twin", "-count=1", "-timeout", "5m", "-run", "^"+t.caught+"$", t.pkg)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	if !strings.Contains(string(out), "--- FAIL: "+t.caught) {
		return nil, fmt.Errorf("the test did not run: %s", out)
	}
	return []string{t.caught}, nil
}
