package remote_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// strangers are bodies that are none of the contract, as gateways and frameworks write them.
var strangers = []string{
	``, `{}`, `{"message":"no Route matched"}`, `{"statusCode":500}`, `{"error":{"code":404}}`,
	`{"error":"bad_request"}`, `oops`,
}

// page is what a proxy, a firewall or a login says.
const page = "<!DOCTYPE html><html><body>Sorry</body></html>"

// rowOf54 is one row of the table of paragraph 5.4.
type rowOf54 struct {
	statuses, body, class string
}

// fits says whether a row speaks of an answer.
func (r rowOf54) fits(status int, body string) bool {
	if r.body == "an HTML page" && body != page {
		return false
	}
	if strings.HasSuffix(r.body, "that cannot") { // whether a worker can be asked is not known here
		return false
	}
	for _, s := range regexp.MustCompile(`\d\w\w`).FindAllString(r.statuses, -1) {
		if s == fmt.Sprint(status) || strings.HasSuffix(s, "xx") && s[0] == fmt.Sprint(status)[0] {
			return true
		}
	}
	return false
}

// table54 reads that table.
func table54(t *testing.T) (rows []rowOf54) {
	t.Helper()
	text, err := os.ReadFile("../../docs/worker-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "**5.4**")
	table, _, _ = strings.Cut(table, "**5.5**")
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| (\w+) \|`).FindAllStringSubmatch(table, -1) {
		rows = append(rows, rowOf54{row[1], row[2], row[3]})
	}
	return rows
}

// The table of the page is what Postern does: each status, with bodies of all kinds that are none of the contract. The
// first row that fits counts.
func TestAnAnswerThatIsNoneOfTheContractIsClassedAsThePageSays(t *testing.T) {
	t.Parallel()
	rows := table54(t)
	client := remotetest.Client(t)
	for status := 200; status < 600; status++ {
		if status == 204 || status == 205 || status == 304 { // have no body
			continue
		}
		fake := remotetest.NewFake(t)
		for _, body := range append([]string{page}, strangers...) {
			want := ""
			if i := slices.IndexFunc(rows, func(r rowOf54) bool { return r.fits(status, body) }); i >= 0 {
				want = rows[i].class
			}
			fake.Script(remotetest.Match{}, remotetest.HTTP(status, body))
			a := client.Dispatch(t.Context(), remotetest.Call(fake.URL(), 1))
			if string(a.Class) != want || a.Told || want == "" {
				t.Errorf("HTTP %d %q: class %q, told %t, want %q", status, body, a.Class, a.Told, want)
			}
		}
		fake.Refuse()
	}
	if a := client.Dispatch(t.Context(), remote.Call{BaseURL: "http://127.0.0.1:1", Type: "T"}); a.Class != "blocked" {
		t.Errorf("nobody listens: %+v", a)
	}
}
