package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/help"
	"github.com/postern-dev/postern/internal/httpapi"
)

// page compares a page with what it is rendered from, or writes it.
func page(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("../../docs", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("docs/%s is not what it is rendered from (%v): make contract, and read the diff", name, err)
	}
}

const errorsHead = `# Errors, and why something waits

*Reference.* A paragraph for each code and each kind, with what to do about it. Answers name the paragraph
in their member help. It is rendered from internal/help by make contract.

- [Refusals](#refusals): the code of application/problem+json, which the command line prints, too.
- [Why something waits](#why-something-waits): the kind of a blocker, as postern why and GET /transactions/{id}/why
  name it, and the blocker of report.stuck.
- [Errors of transactions](#errors-of-transactions): error.code of a transaction and of an attempt.
`

// docs/errors.md has each code and each kind, with its anchor.
func TestTheCommittedContractHasItsErrors(t *testing.T) {
	out := &strings.Builder{}
	out.WriteString(errorsHead)
	out.WriteString("\n## Refusals\n")
	for _, e := range help.Errors(help.Problem) {
		status, title, retryable := httpapi.ProblemOf(e.Name)
		again := ""
		if retryable {
			again = " Retryable: the same request may succeed later."
		}
		fmt.Fprintf(out, "\n### Problem `%s`\n\n%d, *%s*. %s%s\n\n%s\n", e.Name, status, title, e.Says, again, e.Do)
	}
	out.WriteString("\n## Why something waits\n")
	for _, e := range help.Errors(help.Why) {
		fmt.Fprintf(out, "\n### Why `%s`\n\n%s\n\n%s\n", e.Name, e.Says, e.Do)
	}
	out.WriteString("\n## Errors of transactions\n\n" +
		"What a worker or a tool says with `error.code` is its own; these are Postern's. What `postern.submit` staged and " +
		"the drain refuses has the code of the [refusal](#refusals), as has an event whose call is refused.\n")
	for _, e := range help.Errors(help.Error) {
		fmt.Fprintf(out, "\n### Error `%s`\n\n%s\n\n%s\n", e.Name, e.Says, e.Do)
	}
	page(t, "errors.md", out.String())
}

// Each code of a refusal has a paragraph, and each paragraph a code.
func TestEveryCodeHasAParagraph(t *testing.T) {
	var have []string
	for _, e := range help.Errors(help.Problem) {
		have = append(have, e.Name)
	}
	slices.Sort(have)
	if want := httpapi.ProblemCodes(); !slices.Equal(have, want) {
		t.Errorf("internal/help has the codes\n%v\nand the API answers\n%v", have, want)
	}
	d := newDoor(t)
	if got := d.want(404, "GET", "/nowhere", "").body["help"]; got != "docs/errors.md#problem-not_found" {
		t.Errorf("a refusal names its paragraph as %v", got)
	}
}

// Each kind of blocker that the store can name has a paragraph.
func TestEveryKindOfBlockerHasAParagraph(t *testing.T) {
	literal := regexp.MustCompile(`(?:\bKind: +|\bKind = |\.Kind, b\.\w+(?:, b\.\w+)?(?:, \w+)? = |` +
		`\bown\(|\bblock\(|\.add\(|\.pause\(|\bpause\()"([a-z_]+)"`)
	lanes := []string{"dispatcher", "sender", "exclusive", "resume"}
	known := map[string]bool{}
	for _, e := range help.Errors(help.Why) {
		known[e.Name] = true
	}
	files, err := filepath.Glob("../pg/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{"sender_blocked": true} // senderFacts.kind
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") ||
			!regexp.MustCompile(`/(reads|batches|events|flows)/.*(why|look)`).MatchString(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(lanes, m[1]) {
				found[m[1]] = true
			}
		}
	}
	if len(found) < 40 {
		t.Fatalf("only %d kinds were found in the source: has it moved?", len(found))
	}
	for kind := range found {
		if !known[kind] {
			t.Errorf("the blocker %s has no paragraph in internal/help", kind)
		}
	}
}

const settingsHead = `# Settings

*Reference.* Every field of what you configure over the API or with postern apply, with its default and
when to change it; and every setting of a process. The defaults are those that a running process answers. It is rendered
by make contract.

PUT sets all fields, and those that are left out to their defaults; PATCH changes what it names.
`

// docs/settings.md has every field of what is configured, in words of the contract, with the default that an answer
// shows.
func TestTheCommittedContractHasItsSettings(t *testing.T) {
	d := newDoor(t)
	schemas := d.want(200, "GET", "/openapi.json", "").body["components"].(map[string]any)["schemas"].(map[string]any)
	out := &strings.Builder{}
	out.WriteString(settingsHead)
	for _, noun := range []struct{ name, path, body, about string }{
		{"Dispatcher", "/dispatchers/PAY", `{"worker_url": "noop:"}`, "How transactions of a type are executed."},
		{"Queue", "/queues/ada", `{}`, "A queue needs no settings: it is made by its first transaction."},
		{"Pool", "/pools/signers", `{}`, "A pool is made by its first sender."},
		{"Sender", "/senders/acct-1", `{"pool": "signers"}`, "An account that signs, one queue at a time."},
		{"Context", "/contexts/shop", `{}`, "A tenant."},
	} {
		answer := d.want(201, "PUT", noun.path, noun.body)
		fmt.Fprintf(out, "\n## %s\n\n%s\n\n| field | what it says | default | change it |\n|---|---|---|---|\n",
			noun.name, noun.about)
		rows := fields(schemas, schemas[noun.name+"Settings"].(map[string]any), "", answer.body)
		when := map[string]string{}
		for _, e := range help.Settings(noun.name) {
			when[e.Name] = e.Says
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			_, ok := when[name]
			if strings.HasPrefix(when[name], "never") {
				rows[name] = setting{rows[name].says, ""}
			}
			if !ok {
				t.Errorf("internal/help does not say when to change %s of a %s", name, noun.name)
			}
			fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", name, rows[name].says, rows[name].value, when[name])
		}
		for name := range when {
			if _, ok := rows[name]; !ok {
				t.Errorf("internal/help knows %s of a %s, and the contract does not", name, noun.name)
			}
		}
	}
	out.WriteString("\n## Process\n\nSettings of `postern serve` and `postern work`: a flag beats the variable, " +
		"which beats the default. `postern config` prints those in force.\n\n" +
		"| variable | flag | what it says | default |\n|---|---|---|---|\n")
	for _, f := range app.Fields() {
		value := ""
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}
		fmt.Fprintf(out, "| `%s` | `--%s` | %s | %s |\n", f.Env, f.Name, cell(f.Help), value)
	}
	page(t, "settings.md", out.String())
}

// setting is a field as the page has it.
type setting struct{ says, value string }

// fields lists the fields of a schema, those within others with a dot, and what the answer says of each.
func fields(schemas, schema map[string]any, before string, answer map[string]any) map[string]setting {
	rows := map[string]setting{}
	for name, p := range schema["properties"].(map[string]any) {
		property := p.(map[string]any)
		value, said := answer[name]
		if ref, ok := property["$ref"].(string); ok {
			inner := schemas[ref[strings.LastIndexByte(ref, '/')+1:]].(map[string]any)
			if within, ok := value.(map[string]any); ok {
				maps.Copy(rows, fields(schemas, inner, before+name+".", within))
				continue
			}
		}
		rows[before+name] = setting{cell(saysOf(property)), valueOf(value, said)}
	}
	return rows
}

// saysOf is what the contract says of a field, with the values and bounds that it allows.
func saysOf(property map[string]any) string {
	says, _ := property["description"].(string)
	var bounds []string
	if list, ok := property["enum"].([]any); ok {
		bounds = append(bounds, strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]"))
	}
	if least, ok := property["minimum"].(float64); ok {
		text := fmt.Sprintf("from %.0f", least)
		if most, ok := property["maximum"].(float64); ok {
			text += fmt.Sprintf(" to %.0f", most)
		}
		bounds = append(bounds, text)
	}
	if says != "" {
		bounds = append([]string{strings.TrimSuffix(says, ".")}, bounds...)
	}
	return strings.Join(bounds, "; ")
}

// valueOf is a value as JSON, "" for none and for what only this test named.
func valueOf(value any, said bool) string {
	if !said || value == nil || value == "" {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil || string(text) == "[]" || string(text) == "{}" {
		return ""
	}
	return "`" + strings.Trim(string(text), `"`) + "`"
}

// cell is a text in a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "\n", " ")
}
