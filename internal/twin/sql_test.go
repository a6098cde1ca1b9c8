//go:build twin

package twin

import "testing"

// A rewrite that does not fit its statement any more ends the program, planted or not.
func TestARewriteFitsOnce(t *testing.T) {
	was := planted
	defer func() { planted = was }()
	planted = "a"
	if got := SQL("a", "SELECT 1 WHERE x AND y", "x AND ", ""); got != "SELECT 1 WHERE y" {
		t.Error(got)
	}
	if got := SQL("b", "SELECT 1 WHERE x AND y", "x AND ", ""); got != "SELECT 1 WHERE x AND y" {
		t.Error(got)
	}
	for _, text := range []string{"SELECT 1", "x x"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken", text)
				}
			}()
			SQL("b", text, "x", "")
		}()
	}
}
