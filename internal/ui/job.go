package ui

import (
	"fmt"
	"net/http"
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
