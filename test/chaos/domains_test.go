package main

import (
	"os"
	"slices"
	"testing"
	"time"
)

// Three installations carry each intent out once while they, the lines between them and the ledger are broken, for as
// many seconds as POSTERN_CHAOS_DOMAINS says. make chaos ARGS="-load domains -seconds 600" does it at length.
func TestThreeInstallationsWhileEverythingBreaks(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("POSTERN_CHAOS_DOMAINS"))
	if err != nil {
		t.Skip("POSTERN_CHAOS_DOMAINS=60s breaks three installations for a minute")
	}
	breakAll(t, options{load: "domains", seconds: int(length.Seconds()), rate: 60, every: 3 * time.Second})
}

// goodDomain is an intent that made tokens, one that paid and one behind that, and one that failed.
func goodDomain() *domainEvidence {
	row := func(uid, id, receipt string) intentRow {
		return intentRow{UID: uid, ID: id, State: "Confirmed", Receipt: receipt}
	}
	e := &domainEvidence{
		posts: []*intentPost{{uid: "mint-alice-0", id: "m"}, {uid: "one", id: "1"}, {uid: "two", id: "2", needs: "one"},
			{uid: "bad", id: "3"}},
		rows: []intentRow{row("mint-alice-0", "m", "success"), row("one", "1", "success"), row("two", "2", "success"),
			row("bad", "3", "failure")},
		worth:  map[string]int{"c0": mintedCoins * tokenWorth, "c1": 7, "c2": mintedCoins*tokenWorth - 7, "c3": 7},
		events: []event{{"note", "intent.m"}, {"create", "coin.c0"}},
	}
	e.events = append(e.events, event{"note", "intent.1"}, event{"require", "coin.c0"}, event{"create", "spent.c0"},
		event{"create", "coin.c1"}, event{"create", "coin.c2"})
	e.events = append(e.events, event{"note", "intent.2"}, event{"require", "coin.c1"}, event{"create", "spent.c1"},
		event{"create", "coin.c3"})
	return e
}

// The checker of a domain finds each violation that it looks for, and none where all is well.
func TestTheCheckerOfADomainFindsWhatIsWrong(t *testing.T) {
	look := func(e *domainEvidence) (domainCounts, map[string]int) {
		wrong := map[string]int{}
		n := e.check(func(invariant, _ string, _ ...any) { wrong[invariant]++ })
		return n, wrong
	}
	if n, wrong := look(goodDomain()); len(wrong) > 0 || n.Intents != 4 || n.Succeeded != 3 || n.Failed != 1 {
		t.Fatalf("nothing is wrong, and it finds %v, and counts %+v", wrong, n)
	}
	for _, c := range []struct {
		invariant string
		spoil     func(*domainEvidence)
	}{
		{"every answer is a success or retryable", func(e *domainEvidence) { e.posts[1].bad = "500" }},
		{"every post is answered in the end", func(e *domainEvidence) { e.posts[1].id = "" }},
		{"an intent has one receipt", func(e *domainEvidence) { e.rows = e.rows[1:] }},
		{"an intent has one receipt", func(e *domainEvidence) { e.rows = append(e.rows, e.rows[1]) }},
		{"an intent is what was posted", func(e *domainEvidence) { e.rows[1].Side = 2 }},
		{"an intent is what was posted", func(e *domainEvidence) { e.posts[1].id = "9" }},
		{"an intent is what was posted", func(e *domainEvidence) { e.events[7].To = "intent.9" }},
		{"no intent is on the ledger twice", func(e *domainEvidence) { e.events = append(e.events, e.events[2]) }},
		{"what succeeded is on the ledger", func(e *domainEvidence) { e.events = e.events[:7] }},
		{"what failed is not on the ledger", func(e *domainEvidence) { e.rows[1].Receipt = "failure" }},
		{"no dependent before its producer", func(e *domainEvidence) {
			e.events = slices.Concat(e.events[:2], e.events[7:], e.events[2:7])
		}},
		{"a token is spent once", func(e *domainEvidence) { e.events = append(e.events, event{"create", "spent.c1"}) }},
		{"a token is spent once", func(e *domainEvidence) { e.events = append(e.events, event{"create", "spent.c9"}) }},
		{"intents succeed", func(e *domainEvidence) {
			for i := range e.rows {
				e.rows[i].Receipt = "failure"
			}
		}},
		{"balances are conserved", func(e *domainEvidence) { e.worth["c3"] = 8 }},
	} {
		e := goodDomain()
		c.spoil(e)
		if _, wrong := look(e); wrong[c.invariant] == 0 {
			t.Errorf("it does not find that %q is violated: %v", c.invariant, wrong)
		}
	}
}
