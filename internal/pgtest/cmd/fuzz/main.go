// Command fuzz runs the fuzz targets of this module, one after the other, each for a while, and says which one it is at
// and what came of it. Arguments are regular expressions: only targets that one of them matches are run. It ends with 1
// where one has found something. With -keep it adds to the corpus of each target, which every test run tries.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// target is one fuzz target.
type target struct{ folder, name string }

func main() {
	long := flag.Duration("time", 10*time.Second, "how long each target is run")
	workers := flag.Int("workers", 2, "how many processes of a target run at once")
	keep := flag.Int("keep", 0, "how many inputs that reach code of their own a corpus is filled up to")
	flag.Parse()
	list, err := targets(".", flag.Args())
	if err != nil || len(list) == 0 {
		fmt.Fprintln(os.Stderr, "no fuzz target is found:", err)
		os.Exit(2)
	}
	failed := 0
	for i, t := range list {
		fmt.Printf("%2d of %d  %-40s %s ", i+1, len(list), t.name, t.folder)
		begun := time.Now()
		said, err := t.run(*long, *workers)
		if err != nil {
			failed++
			fmt.Printf("FOUND SOMETHING\n%s\n", said)
			continue
		}
		kept, err := t.keep(*keep)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		fmt.Printf("ok, %s in %s%s\n", executions(said), time.Since(begun).Round(time.Second), kept)
	}
	if failed > 0 {
		fmt.Printf("%d of %d targets found something: it is below testdata/fuzz of their packages\n", failed, len(list))
		os.Exit(1)
	}
}

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// targets finds the targets below a folder that belong to its module, of those that match.
func targets(root string, match []string) (list []target, err error) {
	wanted := func(name string) bool {
		for _, m := range match {
			if ok, _ := regexp.MatchString(m, name); ok {
				return true
			}
		}
		return len(match) == 0
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (another(path) || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			if wanted(found[1]) {
				list = append(list, target{"./" + filepath.Dir(path), found[1]})
			}
		}
		return err
	})
	return list, err
}

// another says whether a folder is another module, or none.
func another(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil || filepath.Base(folder) == "node_modules"
}

// run runs a target for a while.
func (t target) run(long time.Duration, workers int) (said string, err error) {
	cmd := exec.Command("go", "test", t.folder, "-run", "^$", "-fuzz", "^"+t.name+"$",
		"-fuzztime", long.String(), "-parallel", fmt.Sprint(workers), "-timeout", "30m")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if said = out.String(); strings.Contains(said, "context deadline exceeded") && !strings.Contains(said,
		"Failing input") {
		return said, nil // go test takes a process that ends late for a failure where the machine is busy
	}
	return said, err
}

var counted = regexp.MustCompile(`execs: (\d+)`)

// executions is how often a target was run, as go test has said it last.
func executions(said string) string {
	found := counted.FindAllStringSubmatch(said, -1)
	if len(found) == 0 {
		return "an unknown number of tries"
	}
	return found[len(found)-1][1] + " tries"
}

// keep fills the committed corpus of a target up to n inputs, with the shortest of those that go has found to reach
// code of their own.
func (t target) keep(n int) (said string, err error) {
	if n == 0 {
		return "", nil
	}
	cached, err := t.cached()
	if err != nil {
		return "", err
	}
	corpus := filepath.Join(t.folder, "testdata", "fuzz", t.name)
	have, _ := os.ReadDir(corpus) // none, before the first
	slices.SortStableFunc(cached, func(a, b input) int { return cmp.Compare(len(a.text), len(b.text)) })
	added := 0
	for _, c := range cached {
		if len(have)+added >= n {
			break
		}
		if slices.ContainsFunc(have, func(d fs.DirEntry) bool { return d.Name() == c.name }) {
			continue
		}
		if err := os.MkdirAll(corpus, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(corpus, c.name), c.text, 0o644); err != nil {
			return "", err
		}
		added++
	}
	return fmt.Sprintf(", %d inputs kept", added), nil
}

// input is one that go keeps in its cache.
type input struct {
	name string
	text []byte
}

// cached reads the inputs of a target that reach code of their own.
func (t target) cached() (list []input, err error) {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOCACHE: %w", err)
	}
	pkg, err := exec.Command("go", "list", t.folder).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", t.folder, err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "fuzz", strings.TrimSpace(string(pkg)), t.name)
	files, _ := os.ReadDir(folder) // none, where no input reached code of its own
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, input{f.Name(), text})
	}
	return list, nil
}
