package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStoryReadsBackAsItWasWritten(t *testing.T) {
	const text = "# a story\npost queue=q a b\nrows\n----\nq 1 a WAITING\nq 2 b WAITING\n\n# nothing is said\nround\n"
	list, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := render(list); got != text {
		t.Errorf("%q", got)
	}
	if len(list) != 2 || len(list[0].said) != 2 || len(list[1].said) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestACommandHasWordsAndOptions(t *testing.T) {
	c, err := parseCommand(`post a data='{"x": "y=z"}' 'json:{"n": 1}' queue=q`)
	if err != nil {
		t.Fatal(err)
	}
	if c.name != "post" || strings.Join(c.words, "|") != `a|json:{"n": 1}` ||
		c.options["data"] != `{"x": "y=z"}` || c.options["queue"] != "q" {
		t.Errorf("%+v", c)
	}
	if c.word() != "a" || c.option("queue", "") != "q" || c.option("none", "else") != "else" {
		t.Errorf("%+v", c)
	}
	if err := c.left(); err == nil {
		t.Error("what nobody used is accepted")
	}
	for _, bad := range []string{"post 'a", "post queue=a queue=b"} {
		if _, err := parseCommand(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestEveryCommandIsToldInSomeStory(t *testing.T) {
	for name := range commands {
		if !toldSomewhere(t, name) {
			t.Errorf("no story uses %s: it may be wrong, or of no use", name)
		}
	}
}

// toldSomewhere looks for a command in the stories.
func toldSomewhere(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../../testdata/scenario/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains("\n"+string(text), "\n"+name+" ") || strings.Contains("\n"+string(text), "\n"+name+"\n") {
			return true
		}
	}
	return false
}
