package outbox_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestADurationIsWrittenWithItsUnit(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", 10 * time.Minute: "10m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", 10 * time.Second: "10s"} {
		if s := outbox.Duration(d).String(); s != want {
			t.Errorf("%v is written as %s, want %s", d, s, want)
		}
	}
	for s, want := range map[string]time.Duration{`"90s"`: 90 * time.Second, `"24h"`: 24 * time.Hour, `"1.5s"`: 1500 * time.Millisecond, `"0s"`: 0} {
		var d outbox.Duration
		if err := json.Unmarshal([]byte(s), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s is read as %v, %v", s, time.Duration(d), err)
		}
		b, err := json.Marshal(d)
		var again outbox.Duration
		if err != nil || json.Unmarshal(b, &again) != nil || again != d {
			t.Errorf("%s is written as %s, %v", s, b, err)
		}
	}
	for _, s := range []string{`90`, `"90"`, `""`, `"soon"`, `true`, `{}`} {
		var d outbox.Duration
		if json.Unmarshal([]byte(s), &d) == nil {
			t.Errorf("%s is read as %v", s, time.Duration(d))
		}
	}
}

func TestTheValueThatExcludesOthers(t *testing.T) {
	t.Parallel()
	const long = "sha256:f6aded27d6860380436f8521caa75568b9504f97b8927dceb41de307362e8cd7"
	const data = `{"zk": "B62", "n": 1.0, "deep": {"a/b": [10, {"x~y": null}]}, "text": "a b"}`
	for _, c := range []struct {
		exclusive, data, want string
		excludes              bool
	}{
		{"", data, "", false},
		{"none", data, "", false},
		{"type", data, "", true},
		{"field:/zk", data, `"B62"`, true},
		{"field:/n", data, `1`, true},
		{"field:/n", `{"n": 1}`, `1`, true},
		{"field:/n", `{"n": 10e-1}`, `1`, true},
		{"field:/n", `{"n": "1"}`, `"1"`, true},
		{"field:/n", `{"n": -0.0}`, `0`, true},
		{"field:/n", `{"n": 1e2}`, `100`, true},
		{"field:/n", `{"n": 15e-4}`, `0.0015`, true},
		{"field:/n", `{"n": 1e300}`, `1e300`, true},
		{"field:/n", `{"n": 12345678901234567890.10}`, `12345678901234567890.1`, true},
		{"field:/deep", `{"deep": {"bb": 2, "a": 1.0}}`, `{"a":1,"bb":2}`, true},
		{"field:/zk", `{"zk": "B\u0036\u0032"}`, `"B62"`, true},
		{"field:/zk", `{"zk": "` + strings.Repeat("x", 5000) + `"}`, long, true},
		{"group:zkapp:/zk", data, `"B62"`, true},
		{"field:/deep/a~1b/0", data, `10`, true},
		{"field:/deep/a~1b/1/x~0y", data, `null`, true},
		{"field:/deep/a~1b/2", data, `null`, true},
		{"field:/deep/a~1b/-1", data, `null`, true},
		{"field:/absent", data, `null`, true},
		{"field:/absent/further", data, `null`, true},
		{"field:/zk/further", data, `null`, true},
		{"field:/deep", `{"deep": { "b" : 1 }}`, `{"b":1}`, true},
		{"field:/zk", `[1]`, `null`, true},
		{"field:/zk", ``, `null`, true},
	} {
		d := outbox.Dispatcher{Exclusive: outbox.Exclusive(c.exclusive)}
		if got, excludes := d.ExclusiveValue(json.RawMessage(c.data)); got != c.want || excludes != c.excludes {
			t.Errorf("%s of %s is %s (%v), want %s (%v)", c.exclusive, c.data, got, excludes, c.want, c.excludes)
		}
	}
}

func TestTheDefaultsOfADispatcher(t *testing.T) {
	t.Parallel()
	d := outbox.DefaultDispatcher() // S2.16
	if d.Slots != 64 || d.Exclusive != "none" || time.Duration(d.Timeouts.Dispatch) != 10*time.Minute || time.Duration(d.Inclusion.Deadline) != 10000*time.Second ||
		time.Duration(d.Inclusion.PollEvery) != 10*time.Second || time.Duration(d.Inclusion.UnknownGrace) != 5*time.Minute || d.Inclusion.Confirmations != 1 ||
		d.Fee.BumpPercent != 10 || d.Fee.CapPercent != 200 || d.Idempotent || !d.Replaceable || !d.Retry.OnFailed {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		pool           string
		retries        int
		atMost, around time.Duration // what all delays are together
	}{{"", 10, 92 * time.Minute, 46 * time.Minute}, {"p", 5, 4 * time.Minute, 2 * time.Minute}} { // S2.9
		d := outbox.DefaultDispatcher()
		d.Pool = c.pool
		most := d.Backoff().Most(d.DefaultMaxRetries())
		if time.Duration(d.Retry.Initial) != 15*time.Second || d.Retry.Factor != 2 || d.DefaultMaxRetries() != c.retries ||
			most > c.atMost || most < c.atMost*9/10 || most/2 > c.around {
			t.Errorf("pool %q: %+v, %d retries within %s", c.pool, d.Retry, d.DefaultMaxRetries(), most)
		}
	}
}

func TestWhatAllDelaysAreTogether(t *testing.T) {
	t.Parallel()
	second := outbox.Duration(time.Second)
	for _, c := range []struct {
		retry outbox.Retry
		n     int
		want  time.Duration
	}{
		{outbox.Retry{Kind: "exponential", Initial: second, Factor: 2, Cap: 4 * second}, 0, 0},
		{outbox.Retry{Kind: "exponential", Initial: second, Factor: 2, Cap: 4 * second}, 4, 11 * time.Second},
		{outbox.Retry{Kind: "exponential", Initial: second, Factor: 2, Cap: 4 * second}, 10000, 3*time.Second + 9998*4*time.Second},
		{outbox.Retry{Kind: "exponential", Initial: second, Factor: 2}, 10000, math.MaxInt64},
		{outbox.Retry{Kind: "fixed", Initial: 30 * second, Factor: 9, Cap: second}, 3, 90 * time.Second},
		{outbox.Retry{Kind: "fixed", Initial: outbox.Duration(30 * 24 * time.Hour)}, 10000, math.MaxInt64},
	} {
		if got := c.retry.Most(c.n); got != c.want {
			t.Errorf("%d retries of %+v wait for %s at most, want %s", c.n, c.retry, got, c.want)
		}
	}
}

func TestACapThatNobodySaidFollowsThePool(t *testing.T) {
	t.Parallel()
	minute := outbox.Duration(time.Minute)
	for _, c := range []struct {
		kind, pool          string
		initial, said, want outbox.Duration
	}{
		{"exponential", "", minute, 0, 20 * minute},
		{"exponential", "p", minute, 0, minute},
		{"exponential", "p", 2 * minute, 0, 2 * minute},
		{"exponential", "", 60 * minute, 0, 60 * minute},
		{"exponential", "p", minute, 20 * minute, 20 * minute},
		{"fixed", "", 60 * minute, 0, 0},
		{"fixed", "p", 60 * minute, minute, 0},
	} {
		r := outbox.Retry{Kind: c.kind, Initial: c.initial, Factor: 2, Cap: c.said}
		d := outbox.Dispatcher{Pool: c.pool, Retry: r}
		if got := d.Backoff(); got.Cap != c.want || (got.Factor == 0) != (c.kind == "fixed") || d.Retry.Cap != c.said {
			t.Errorf("%+v has %+v, want the cap %s", c, got, c.want)
		}
	}
}
