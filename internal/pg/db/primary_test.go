package db

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// TestOnlyOneServerTakesWrites is what is asked before a database is checked, where nothing was seen before.
func TestOnlyOneServerTakesWrites(t *testing.T) {
	t.Parallel()
	a := sighting{host: "a", system: 7, started: "1", timeline: 1}
	b := sighting{host: "b", system: 7, started: "2", timeline: 2}
	alias := a
	alias.host = "alias"
	standby := b
	standby.standby = true
	foreign := sighting{host: "c", system: 8, started: "3", timeline: 1}
	for _, c := range []struct {
		name string
		seen []sighting
		want string
	}{
		{name: "none answers"},
		{name: "one", seen: []sighting{a}},
		{name: "one by two names", seen: []sighting{a, alias}},
		{name: "one and its standby", seen: []sighting{a, standby}},
		{name: "a standby alone", seen: []sighting{standby}},
		{name: "two of a cluster", seen: []sighting{b, a}, want: "a is the old primary, if b was promoted after it"},
		{name: "two clusters", seen: []sighting{a, foreign}, want: "nothing tells here"},
	} {
		err := one(survey{seen: c.seen})
		if c.want == "" && err != nil || c.want != "" && (fault.CodeOf(err) != "two_primaries" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestWhichServerIsTaken is the whole table by which a server is taken or refused.
func TestWhichServerIsTaken(t *testing.T) {
	t.Parallel()
	a1 := sighting{host: "a", system: 7, started: "1", timeline: 1}
	a2 := sighting{host: "a", system: 7, started: "1", timeline: 2}
	b1 := sighting{host: "b", system: 7, started: "2", timeline: 1}
	b2 := sighting{host: "b", system: 7, started: "2", timeline: 2}
	standby := func(s sighting) sighting { s.standby = true; return s }
	foreign := sighting{host: "c", system: 8, started: "3", timeline: 9}
	renamed := a1
	renamed.host = "alias"
	for _, c := range []struct {
		name         string
		here, before sighting
		others       survey
		want         string // of the refusal, empty for none
	}{
		{name: "one host at the start", here: a1},
		{name: "a restart", here: a1, before: a1},
		{name: "a promoted standby", here: b2, before: a1},
		{name: "one host that is behind: the witnesses decide", here: a1, before: b2},
		{name: "a standby", here: standby(a1), before: a1, want: "is a standby"},
		{name: "with its standby beside it", here: a1, others: survey{seen: []sighting{a1, standby(b1)}}},
		{name: "the same server by two names", here: a1, others: survey{seen: []sighting{a1, renamed}}},
		{name: "two that take writes, at the start", here: a2, others: survey{seen: []sighting{a2, b1}}, want: "two servers take writes"},
		{name: "two of different clusters, at the start", here: a1, others: survey{seen: []sighting{a1, foreign}}, want: "two servers take writes"},
		{name: "two of one timeline, later", here: a1, before: a1, others: survey{seen: []sighting{a1, b1}}, want: "two servers take writes"},
		{name: "an old primary beside the promoted one", here: a1, before: b2, others: survey{seen: []sighting{a1, b2}}, want: "is an old primary"},
		{name: "the same, and the promotion was not yet seen", here: a1, before: a1, others: survey{seen: []sighting{a1, b2}}, want: "is an old primary"},
		{name: "the promoted one beside an old primary", here: b2, before: a1, others: survey{seen: []sighting{a1, b2}}},
		{name: "an old primary, and only a standby of the new one answers", here: a1, before: a1, others: survey{seen: []sighting{a1, standby(b2)}}, want: "is an old primary"},
		{name: "behind what was seen, and a host is silent", here: a1, before: b2, others: survey{seen: []sighting{a1}, silent: 1}, want: "this process has seen 2"},
		{name: "behind what was seen, and all answer: the witnesses decide", here: a1, before: b2, others: survey{seen: []sighting{a1, standby(b1)}}},
		{name: "another cluster with a lower timeline: the witnesses decide", here: a1, before: foreign, others: survey{seen: []sighting{a1}, silent: 1}},
	} {
		err := judge(c.here, c.before, c.others)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case strings.HasPrefix(c.want, "two") != (fault.CodeOf(err) == "two_primaries"):
			t.Errorf("%s: code %s", c.name, fault.CodeOf(err))
		}
	}
}
