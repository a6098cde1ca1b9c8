package devnetworker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// S4.6: the messages of a batch are the calls of one transaction.
func TestMessagesOfABatchAreCallsOfOneTransaction(t *testing.T) {
	w := &Worker{keys: Keystore{t.TempDir()}}
	for data, want := range map[string]string{
		`{"set": {"to": "app", "n": 1}}`:                                        `app.set()`,
		`[{"set": {"to": "app"}}, {"transfer": {"to": "acct", "amount": "7"}}]`: `app.set() acct.(7)`,
		`[]`:                        ``,
		`{"set": {}, "add": {}}`:    `Invalid`,
		`[{"set": {"to": "a"}}, 3]`: `Invalid`,
		`{"set": {"n": 1}}`:         `Invalid`, // of no app
		`{"set": 3}`:                `Invalid`,
	} {
		calls, err := w.prepare("EXECUTE", []byte(data))
		var got []string
		for _, c := range calls {
			amount := ""
			if c.Amount > 0 {
				amount = fmt.Sprint(c.Amount)
			}
			got = append(got, fmt.Sprintf("%s.%s(%s)", c.To, c.Method, amount))
		}
		if said := strings.Join(got, " "); err == nil && said != want || err != nil && want != "Invalid" ||
			want == "Invalid" && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %s %v, want %s", data, said, err, want)
		}
	}
}
