package pg

import (
	"fmt"
	"testing"
)

// A name that is asked for again and again stays known, however many others come. A name that is not asked for is given
// up, so that their number is bounded.
func TestNamesKeepWhatIsAskedFor(t *testing.T) {
	var n names
	key := func(i int64) nameKey { return nameKey{1, fmt.Sprintf("q-%d", i)} }
	const asked, forgotten = 1, 2
	n.add(key(asked), asked)
	n.add(key(forgotten), forgotten)
	n.forget(forgotten)
	if id := n.id(key(forgotten)); id != 0 {
		t.Fatalf("a name that was forgotten leads to %d", id)
	}
	for i := int64(10); i < 3*namesKept; i++ {
		n.add(key(i), i)
		if i%(namesKept/8) != 0 {
			continue
		}
		if id := n.id(key(asked)); id != asked {
			t.Fatalf("after %d others the name of queue %d leads to %d", i, asked, id)
		}
	}
	if k, known := n.key(asked); !known || k != key(asked) {
		t.Fatalf("queue %d has the name %v, %t", asked, k, known)
	}
	if _, known := n.key(10); known {
		t.Fatal("a name that nobody asked for while all others came is still known")
	}
	if kept := len(n.young.byID) + len(n.old.byID); kept > namesKept {
		t.Fatalf("%d names are kept, of at most %d", kept, namesKept)
	}
	n.forget(asked)
	if _, known := n.key(asked); known {
		t.Fatal("a queue that was forgotten still has a name")
	}
}
