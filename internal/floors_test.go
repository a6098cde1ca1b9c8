package internal_test

import (
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/postern-dev/postern/"

// support is the floor of test support: it may import anything, and only tests import it.
const support = -1

// floors is the drawing in the architecture page: each package with its floor and the reason why it stands there. A
// package below the directory of another is a part of it. A name without a package is an error.
var floors = map[string]struct {
	floor  int
	reason string
}{
	"internal":          {0, "holds nothing but the house tests"},
	"internal/machine":  {0, "state machines as data; std only"},
	"internal/fault":    {0, "how things cannot be done; std only"},
	"internal/backoff":  {0, "how long to wait; std only"},
	"internal/wire":     {0, "what can be seen of a connection; std only"},
	"internal/help":     {0, "what the references say of codes, kinds and settings: text; std only"},
	"internal/safe":     {0, "where goroutines begin, so that a panic ends one piece of work; std only"},
	"internal/twin":     {0, "faults that are planted under a build tag, else nothing; std only"},
	"internal/mycelium": {0, "the words of a Mycelium node, and requests as its messages; std only"},
	"internal/sandbox":  {0, "one script in a box of its own: processes and files; std only"},
	"migrations":        {0, "plain SQL in files: data, which pg reads"},
	"testdata":          {0, "the samples of the demo: data in files"},
	"api/examples":      {0, "requests with their answers: data in files, which the contract shows and tests play"},
	"api/client":        {0, "public and generated: imports nothing of internal"},
	"api/outbox":        {0, "public, for the application's own transaction: imports nothing of internal"},
	"api/worker":        {0, "public, to write a worker with: imports nothing of internal"},
	"api/domain":        {0, "public, to write the service of a domain with: imports nothing of internal"},

	"internal/strict": {1, "which JSON we accept; std and fault only"},
	"internal/outbox": {1, "the vocabulary: nouns and Validate, no behaviour"},

	"internal/sequencer": {2, "decides seed 2: no I/O, no clock, no context"},
	"internal/leader":    {2, "decides seed 1: no I/O, no clock, no context"},
	"internal/processor": {2, "decides seed 4: no I/O, no clock, no context"},
	"internal/flow":      {2, "decides seed 5: no I/O, no clock, no context"},
	"internal/message":   {2, "decides the messages of seed 5: no I/O, no clock, no context"},
	"internal/coord":     {2, "decides seed 3: no I/O, no clock, no context"},

	"internal/pg":        {3, "stores what floor 2 decides; knows no HTTP"},
	"internal/remote":    {3, "clients of workers, tools and peers; knows no rows"},
	"internal/devpg":     {3, "finds or starts a PostgreSQL"},
	"internal/devnet":    {3, "the development ledger and its client; knows no rows and no worker"},
	"internal/runner":    {3, "executes jobs, as a client over HTTP; knows no rows"},
	"internal/manifest":  {3, "reads the files of postern apply; knows no settings and no network"},
	"internal/telemetry": {3, "metrics, traces and logs leave here"},

	"internal/httpapi": {4, "the HTTP door: asks floor 2, stores with floor 3"},
	"internal/work":    {4, "the River workers: load, decide, store, act"},
	"internal/ui":      {4, "the dashboard: pages that ask the API of their process"},

	"internal/bench":        {4, "measures over HTTP, and checks in the database what was measured"},
	"internal/devnetworker": {4, "the worker of the devnet, whose client it is; knows no rows"},

	"internal/verifyworker": {4, "checks a worker as its caller: over HTTP, with the client of floor 3"},

	"internal/demo": {4, "posts the samples as any client would: over HTTP, with no way around it"},

	"internal/app": {5, "builds everything from its configuration"},
	"cmd/postern":  {6, "floor 5 in the drawing: one file per command, each starts what app builds"},

	"examples": {6, "programs for others to begin with: they use what is public"},

	"internal/pgtest":              {support, "databases for tests"},
	"internal/machine/machinetest": {support, "which edges diagrams draw, and checks in SQL let in"},
	"internal/scenario":            {support, "stories in the seeds' words"},
	"internal/remotetest":          {support, "fake workers, and the suite that every worker passes"},
	"internal/coord/coordtest":     {support, "a wire, a ledger and clocks for domains: one number, one schedule"},
	"internal/chaos":               {support, "crashes, freezes, partitions"},
}

// steps are those of the floor of the store. A package imports only packages of lower steps.
var steps = map[string]struct {
	step   int
	reason string
}{
	"internal/pg/watch":      {0, "connections that do not answer are closed; knows no rows"},
	"internal/pg/session":    {1, "how sessions begin: DATABASE_URL, settings, which databases will do"},
	"internal/pg/migrate":    {2, "the migrations of this program; knows no rows"},
	"internal/pg/addresses":  {2, "the addresses in a database, and what its nodes may call, in SQL of its own"},
	"internal/pg/merge":      {2, "few wide partitions of many narrow ones, in SQL of its own"},
	"internal/pg/verify":     {2, "what must be true of the rows, in SQL of its own"},
	"internal/pg/doctor":     {2, "what is wrong with a database, in SQL of its own"},
	"internal/pg/db":         {2, "the pool, the SQL transaction, the clock, errors, the audit"},
	"internal/pg":            {3, "queues and what moves them"},
	"internal/pg/channels":   {4, "channels and their messages"},
	"internal/pg/deliveries": {4, "subscriptions and what is delivered to them"},
	"internal/pg/actors":     {4, "actors and API keys"},
	"internal/pg/labels":     {4, "what was applied under which label"},
	"internal/pg/peers":      {4, "other installations, which messages go to and come from"},
	"internal/pg/reads":      {4, "what is read for people"},
	"internal/pg/batches":    {5, "processors and batches, which post transactions"},
	"internal/pg/domains":    {5, "domains and their intents, which post transactions"},
	"internal/pg/events":     {5, "sources, tools and events, which post transactions"},
	"internal/pg/flows":      {5, "jobs, their tries and runners; jobs are transactions"},
	"internal/pg/messages":   {6, "messages between contexts, which bring jobs"},
	"internal/pg/stores":     {7, "opens all of them"},
}

// climbs says why a package of the store may not import another one of it, or "".
func climbs(from, to string) string {
	if from == to || !strings.HasPrefix(from+"/", "internal/pg/") || !strings.HasPrefix(to+"/", "internal/pg/") {
		return ""
	}
	a, ok := steps[from]
	b, there := steps[to]
	switch {
	case !ok:
		return from + " is missing from the steps of the store"
	case !there:
		return to + " is missing from the steps of the store"
	case a.step > b.step:
		return ""
	case a.step == b.step:
		return from + " (" + a.reason + ") imports " + to + " beside it (" + b.reason + "): siblings do not meet"
	}
	return from + " (" + a.reason + ") imports up to " + to + " (" + b.reason + "): it registers what it needs"
}

func TestTheStoreHasSteps(t *testing.T) {
	for name := range steps {
		if _, err := os.Stat("../" + name); err != nil {
			t.Errorf("the steps of the store name %s: %v", name, err)
		}
	}
	for _, c := range []struct{ from, to, refused string }{
		{"internal/pg/batches", "internal/pg", ""},
		{"internal/pg", "internal/pg/batches", "up to"},
		{"internal/pg/db", "internal/pg", "up to"},
		{"internal/pg/batches", "internal/pg/events", "siblings"},
		{"internal/pg/events", "internal/pg/channels", ""},
		{"internal/pg/elsewhere", "internal/pg", "missing"},
		{"internal/httpapi", "internal/pg/batches", ""},
	} {
		if got := climbs(c.from, c.to); (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s importing %s: %q, want %q in it", c.from, c.to, got, c.refused)
		}
	}
}

// home returns the entry of the map that a package belongs to: itself or the nearest directory above. Only the package
// internal belongs to the entry internal.
func home(pkg string) (string, bool) {
	for at := pkg; at != "." && at != ""; {
		if _, ok := floors[at]; ok && (at == pkg || at != "internal") {
			return at, true
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			break
		}
		at = at[:i]
	}
	return "", false
}

func TestTheFloorsNameOnlyWhatIsThere(t *testing.T) {
	for name := range floors {
		if _, err := os.Stat("../" + name); err != nil {
			t.Errorf("the map of floors names %s: %v", name, err)
		}
	}
}

func TestImportsOnlyFall(t *testing.T) {
	for _, f := range goFiles(t) {
		from, ok := home(f.pkg)
		if !ok {
			t.Errorf("package %s is missing from the map of floors: say where it stands, and why", f.pkg)
			continue
		}
		if f.test() {
			continue
		}
		for _, path := range f.imports() {
			if why := refuse(from, path); why != "" {
				t.Errorf("%s: %s", f.path, why)
			}
			if why := climbs(f.pkg, strings.TrimPrefix(path, module)); why != "" {
				t.Errorf("%s: %s", f.path, why)
			}
		}
	}
}

// refuse says why a package may not import path, or "".
func refuse(from, path string) string {
	a := floors[from]
	pkg, ours := strings.CutPrefix(path, module)
	if !ours {
		if first, _, _ := strings.Cut(path, "/"); a.floor == 0 && strings.HasPrefix(from, "internal/") && strings.Contains(first, ".") {
			return from + " (floor 0: " + a.reason + ") imports " + path
		}
		return ""
	}
	to, ok := home(pkg)
	b := floors[to]
	switch {
	case !ok:
		return path + " is missing from the map of floors"
	case from == to || a.floor == support:
		return ""
	case b.floor == support:
		return from + " imports " + to + " (" + b.reason + "): only tests may"
	case a.floor > b.floor:
		return ""
	}
	way := "sideways to"
	if a.floor < b.floor {
		way = "up to"
	}
	return from + " (" + a.reason + ") imports " + way + " " + to + " (" + b.reason + "): pass it the fact that it needs"
}

func TestTheFloorsRefuseWhatTheyShould(t *testing.T) {
	for _, c := range []struct {
		from, path string
		refused    string
	}{
		{"internal/pg", module + "internal/sequencer", ""},
		{"internal/pg", module + "internal/pg/migrate", ""},
		{"internal/pgtest", module + "internal/app", ""},
		{"cmd/postern", module + "internal/app", ""},
		{"internal/pg", "github.com/jackc/pgx/v5", ""},
		{"internal/sequencer", module + "internal/pg", "up to internal/pg (stores"},
		{"internal/sequencer", module + "internal/pg/dbsqlc", "up to internal/pg (stores"},
		{"internal/work", module + "internal/httpapi", "sideways to"},
		{"internal/machine", module + "internal/fault", "sideways to"},
		{"internal/pg", module + "internal/pgtest", "only tests may"},
		{"internal/pg", module + "internal/elsewhere", "missing from the map"},
		{"internal/machine", "github.com/jackc/pgx/v5", "std only"},
		{"api/worker", module + "internal/outbox", "up to"},
	} {
		if got := refuse(c.from, c.path); (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s importing %s: %q, want %q in it", c.from, c.path, got, c.refused)
		}
	}
}

// undecided are packages of the lowest floors that decide nothing, so that they may know a clock.
var undecided = []string{"internal/twin", "internal/safe", "internal/sandbox", "internal/mycelium"}

// impure is what a decision must not reach for: it would then depend on more than its arguments.
var impure = []string{"context", "os", "net", "net/http", "database/sql", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog"}

// clocks are the functions of package time that read a clock or wait for one.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func TestDecisionsKnowNoClockNoContextAndNoIO(t *testing.T) {
	for _, f := range goFiles(t) {
		at, _ := home(f.pkg)
		if where := floors[at]; f.test() || where.floor < 0 || where.floor > 2 || !strings.HasPrefix(at, "internal/") || slices.Contains(undecided, at) {
			continue
		}
		for _, path := range f.imports() {
			if slices.Contains(impure, path) {
				t.Errorf("%s imports %s: %s stands on floor %d; take the fact as an argument", f.path, path, at, floors[at].floor)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, s.Sel.Name) {
					t.Errorf("%s calls time.%s: time comes in as an argument", f.path, s.Sel.Name)
				}
			}
			return true
		})
	}
}
