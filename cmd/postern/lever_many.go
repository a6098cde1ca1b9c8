package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

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

// behind is the place of the next one of several: behind the one that has just been moved, so that they keep
// their order. What all stand before stays.
func (d *door) behind(place any, object string) (any, error) {
	if side, ok := place.(map[string]string); ok && side["before"] != "" {
		return place, nil
	}
	_, r, err := d.find(transactionName(object))
	return map[string]string{"after": r.text("id")}, err
}

// pullMany pulls a lever on all transactions that fit FILTER=VALUE..., oldest first, up to --max, and says how many
// that were. What was refused makes the exit code 1.
func (d *door) pullMany(cmd *cobra.Command, verb string, args []string, how pulling, asJSON bool) error {
	filter := map[string]any{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return usage(cmd, fmt.Errorf("%q is no filter: want FILTER=VALUE as in ls, or ids and uids alone", arg))
		}
		switch have := filter[name].(type) {
		case nil:
			filter[name] = []string{value}
		case []string:
			filter[name] = append(have, value)
		}
	}
	for _, name := range []string{"redrive_of", "received_after", "received_before", "done_after", "done_before", "suspended"} { // of which there is one
		if list, ok := filter[name].([]string); ok {
			if filter[name] = any(list[0]); name == "suspended" {
				filter[name] = list[0] == "true"
			}
			if len(list) > 1 {
				return usage(cmd, fmt.Errorf("%s is given twice", name))
			}
		}
	}
	switch {
	case !can("POST", "/transactions:"+verb):
		return usage(cmd, fmt.Errorf("there is no %s of many: name them", verb))
	case how.most == 0:
		return usage(cmd, errors.New("with a filter want --max: nothing beyond so many is touched"))
	}
	matched, changed, pending := int64(0), int64(0), int64(0)
	var refused []record
	after := ""
	for left := int64(how.most); left > 0; {
		ask := pulling{reason: how.reason, extra: map[string]any{"filter": filter, "max": min(left, bulkMost), "dry_run": how.dry}}
		for k, v := range how.extra {
			ask.extra[k] = v
		}
		if after != "" {
			ask.extra["after"] = after
		}
		body, err := ask.body()
		if err != nil {
			return err
		}
		_, _, b, err := d.raw("POST", "/transactions:"+url.PathEscape(verb), body)
		if err != nil {
			return err
		}
		r, err := parse(b)
		if err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(cmd, r); err != nil {
				return err
			}
		}
		n := r.whole("matched")
		matched, changed, pending = matched+n, changed+r.whole("changed"), pending+r.whole("pending")
		refused, left, after = slices.Concat(refused, r.records("refused")), left-n, r.text("next")
		if after == "" {
			break
		}
	}
	if !asJSON {
		said := "changed"
		if how.dry {
			said = "would change"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d looked at, %d %s, %d of them pending, %d refused\n", matched, changed, said, pending, len(refused))
		p := paperOf(cmd)
		for _, r := range refused {
			p.indented(cmd.OutOrStdout(), r.text("id"), 38, "refused: "+r.text("detail"))
		}
		if after != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "more fit: run it again with a larger --max")
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%d of %d refused", len(refused), matched)
	}
	return nil
}

// bulkMost is how many one request may change.
const bulkMost = 10000
