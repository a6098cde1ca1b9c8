package demo

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// Transaction is what the demo reads of a transaction.
type Transaction struct {
	ID         string       `json:"id"`
	UID        string       `json:"uid"`
	Queue      string       `json:"queue"`
	Type       string       `json:"type"`
	State      outbox.State `json:"state"`
	QueueState string       `json:"queue_state"`
	Retries    int          `json:"retries"`
	Sender     string       `json:"sender"`
	ReceivedAt time.Time    `json:"received_at"`
	DoneAt     *time.Time   `json:"done_at"`
	Error      *struct {
		Class   string `json:"class"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Sender is what the demo reads of a sender.
type Sender struct {
	Account string `json:"account"`
	State   string `json:"state"`
	Queue   string `json:"queue"`
}

// Move is one line of a transaction's history.
type Move struct {
	At   time.Time    `json:"at"`
	From outbox.State `json:"from"`
	To   outbox.State `json:"to"`
}

// client speaks to the API.
type client struct {
	base string
	http *http.Client
	key  ed25519.PrivateKey // of the actor that signs requests; nil: they are those of the developer

	fence string // under which something is said; "": none
}

// do sends one request and reads the answer into out. An answer of 400 and more is an error with the
// sentence of its problem document.
func (c *client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	var text []byte
	if in != nil {
		var err error
		if text, err = json.Marshal(in); err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.fence != "" {
		req.Header.Set("Postern-Fence", c.fence)
	}
	if c.key != nil {
		err := signature.Signer{Key: c.key}.Sign(req.Header, method, req.URL.String(), text, time.Now())
		if err != nil {
			return err
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= 400 {
		var problem struct{ Title, Detail string }
		json.Unmarshal(b, &problem)
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, problem.Detail)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: the answer cannot be read: %w", method, path, err)
	}
	return nil
}

// page is a list as the API gives it.
type page[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// all reads every page of a list.
func all[T any](ctx context.Context, c *client, path string, query url.Values) ([]T, error) {
	query.Set("limit", "500")
	var items []T
	for {
		var p page[T]
		if err := c.do(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &p); err != nil {
			return nil, err
		}
		items = append(items, p.Items...)
		if p.Next == nil {
			return items, nil
		}
		query.Set("cursor", *p.Next)
	}
}
