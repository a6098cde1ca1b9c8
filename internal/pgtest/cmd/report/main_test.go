package main

import (
	"strings"
	"testing"
)

func TestTheReportShowsFailuresAndLeavesOutTheRest(t *testing.T) {
	in := `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":2.5}
{"Action":"pass","Package":"p","Test":"TestGood/part","Elapsed":2.4}
{"Action":"pass","Package":"p","Test":"TestLong","Elapsed":61}
{"Action":"pass","Package":"p","Test":"TestShort","Elapsed":0.9}
{"Action":"output","Package":"p","Test":"TestAway","Output":"=== RUN   TestAway\n"}
{"Action":"output","Package":"p","Test":"TestAway","Output":"    a_test.go:3: no chromium: apt-get install chromium\n"}
{"Action":"skip","Package":"p","Test":"TestAway"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`
	var out strings.Builder
	if code := report(strings.NewReader(in), &out); code != 0 {
		t.Errorf("exit code %d for a run without failures", code)
	}
	want := "ok  \tp\t0.1s\n\n4 tests passed, 0 tests and packages failed, 1 skipped (not tried)\n" +
		"  p TestAway: a_test.go:3: no chromium: apt-get install chromium\n" +
		"\nseconds of the longest tests:\n   61.0  p TestLong\n    2.5  p TestGood\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	in = `{"Action":"output","Package":"p","Test":"TestBad","Output":"    a_test.go:9: 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"build-output","ImportPath":"q","Output":"q.go:1: undefined: x\n"}
{"Action":"build-fail","ImportPath":"q"}
`
	if code := report(strings.NewReader(in), &out); code != 1 {
		t.Errorf("exit code %d for a run with failures", code)
	}
	for _, s := range []string{"a_test.go:9: 1, want 2", "FAIL\tp", "q.go:1: undefined"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("the report lacks %q:\n%s", s, out.String())
		}
	}
	if report(strings.NewReader(""), &out) != 1 {
		t.Error("a run of which nothing is known counts as good")
	}
}
