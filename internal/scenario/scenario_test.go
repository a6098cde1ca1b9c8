package scenario_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/scenario"
)

var update = flag.Bool("update", false, "write what the stories say now into their files: the diff is the review")

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestStories(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenario/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in testdata/scenario: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			scenario.Run(t, f, *update)
		})
	}
}
