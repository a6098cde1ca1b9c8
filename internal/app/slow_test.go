package app

import (
	"testing"
	"time"
)

// A step of a start that takes long is named while it goes on, and one that is quick is not.
func TestAStepThatTakesLongIsNamed(t *testing.T) {
	was := slowAfter
	t.Cleanup(func() { slowAfter = was })
	said := make(chan string, 2)
	say := oneAtATime(func(line string) { said <- line })

	slowAfter = time.Hour
	tellSlow(say, "quick")()
	slowAfter = time.Millisecond
	done := tellSlow(say, "migrating the database")
	if line := <-said; line != "migrating the database ..." {
		t.Errorf("%q", line)
	}
	done()
	if len(said) > 0 {
		t.Errorf("%q is said, too", <-said)
	}
}
