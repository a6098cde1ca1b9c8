package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Limits of the growth of the binary. The dashboard's html/template looks methods up by name, so that the linker keeps
// them all, some 5 MiB.
const (
	mostModules = 70
	mostBytes   = 46 << 20
)

// modulesFile lists what is linked, a module a line with its licence: growth is read as a diff.
const modulesFile = "../../testdata/modules.txt"

var licences = []struct {
	name string
	text *regexp.Regexp
}{
	{"GPL", regexp.MustCompile(`GNU (AFFERO |LESSER )?GENERAL PUBLIC LICENSE`)}, // refused
	{"Apache-2.0", regexp.MustCompile(`Apache License\s+Version 2\.0`)},
	{"MPL-2.0", regexp.MustCompile(`Mozilla Public License,?\s+[Vv]ersion 2\.0`)},
	{"BSD", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify, and/?(or)? distribute this software`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge`)},
	{"public domain", regexp.MustCompile(`(?i)public domain`)},
}

func licenceOf(t *testing.T, dir string) string {
	t.Helper()
	files, _ := filepath.Glob(dir + "/[LlCU][IiOoN][CcPpL]*")
	for _, l := range licences {
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && l.text.Match(b) {
				return l.name
			}
		}
	}
	return "unknown"
}

func TestWhatIsLinkedIsListedAndFits(t *testing.T) {
	// -trimpath and CGO_ENABLED=0 would compile everything anew, and make it a tenth of a megabyte smaller
	release := binary
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		release = filepath.Join(t.TempDir(), "postern")
		build := exec.Command("go", "build", linked, "-o", release, ".")
		build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	info, err := os.Stat(release)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > mostBytes {
		t.Errorf("the binary has %d bytes, and room for %d", info.Size(), mostBytes)
	}
	out, err := exec.Command("go", "version", "-m", release).Output()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 || len(names) > mostModules {
		t.Errorf("%d modules are linked, and there is room for %d", len(names), mostModules)
	}
	list, err := exec.Command("go", append([]string{"list", "-m", "-json"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		licence := licenceOf(t, m.Dir)
		if licence == "GPL" || licence == "unknown" {
			t.Errorf("%s: the licence is %s", m.Path, licence)
		}
		got.WriteString(m.Path + " " + m.Version + " " + licence + "\n")
	}
	if *update {
		if err := os.WriteFile(modulesFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(modulesFile); err != nil || string(want) != got.String() {
		t.Errorf("%s is not what is linked (%v): run this test with -update and read the diff\n%s",
			modulesFile, err, got.String())
	}
}
