package leader_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

const vectors = "../../../shared/vectors/"

// vector reads a file of the vectors; where they are not beside this checkout, the test skips.
func vector(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(vectors + name)
	if os.IsNotExist(err) {
		t.Skipf("the vectors are not beside this checkout: %v", err)
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// S1.8, on the vectors of the design's reference.
func TestNamesOfToolsAreReadAsTheReferenceReadsThem(t *testing.T) {
	var v struct {
		Valid   []string
		Invalid map[string][]string
	}
	vector(t, "nexus_fqn.json", &v)
	if len(v.Valid) == 0 || len(v.Invalid) < 3 {
		t.Fatalf("the vectors hold %d valid names and %d texts", len(v.Valid), len(v.Invalid))
	}
	for _, s := range v.Valid {
		if f, err := leader.ParseFQN(s); err != nil || f.String() != s {
			t.Errorf("%q: %v %v", s, f, err)
		}
	}
	for text, list := range v.Invalid {
		for _, s := range list {
			if _, err := leader.ParseFQN(s); err == nil || err.Error() != text || fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v, want %q", s, err, text)
			}
		}
	}
}

func TestAToolHasOneSpelling(t *testing.T) {
	f, err := leader.ParseFQN("xyz.talus.labs.llm@007")
	if err != nil || f != (leader.FQN{Domain: "xyz.talus.labs", Name: "llm", Version: 7}) ||
		f.String() != "xyz.talus.labs.llm@7" {
		t.Errorf("%+v %v", f, err)
	}
	for s, text := range map[string]string{
		"":                         "Invalid tool FQN format",
		"labs.llm@1":               "Invalid tool FQN format", // two parts
		"xyz..llm@1":               "Invalid tool FQN format",
		"xyz.labs.llm@1\n":         "Invalid tool FQN format",
		"xyz.labs.llm":             "Invalid tool FQN format",
		"xyz.labs.llm@4294967295":  "",
		"xyz.labs.llm@00":          "Tool version cannot be zero",
		"xyz.labs.llm@99999999999": "Tool version too large",
		"xyz.labs." + strings.Repeat("l", 200) + "@1": "Invalid tool FQN format", // fits no path
	} {
		if _, err := leader.ParseFQN(s); (err == nil) != (text == "") || err != nil && err.Error() != text {
			t.Errorf("%q: %v, want %q", s, err, text)
		}
	}
}

func FuzzParseFQN(f *testing.F) {
	f.Add("xyz.taluslabs.example@1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := leader.ParseFQN(s)
		if err != nil {
			return
		}
		if b, err := leader.ParseFQN(a.String()); err != nil || a != b {
			t.Errorf("%q is %+v, its spelling %q is %+v, %v", s, a, a.String(), b, err)
		}
	})
}
