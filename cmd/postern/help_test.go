package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// helpFiles holds what -h of each command prints: the whole reference of the command line.
const helpFiles = "../../testdata/cli"

func TestHelpIsGolden(t *testing.T) {
	wanted := map[string]bool{}
	walk(root(), func(path string) {
		file := filepath.Join(helpFiles, strings.ReplaceAll(path, " ", "-")+".txt")
		wanted[filepath.Base(file)] = true
		got := help(t, path)
		if *update {
			if err := os.MkdirAll(helpFiles, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(stored, got) {
			t.Errorf("%s is not what `%s -h` prints (%v): run this test with -update and read the diff\n%s", file,
				path, err, got)
		}
	})
	files, err := filepath.Glob(helpFiles + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !wanted[filepath.Base(file)] {
			t.Errorf("%s is the help of no command: remove it", file)
		}
	}
}

// walk calls f with the path of every command of ours.
func walk(cmd *cobra.Command, f func(path string)) {
	f(cmd.CommandPath())
	for _, c := range cmd.Commands() {
		if c.Name() != "help" && c.Name() != "completion" && (cmd.HasParent() ||
			!slices.Contains(aliasedNouns(), c.Name())) {
			walk(c, f)
		}
	}
}

// help is what the command prints for -h.
func help(t *testing.T, path string) []byte {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append(strings.Fields(path)[1:], "-h"))
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
