package ui

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// cell is one value: a time, or a text that may lead to a page.
type cell struct {
	Text, URL, Time string
}

// Short says whether the text is to stay on one line.
func (c cell) Short() bool { return len(c.Text) <= 24 }

// member finds a value by its name, with dots.
func member(d doc, name string) any {
	first, rest, deep := strings.Cut(name, ".")
	if !deep {
		return d[first]
	}
	inner, ok := d[first].(doc)
	if !ok {
		return nil
	}
	return member(inner, rest)
}

// isTime says whether a member of a name holds a time.
func isTime(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasSuffix(last, "_at") || strings.HasSuffix(last, "_until") || strings.HasSuffix(last, "since") ||
		last == "at" || last == "until" || last == "not_before" || last == "timestamp"
}

// leads says to which noun the value of a member belongs.
var leads = map[string]string{
	"queue":        "queues",
	"sender":       "senders",
	"pool":         "pools",
	"subscription": "subscriptions",
	"transaction":  "transactions",
	"processor":    "processors",
	"source":       "sources",
	"tool":         "tools",
	"node":         "nodes",
	"redrive_of":   "transactions",
	"redriven_by":  "transactions",
	"cap":          "channels",
	"flow":         "flows",
	"job":          "jobs",
	"runner":       "runners",
	"reply_to":     "messages",
	"peer":         "peers",
}

// bounded are the members that a list counts to 1001, which stands for more than a thousand.
var bounded = map[string][]string{
	"/subscriptions": {"pending"},
	"/channels":      {"queued", "offered", "active", "dropped"},
}

// cell shows a member of a thing in a list.
func (v *visit) cell(path string, d doc, name, id string) cell {
	value := member(d, name)
	if value == nil {
		return cell{}
	}
	c := cell{Text: clip(value)}
	switch value := value.(type) {
	case bool:
		c.Text = map[bool]string{true: "yes", false: ""}[value]
	case doc, []any:
		c.Text = clip(pretty(value))
	}
	if n, ok := value.(json.Number); ok && slices.Contains(bounded[path], name) && len(n) > 3 && n != "1000" {
		c.Text = "more than 1,000"
	}
	switch {
	case isTime(name):
		c.Time = fmt.Sprint(value)
	case name == id && id != "":
		c.URL = v.At(append(partsOf(path), c.Text)...)
		if full := fmt.Sprint(value); full != c.Text {
			c.URL = v.At(append(partsOf(path), full)...)
		}
	case name == "object":
		c.URL = v.Page(value)
	case leads[name] != "":
		c.URL = v.At(leads[name], value)
	}
	return c
}

func partsOf(path string) (list []any) {
	for p := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name, err := url.PathUnescape(p); err == nil {
			p = name
		}
		list = append(list, p)
	}
	return list
}
