package runner

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// A hold is written as it is read, so that the server is told of the tries that it handed out; and a ttl with which a
// runner works leaves it time between two heartbeats.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{"epoch":1,"ttl":"15s"}`, `{"epoch":1,"ttl":"1ns"}`, `{"ttl":"-1s"}`, `{"ttl":""}`,
		`{"jobs":[{"try":"t","fence":7}],"lost":[["t",7]]}`, `{"jobs":null,"lost":null}`, `{"jobs":[null]}`,
		`{"ttl":"1h","lost":[["t",1764189390123]],"stop":[["u",-1]]}`, `{"lost":[["t"]]}`, `{"lost":[[]]}`,
		`{"lost":[["t",1.5]]}`, `{"lost":[["t","7"]]}`, `{"lost":[[null,null]]}`, `{"stop":[null]}`, `null`, `[]`,
		`{"ttl":"2562047h47m16.854775807s"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var registered RegisterAnswer
		var claimed ClaimAnswer
		var renewed RenewAnswer
		_ = json.Unmarshal(raw, &registered) // what cannot be read of one may be read of another
		_ = json.Unmarshal(raw, &claimed)
		_ = json.Unmarshal(raw, &renewed)
		for _, text := range []string{registered.TTL, renewed.TTL} {
			ttl, err := readTTL(text)
			if err == nil && (ttl/3 < 100*time.Millisecond || ttl-margin(ttl) <= ttl/3) {
				t.Errorf("%q: a ttl of %s", raw, ttl)
			}
		}
		holds := slices.Concat(claimed.Lost, renewed.Lost, renewed.Stop)
		b, err := json.Marshal(holds)
		if err != nil {
			t.Fatal(err)
		}
		var again []Hold
		if err := json.Unmarshal(b, &again); err != nil || !slices.Equal(again, holds) {
			t.Errorf("%q: %v is read back as %v: %v", raw, holds, again, err)
		}
	})
}
