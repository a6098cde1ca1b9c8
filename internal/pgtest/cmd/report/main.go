// Command report reads what `go test -json` prints and shows what people want of it: a line per package,
// the output of what failed, and at the end the tests that took longest and every skip with its reason,
// since what no run has shown is not tested. It ends with 1 if anything failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// longest is the number of tests that are named with their times.
const longest = 25

// event is one line of test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// name of the test or package that the event is about.
type name struct{ pkg, test string }

func main() { os.Exit(report(os.Stdin, os.Stdout)) }

// report copies what matters from in to out and returns the exit code.
func report(in io.Reader, out io.Writer) int {
	output := map[name][]string{}
	var skips []string
	var ended []event
	failed, passed, seen := 0, 0, false
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // a tool that does not speak JSON
			continue
		}
		seen = true
		n := name{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[n] = append(output[n], e.Output)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			failed++
		case "pass", "fail", "skip":
			if e.Test == "" {
				fmt.Fprint(out, last(output[n], e.Action == "fail"))
				if e.Action == "fail" && len(output[n]) == 0 {
					fmt.Fprintf(out, "FAIL\t%s\n", e.Package)
				}
			} else if e.Action == "fail" {
				fmt.Fprint(out, strings.Join(output[n], ""))
			} else if e.Action == "skip" {
				skips = append(skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(output[n])))
			}
			if e.Test != "" && !strings.Contains(e.Test, "/") {
				ended = append(ended, e)
			}
			if e.Action == "fail" {
				failed++
			} else if e.Action == "pass" && e.Test != "" {
				passed++
			}
			if e.Action != "fail" {
				delete(output, n)
			}
		}
	}
	fmt.Fprintf(out, "\n%d tests passed, %d tests and packages failed, %d skipped (not tried)\n", passed,
		failed, len(skips))
	for _, s := range skips {
		fmt.Fprintln(out, "  "+s)
	}
	showLongest(out, ended)
	if failed > 0 || !seen || lines.Err() != nil {
		return 1
	}
	return 0
}

// showLongest names the tests that took longest, in seconds, without those below one.
func showLongest(out io.Writer, ended []event) {
	slices.SortStableFunc(ended, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for i, e := range ended {
		if i == longest || e.Elapsed < 1 {
			return
		}
		if i == 0 {
			fmt.Fprintln(out, "\nseconds of the longest tests:")
		}
		fmt.Fprintf(out, "%7.1f  %s %s\n", e.Elapsed, e.Package, e.Test)
	}
}

// last is what a package says of itself: its ok line, or all of its output if it failed.
func last(lines []string, all bool) string {
	if all {
		return strings.Join(lines, "")
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "ok") || strings.Contains(lines[i], "no test files") {
			return lines[i]
		}
	}
	return ""
}

// reason is what a test said when it skipped, without the frame around it.
func reason(lines []string) string {
	var said []string
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			said = append(said, l)
		}
	}
	return strings.Join(said, " ")
}
