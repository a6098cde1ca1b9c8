package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands that remedies of doctor name exist, with the flags that are written there.
func TestTheRemediesOfDoctorNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../internal/pg/doctor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("postern ([a-z]+(?:-[a-z]+)*)((?: [a-z=A-Z_/]+)*)((?: --[a-z-]+)*)")
	found := 0
	for _, f := range append(files, "doctor.go") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "doctor" {
				continue
			}
			found++
			help := postern(t, nil, m[1], "-h")
			if help.code != 0 {
				t.Errorf("%s names %q, which is no command", f, m[0])
			}
			for _, flag := range strings.Fields(m[3]) {
				if !strings.Contains(help.stdout, flag) {
					t.Errorf("%s names %q: postern %s has no %s", f, m[0], m[1], flag)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("%d commands are found", found)
	}
}
