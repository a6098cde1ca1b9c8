package ui

import (
	"fmt"
	"net/http"
	"net/url"
)

// jobPage is a job with its tries and the end of its output.
type jobPage struct {
	*thingPage

	J     doc
	Tries []doc
	Log   []doc
	Cut   bool // there is more output before
}

// logLines and logBytes bound how much of the output of a job its page shows: the end of it.
const logLines, logBytes = 200, 32 << 10

// job loads the page of one. While somebody looks at it, its output comes as it is kept.
func job(v *visit) (*screen, error) {
	id := v.r.PathValue("name")
	path := pathTo("jobs", id)
	t, err := v.thing(path, nil)
	if err != nil {
		return nil, err
	}
	a, err := v.get(path)
	if err != nil {
		return nil, err
	}
	p := jobPage{thingPage: t, J: a.doc}
	t.Facts = without(t.Facts, "id", "status", "script")
	tries, err := v.get(path + "/tries")
	if err != nil {
		return nil, err
	}
	p.Tries = tries.items()
	logs, err := v.call(http.MethodGet, fmt.Sprintf("%s/logs?last=%d", path, logLines), nil)
	if err != nil {
		return nil, err
	}
	p.cut(logs.items())
	return &screen{visit: v, Title: "job " + id, Data: p, Live: v.At("jobs", id) + "?live=1", file: "job.html"}, nil
}

// cut keeps as much of the end of the output as is shown.
func (p *jobPage) cut(lines []doc) {
	from, left := len(lines), logBytes
	for from > 0 && left > 0 {
		from--
		left -= len(str(lines[from], "text"))
	}
	p.Log, p.Cut = lines[from:], from > 0 || len(lines) == logLines
}

// outputPage is a part of the output of a job, as `postern job logs` shows it.
type outputPage struct {
	ID    string
	Log   []doc
	Next  string // the URL of what comes behind it
	First string // that of the beginning, where this is not
	More  bool   // there is something behind it now
}

// outputLines is how many pieces of output a page has.
const outputLines = 100

// output loads a page of the output of a job, from its beginning on.
func output(v *visit) (*screen, error) {
	p := outputPage{ID: v.r.PathValue("name")}
	after := v.r.URL.Query().Get("after")
	query := url.Values{"limit": {fmt.Sprint(outputLines)}}
	if after != "" {
		query.Set("after", after)
		p.First = v.At("jobs", p.ID, "logs")
	}
	a, err := v.get(with(pathTo("jobs", p.ID, "logs"), query))
	if err != nil {
		return nil, err
	}
	p.Log = a.items()
	p.More = len(p.Log) == outputLines
	if at := str(a.doc, "after"); at != "" {
		p.Next = with(v.At("jobs", p.ID, "logs"), url.Values{"after": {at}})
	}
	return &screen{visit: v, Title: "output of job " + p.ID, Data: p, file: "output.html"}, nil
}
