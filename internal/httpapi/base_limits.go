package httpapi

// Limits are those that GET /limits shows. Zero means the default.
type Limits struct {
	Body     int64 `json:"body_bytes"`        // of one request
	Batch    int64 `json:"batch_bytes"`       // of POST /transactions:batch
	Items    int   `json:"batch_items"`       // of one batch
	Data     int   `json:"data_bytes"`        // of the field data
	Tags     int   `json:"tags"`              // of one transaction
	Depth    int   `json:"json_depth"`        // of any body
	Wait     int   `json:"wait_seconds"`      // of one request
	Waits    int   `json:"waits"`             // at once, in this process
	Streams  int   `json:"streams"`           // at once, in this process; feeds that wait included
	Page     int   `json:"page_items"`        // of one list
	Examined int   `json:"page_examined"`     // rows that one page may look at
	BodyRead int   `json:"body_in_seconds"`   // for the whole body to arrive
	Answer   int   `json:"answer_in_seconds"` // until the answer begins, besides what the request asks to wait
	Taken    int   `json:"taken_in_seconds"`  // for the client to read the whole answer; of a stream, each event
	Ticks    int   `json:"ticks_a_second"`    // of processors, by one actor, in this process
	Depends  int   `json:"depends_on"`        // of one transaction
	Requests int   `json:"requests_a_second"` // by one key or actor, in this process; 0: any number

	Headers     int `json:"header_bytes"`       // of one request
	HeadersRead int `json:"headers_in_seconds"` // for all of them to arrive
}

// DefaultLimits are the limits of a server that is told nothing.
//
// Answer covers a body that takes its 15 s, a commit that takes its 30 s (pg.txn), and 10 s to get there; proxies wait
// for 60 s.
var DefaultLimits = Limits{
	Body: 1 << 20, Batch: 8 << 20, Items: 1000, Data: 256 << 10, Tags: 16, Depth: 64, Wait: 60, Waits: 2000,
	Streams: 500, Page: 500, Examined: 50000, BodyRead: 15, Answer: 55, Taken: 60, Ticks: 50, Depends: 64,
	Headers: 16 << 10, HeadersRead: 5,
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits
	or(&l.Body, d.Body)
	or(&l.Batch, d.Batch)
	or(&l.Items, d.Items)
	or(&l.Data, d.Data)
	or(&l.Tags, d.Tags)
	or(&l.Depth, d.Depth)
	or(&l.Wait, d.Wait)
	or(&l.Waits, d.Waits)
	or(&l.Streams, d.Streams)
	or(&l.Page, d.Page)
	or(&l.Examined, d.Examined)
	or(&l.BodyRead, d.BodyRead)
	or(&l.Answer, d.Answer)
	or(&l.Taken, d.Taken)
	or(&l.Ticks, d.Ticks)
	or(&l.Depends, d.Depends)
	or(&l.Headers, d.Headers)
	or(&l.HeadersRead, d.HeadersRead)
	return l
}

func or[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
