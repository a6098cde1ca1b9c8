package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// actors are an installation of processes with keys of several actors: two admins, an executor and a reader of one
// context, and a stranger, who is an admin of another one.
type actors struct {
	t    *testing.T
	api  string
	keys map[string]string
	db   *pgx.Conn
	of   map[string]string // what {name} stands for in a path, a body and a header
}

func newActors(t *testing.T) *actors {
	t.Helper()
	dir, db := t.TempDir(), pgtest.New(t).URL
	root := filepath.Join(dir, "root")
	postern(t, nil, "key", "draw", "--out", root).want(t, 0)
	_, at := serving(t, append(database(db), "POSTERN_BOOTSTRAP_KEY_FILE="+root), "serve", "--work")
	as := []string{at, "POSTERN_API_KEY_FILE=" + root}
	a := &actors{t, strings.TrimPrefix(at, "POSTERN_URL="), map[string]string{}, nil, map[string]string{}}
	for _, k := range []struct{ name, context, role string }{
		{"", "shop", ""}, {"", "other", ""}, {"ann", "shop", "admin"}, {"ben", "shop", "admin"},
		{"exe", "shop", "executor"}, {"rea", "shop", "reader"}, {"stranger", "other", "admin"},
	} {
		if k.name == "" {
			postern(t, as, "context", "create", k.context).want(t, 0)
			continue
		}
		file := filepath.Join(dir, k.name)
		postern(t, as, "key", "create", k.name, "--context", k.context, "--role", k.role, "--out", file).want(t, 0)
		secret, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a.keys[k.name] = strings.TrimSpace(string(secret))
	}
	var err error
	if a.db, err = pgx.Connect(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.db.Close(t.Context()) })
	return a
}

// filled is a text with what its names stand for.
func (a *actors) filled(text string) string {
	for name, value := range a.of {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// does sends a request as an actor. fence "" sends none.
func (a *actors) does(who, method, path, body, fence string) (status int, v map[string]any) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.api+a.filled(path),
		strings.NewReader(a.filled(body)))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.keys[who])
	req.Header.Set("Postern-Context", "shop")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if fence != "" {
		req.Header.Set("Postern-Fence", a.filled(fence))
	}
	if method == "PATCH" {
		req.Header.Set("If-Match", "*")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	v = map[string]any{}
	if res.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
			a.t.Fatalf("%s %s: %d: %v", method, path, res.StatusCode, err)
		}
	}
	return res.StatusCode, v
}

// well is does that wants a status.
func (a *actors) well(status int, who, method, path, body string) map[string]any {
	a.t.Helper()
	got, v := a.does(who, method, path, body, "")
	if got != status {
		a.t.Fatalf("%s: %s %s: %d, want %d: %v", who, method, path, got, status, v)
	}
	return v
}

// stored counts all that the tables of jobs and transactions have.
func (a *actors) stored() (n int) {
	a.t.Helper()
	if err := a.db.QueryRow(a.t.Context(), `SELECT (SELECT count(*) FROM postern.flow)
		+ (SELECT count(*) FROM postern.job) + (SELECT count(*) FROM postern.job_need)
		+ (SELECT count(*) FROM postern.task)`).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// bad is a request that is refused: with a code, at a place, in words that say what would be right.
type bad struct {
	who, request, body, fence string
	status                    int
	code, says                string
}

func (a *actors) refuses(list []bad) {
	a.t.Helper()
	before := a.stored()
	for _, c := range list {
		method, path, _ := strings.Cut(c.request, " ")
		status, v := a.does(c.who, method, path, c.body, c.fence)
		text, _ := json.Marshal(v)
		if status != c.status || v["code"] != c.code || !strings.Contains(string(text), a.filled(c.says)) {
			a.t.Errorf("%s: %s %.150s: %d %.500s; want %d %s, %q", c.who, c.request, c.body, status, text, c.status,
				c.code, c.says)
		}
	}
	if after := a.stored(); after != before {
		a.t.Errorf("%d rows were stored by what was refused", after-before)
	}
}

// Each bad input of jobs, flows and runners is a problem with a code that stays, and a text that says what would be
// right; nothing is stored of it.
func TestBadInputOfFlowsIsRefusedByCodeAndSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	a := newActors(t)
	const p = `"script": "1", "script_type": "python"`
	jobs := func(list string) string { return `{"jobs": [` + list + `]}` }
	one := func(more string) string { return jobs(`{` + p + `, "ref": 1, ` + more + `}`) }
	many, wide := make([]string, 1001), make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`{%s, "ref": %d}`, p, i+1)
		if i < len(wide) {
			wide[i] = fmt.Sprint(i + 1)
		}
	}
	large := func(kib int) string { return strings.Repeat("x", kib<<10) }
	var list []bad
	for _, c := range []struct{ body, code, says string }{
		{one(`"dependends": [1]`), "dependency_cycle", "depends on itself"},
		{jobs(`{` + p + `, "ref": 1, "dependends": [2]}, {` + p + `, "ref": 2, "dependends": [3]}, {` + p +
			`, "ref": 3, "dependends": [1]}`), "dependency_cycle", `"cycle":[`},
		{one(`"dependends": [99]`), "unknown_dependency", "99"},
		{jobs(strings.Join(many[:65], ",") + `, {` + p + `, "ref": 2000, "dependends": [` + strings.Join(wide, ",") +
			`]}`), "invalid", "at most 64"},
		{jobs(strings.Join(many, ",")), "invalid", "at most 1000"},
		{jobs(`{` + p + `, "ref": 1}, {` + p + `, "ref": 1}`), "invalid", "/jobs/1/ref"},
		{jobs(`{` + p + `, "ref": -1}`), "invalid", "want 0 to 4294967295"},
		{jobs(`{` + p + `, "ref": 4294967296}`), "invalid", "want 0 to 4294967295"},
		{jobs(`{"ref": 1, "script": "", "script_type": "python"}`), "invalid", "want 1 to 262144"},
		{jobs(`{"ref": 1, "script": "` + large(257) + `", "script_type": "python"}`), "invalid", "want 1 to 262144"},
		{jobs(`{"ref": 1, "script": "1", "script_type": "cobol"}`), "invalid", "PUT /dispatchers/job.cobol"},
		{one(`"timeout": 0`), "invalid", "timeout 0: want 1 to"},
		{one(`"timeout": -1`), "invalid", "timeout -1: want 1 to"},
		{one(`"retries": 256`), "invalid", "want 0 to 255"},
		{one(`"env_vars": {"A=B": "1"}`), "invalid", "want letters, digits and _"},
		{one(`"env_vars": {"LD_PRELOAD": "1"}`), "invalid", "LD_*"},
		{one(`"env_vars": {"POSTERN_X": "1"}`), "invalid", "POSTERN_*"},
		{one(`"env_vars": {"A": "` + large(129) + `"}`), "invalid", "want at most 131072"},
		{one(`"topic": "a b"`), "invalid", "/topic"},
	} {
		list = append(list, bad{"ann", "POST /flows", c.body, "", 422, c.code, c.says},
			bad{"ann", "POST /flows:validate", c.body, "", 422, c.code, c.says})
	}
	for _, c := range []struct{ more, says string }{
		{`"ref": -1`, "want 0 to 4294967295"}, {`"timeout": 0`, "want 1 to"}, {`"retries": 256`, "want 0 to 255"},
		{`"env_vars": {"PATH": "1"}`, "PATH"}, {`"prerequisites": ["a", "a"]`, "prerequisites"},
	} {
		list = append(list, bad{"ann", "POST /jobs", `{` + p + `, ` + c.more + `}`, "", 422, "invalid", c.says})
	}
	list = append(list, bad{"ann", "POST /transactions", `{"type": "job.python", "data": {"job": "x"}}`, "", 422,
		"schema_mismatch", "missing property 'script'"},
		bad{"ann", "POST /flows", jobs(`{"ref": 1, "script": "a\u0000b", "script_type": "python"}`), "", 400,
			"malformed_json", `the character \\u0000 at /jobs/0/script`})
	a.well(201, "ann", "PUT", "/runners/r", `{"slots": 4, "script_types": ["python"]}`)
	a.refuses(list)
	a.refusesOfAFlow(p)
	a.refusesOfATry(p)
}

// refusesOfAFlow goes through what is refused of a flow that is there.
func (a *actors) refusesOfAFlow(p string) {
	a.t.Helper()
	body := `{"ref": 7, "jobs": [{` + p + `, "ref": 1}, {` + p +
		`, "ref": 2, "dependends": [1], "prerequisites": ["ok"]}]}`
	f := a.well(201, "ann", "POST", "/flows", body)
	a.of["flow"] = f["id"].(string)
	a.of["two"] = f["jobs"].([]any)[1].(map[string]any)["id"].(string)
	a.well(201, "ann", "POST", "/jobs", `{`+p+`, "ref": 9, "queue": "never"}`)
	a.refuses([]bad{
		{"ann", "POST /flows", strings.Replace(body, `"1"`, `"2"`, 1), "", 409, "idempotency_conflict",
			`"differs":["jobs"]`},
		{"ann", "POST /jobs", `{` + p + `, "ref": 9, "timeout": 5, "queue": "never"}`, "", 409, "idempotency_conflict",
			`"differs":["timeout"]`},
		{"ann", "DELETE /flows/{flow}/jobs/1", "", "", 409, "wrong_state", "job 2 needs job 1: remove that one first"},
		{"ann", "POST /jobs/{two}/prerequisites", `{"met": ["ok", "not asked for"]}`, "", 422, "invalid", "/met/1"},
		{"ben", "PATCH /flows/{flow}", `{"env_vars": {"A": "1"}}`, "", 403, "forbidden", "only that actor"},
		{"ben", "POST /flows/{flow}/start", `{}`, "", 403, "forbidden", "only that actor"},
		{"exe", "POST /flows/{flow}/start", `{}`, "", 403, "forbidden", "admin"},
		{"exe", "POST /flows", body, "", 403, "forbidden", "admin"},
		{"exe", "POST /jobs", `{` + p + `}`, "", 403, "forbidden", "admin"},
		{"exe", "POST /transactions", `{"type": "job.python", "data": {"script": "1"}}`, "", 403, "forbidden", "admin"},
		{"exe", "POST /transactions", `{"type": "job.need", "data": {}}`, "", 403, "forbidden", ""},
		{"rea", "POST /flows", body, "", 403, "forbidden", ""},
		{"rea", "POST /transactions", `{"type": "job.python", "data": {"script": "1"}}`, "", 403, "forbidden", ""},
		{"rea", "POST /runners/r/claim", `{"epoch": 1, "max": 1, "holds": []}`, "", 403, "forbidden", ""},
		{"rea", "POST /jobs/{two}/replay", `{}`, "", 403, "forbidden", ""},
		{"stranger", "GET /flows", "", "", 404, "not_found", ""},
		{"stranger", "GET /flows/{flow}", "", "", 404, "not_found", ""},
		{"stranger", "POST /flows", body, "", 404, "not_found", ""},
		{"stranger", "POST /transactions", `{"type": "job.python", "data": {"script": "1"}}`, "", 404, "not_found", ""},
		{"stranger", "POST /jobs/{two}/replay", `{}`, "", 404, "not_found", ""},
	})
	for _, changed := range []bool{true, false} {
		if v := a.well(200, "ann", "POST", "/flows/{flow}/start", `{}`); v["changed"] != changed {
			a.t.Errorf("start says %v, want %v", v, changed)
		}
	}
}

// refusesOfATry goes through what is refused of a runner, and of a try that it holds.
func (a *actors) refusesOfATry(p string) {
	a.t.Helper()
	register := func() string {
		v := a.well(200, "exe", "POST", "/runners/r/register", `{"instance": "i", "script_types": ["python"],
			"slots": 4, "isolation": "off"}`)
		return fmt.Sprintf("%.0f", v["epoch"])
	}
	a.of["old"] = register()
	a.of["epoch"] = register()
	a.of["job"] = a.well(201, "ann", "POST", "/jobs", `{`+p+`, "env_vars": {"TOKEN": "secret"}}`)["id"].(string)
	held := map[string]map[string]any{}
	for range 60 {
		_, v := a.does("exe", "POST", "/runners/r/claim?wait=1s", `{"epoch": {epoch}, "max": 4, "holds": []}`, "")
		list, _ := v["jobs"].([]any)
		for _, j := range list {
			held[j.(map[string]any)["job"].(string)] = j.(map[string]any)
		}
		if held[a.of["job"]] != nil {
			break
		}
	}
	j := held[a.of["job"]]
	if j == nil || fmt.Sprint(j["env"].(map[string]any)["TOKEN"]) != "secret" {
		a.t.Fatalf("the runner holds %v", held)
	}
	a.of["try"], a.of["fence"] = j["try"].(string), fmt.Sprintf("%.0f", j["fence"])
	a.refuses([]bad{
		{"exe", "POST /runners/r/claim", `{"epoch": {epoch}, "max": 1, "holds": [], "script_types": ["sal"]}`, "", 422,
			"invalid", "script_types"},
		{"exe", "POST /runners/r/claim", `{"epoch": {old}, "max": 1, "holds": []}`, "", 409, "stale_epoch",
			"POST /runners/r/register"},
		{"exe", "POST /runners/none/claim", `{"epoch": 1, "max": 1, "holds": []}`, "", 404, "not_found", "none"},
		{"exe", "POST /tries/{try}/finish", `{"result": {"n": "1"}}`, "", 428, "fence_required", "Postern-Fence"},
		{"exe", "POST /tries/{try}/finish", `{"result": {"n": "1"}}`, "x", 422, "invalid", "digits"},
		{"exe", "POST /tries/{try}/finish", `{"result": {"n": 1}}`, "{fence}", 422, "invalid", "values are strings"},
		{"exe", "POST /tries/{try}/finish", `{"result": [1]}`, "{fence}", 422, "invalid", "values are strings"},
		{"exe", "POST /tries/{try}/finish", `{"result": {"n": "1"}}`, "7", 409, "stale_fence", ""},
		{"rea", "POST /tries/{try}/finish", `{"result": {"n": "1"}}`, "{fence}", 403, "forbidden", ""},
		{"stranger", "POST /tries/{try}/finish", `{"result": {"n": "1"}}`, "{fence}", 404, "not_found", ""},
	})
	for _, changed := range []bool{true, false} {
		status, v := a.does("exe", "POST", "/tries/{try}/finish", `{"result": {"n": "1"}}`, "{fence}")
		if status != 200 || v["changed"] != changed {
			a.t.Errorf("finish: %d %v, want changed %v", status, v, changed)
		}
	}
	a.refuses([]bad{{"exe", "POST /tries/{try}/finish", `{"result": {"n": "2"}}`, "{fence}", 409, "stale_fence", ""}})
	var late int
	err := a.db.QueryRow(a.t.Context(), `SELECT count(*) FROM postern.try_late`).Scan(&late)
	if err != nil || late != 2 {
		a.t.Errorf("%d late reports are kept, want 2: %v", late, err)
	}
	v := a.well(200, "rea", "GET", "/jobs/{job}?wait=30s", "")
	if fmt.Sprint(v["result"]) != "map[n:1]" || fmt.Sprint(v["env_vars"]) != "map[TOKEN:***]" {
		a.t.Errorf("a reader sees %v", v)
	}
	for _, who := range []string{"exe", "ann"} {
		v := a.well(200, who, "POST", "/jobs/{job}/replay", `{"reason": "why"}`)
		if env := v["env"].(map[string]any); env["TOKEN"] != "secret" {
			a.t.Errorf("%s is given %v", who, env)
		}
	}
	tx := a.well(201, "ann", "POST", "/transactions", `{"type": "job.python", "data": {"script": "1",
		"env_vars": {"TOKEN": "secret"}}}`)
	for _, path := range []string{"/transactions?include=data", fmt.Sprint("/transactions/", tx["id"])} {
		text, _ := json.Marshal(a.well(200, "rea", "GET", path, ""))
		if strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"TOKEN":"***"`) {
			a.t.Errorf("GET %s shows a reader %s", path, text)
		}
	}
	// 202 while its transactions are still to be ended
	status, v := a.does("ben", "POST", "/flows/{flow}/cancel", `{"reason": "it is over"}`, "")
	if status != 200 && status != 202 {
		a.t.Errorf("an executor cancels his flow: %d %v", status, v)
	}
}
