package remote_test

import (
	"fmt"
	"maps"
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

// classes reads the table of paragraph 5.4: the class of each HTTP status whose body is none of the contract.
func classes(t *testing.T) (byStatus map[int]string, ofPage string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/worker-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "**5.4**")
	table, _, _ = strings.Cut(table, "**5.5**")
	byStatus, rest := map[int]string{}, map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| (\w+) \|`).FindAllStringSubmatch(table, -1) {
		statuses, body, class := row[1], row[2], row[3]
		if class == "class" || strings.HasSuffix(body, "that cannot") { // where it cannot be asked is not known here
			continue
		}
		if strings.HasSuffix(body, "HTML page") {
			ofPage = class
			continue
		}
		for _, s := range regexp.MustCompile(`\d\w\w`).FindAllString(statuses, -1) {
			var n int
			if strings.HasSuffix(s, "xx") {
				rest[s[:1]] = class
			} else if _, err := fmt.Sscan(s, &n); err == nil {
				byStatus[n] = class
			}
		}
	}
	for n := 200; n < 600; n++ {
		if _, named := byStatus[n]; !named {
			byStatus[n] = rest[fmt.Sprint(n)[:1]]
		}
	}
	return byStatus, ofPage
}

// The table of the page is what Postern does: each status, with bodies of all kinds that are none of the contract.
func TestAnAnswerThatIsNoneOfTheContractIsClassedAsThePageSays(t *testing.T) {
	t.Parallel()
	byStatus, ofPage := classes(t)
	client := remotetest.Client(t)
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		if status == 204 || status == 205 || status == 304 { // have no body
			continue
		}
		fake := remotetest.NewFake(t)
		for _, body := range append([]string{page}, strangers...) {
			want := byStatus[status]
			if body == page && (status < 300 || status >= 400 && status < 500) {
				want = ofPage
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
