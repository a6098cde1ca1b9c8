package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// pulling is how a lever is pulled.
type pulling struct {
	reason string
	dry    bool
	most   int
	extra  map[string]any // further fields of the body
}

// body is that of the request, nil for none.
func (p pulling) body() ([]byte, error) {
	b := map[string]any{}
	for k, v := range p.extra {
		b[k] = v
	}
	if p.reason != "" {
		b["reason"] = p.reason
	}
	if len(b) == 0 {
		return nil, nil
	}
	return json.Marshal(b)
}

// extra reads the flags of one lever: the place of move, how long a block lasts, how much a purge takes.
func (d *door) extra(cmd *cobra.Command) (map[string]any, error) {
	switch cmd.Name() {
	case "block":
		if long, _ := cmd.Flags().GetString("for"); long != "" {
			if _, err := time.ParseDuration(long); err != nil {
				return nil, usage(cmd,
					fmt.Errorf("--for is %q: want a duration with its unit, such as 90s or 24h", clip(long, 64)))
			}
			return map[string]any{"for": long}, nil
		}
	case "purge":
		most, err := cmd.Flags().GetInt("max")
		return map[string]any{"max": most}, err
	}
	if cmd.Name() != "move" {
		return nil, nil
	}
	named := 0
	for _, flag := range []string{"first", "before", "after"} {
		if cmd.Flags().Changed(flag) {
			named++
		}
	}
	extra := map[string]any{}
	if queue, _ := cmd.Flags().GetString("queue"); queue != "" {
		extra["queue"] = queue
	}
	if named > 1 || named == 0 && extra["queue"] == nil {
		return nil, usage(cmd, errors.New("want one of --first, --before and --after, or --queue"))
	}
	for _, side := range []string{"before", "after"} {
		if name, _ := cmd.Flags().GetString(side); name != "" {
			_, r, err := d.find(transactionName(name))
			if err != nil {
				return nil, err
			}
			extra["place"] = map[string]string{side: r.text("id")}
		}
	}
	if extra["place"] == nil && named == 1 {
		extra["place"] = "head"
	}
	return extra, nil
}

// behind is the place of the next one of several: behind the one that has just been moved, so that they keep their
// order. A place before another transaction is the same for all of them.
func (d *door) behind(place any, object string) (any, error) {
	if side, ok := place.(map[string]string); ok && side["before"] != "" {
		return place, nil
	}
	_, r, err := d.find(transactionName(object))
	return map[string]string{"after": r.text("id")}, err
}

// pullMany pulls a lever on all transactions that fit FILTER=VALUE..., oldest first, up to --max, and says how many
// there were. If the lever is refused for any of them, the exit code is 1.
func (d *door) pullMany(cmd *cobra.Command, verb string, args []string, how pulling, asJSON bool) error {
	filter, err := filterOf(cmd, args)
	if err != nil {
		return err
	}
	switch {
	case !can("POST", "/transactions:"+verb):
		return usage(cmd, fmt.Errorf("there is no %s of many: name them", verb))
	case how.most == 0:
		return usage(cmd, errors.New("with a filter want --max: nothing beyond so many is touched"))
	}
	var all tally
	for left := int64(how.most); left > 0; {
		r, err := d.pullSome(verb, filter, how, min(left, bulkMost), all.next)
		if err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(cmd, r); err != nil {
				return err
			}
		}
		left -= all.add(r)
		if all.next == "" {
			break
		}
	}
	if !asJSON {
		all.print(cmd, how.dry)
	}
	if len(all.refused) > 0 {
		return fmt.Errorf("%d of %d refused", len(all.refused), all.matched)
	}
	return nil
}

// ofOne are the filters that take one value; any other filter may have several.
var ofOne = []string{"redrive_of", "received_after", "received_before", "done_after", "done_before",
	"suspended", "held"}

// filterOf reads FILTER=VALUE....
func filterOf(cmd *cobra.Command, args []string) (map[string]any, error) {
	filter := map[string]any{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, usage(cmd, fmt.Errorf("%q is no filter: "+
				"want FILTER=VALUE as in ls, or ids and uids alone", arg))
		}
		switch have := filter[name].(type) {
		case nil:
			filter[name] = []string{value}
		case []string:
			filter[name] = append(have, value)
		}
	}
	for _, name := range ofOne {
		list, ok := filter[name].([]string)
		switch {
		case !ok:
			continue
		case len(list) > 1:
			return nil, usage(cmd, fmt.Errorf("%s is given twice", name))
		case name == "suspended", name == "held":
			filter[name] = list[0] == "true"
		default:
			filter[name] = list[0]
		}
	}
	return filter, nil
}

// pullSome pulls a lever on the next up to most that fit, behind after.
func (d *door) pullSome(verb string, filter map[string]any, how pulling, most int64, after string) (record, error) {
	ask := pulling{reason: how.reason, extra: map[string]any{"filter": filter, "max": most, "dry_run": how.dry}}
	for k, v := range how.extra {
		ask.extra[k] = v
	}
	if after != "" {
		ask.extra["after"] = after
	}
	body, err := ask.body()
	if err != nil {
		return nil, err
	}
	_, _, b, err := d.raw("POST", "/transactions:"+url.PathEscape(verb), body)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// tally is what came of a lever on many.
type tally struct {
	matched, changed, pending int64
	refused                   []record
	next                      string // where it goes on; "": nothing more fits
}

// add counts one answer in, and returns how many were looked at for it.
func (t *tally) add(r record) (matched int64) {
	matched = r.whole("matched")
	t.matched += matched
	t.changed += r.whole("changed")
	t.pending += r.whole("pending")
	t.refused = append(t.refused, r.records("refused")...)
	t.next = r.text("next")
	return matched
}

// print says for people what came of it.
func (t *tally) print(cmd *cobra.Command, dry bool) {
	said := "changed"
	if dry {
		said = "would change"
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%d looked at, %d %s, %d of them pending, %d refused\n",
		t.matched, t.changed, said, t.pending, len(t.refused))
	p := paperOf(cmd)
	for _, r := range t.refused {
		p.indented(out, r.text("id"), 38, "refused: "+r.text("detail"))
	}
	if t.next != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "more fit: run it again with a larger --max")
	}
}

// bulkMost is how many one request may change.
const bulkMost = 10000
