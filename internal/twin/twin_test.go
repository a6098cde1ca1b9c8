//go:build !twin

package twin_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/twin"
)

var planted = regexp.MustCompile(`twin\.(?:Planted|SQL)\("([a-z_]+)"`)

// The program that is released has no fault planted, whatever the environment says, and holds the name of none.
func TestTheProgramHoldsNoTwin(t *testing.T) {
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range planted.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("%d names, %v", len(names), err)
	}
	binary := filepath.Join(t.TempDir(), "postern")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/postern")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for name := range names {
		t.Setenv("POSTERN_TWIN", name)
		if bytes.Contains(text, []byte(name)) || twin.Planted(name) {
			t.Errorf("the program knows %s", name)
		}
	}
	if bytes.Contains(text, []byte("POSTERN_TWIN")) {
		t.Error("the program knows the variable that chooses a fault")
	}
}
