package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// client makes requests over at most so many connections.
func client(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, IdleConnTimeout: time.Minute}}
}

// body is the transaction that every scenario posts: n is its place in the order of its queue, as its
// client knows it.
func body(queue string, n int) string {
	return fmt.Sprintf(`{"queue": %q, "type": %q, "data": {"n": %d, "to": "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", "amount": "1000000"}}`, queue, benchType, n)
}

func post(ctx context.Context, c *http.Client, url, queue string, n int) error {
	_, err := send(ctx, c, http.MethodPost, url+"/transactions", body(queue, n), http.StatusCreated)
	return err
}

// send makes a request and returns the body of the answer, or an error if it has another status.
func send(ctx context.Context, c *http.Client, method, url, body string, want ...int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if !slices.Contains(want, res.StatusCode) {
		return nil, fmt.Errorf("%s %s answered %s: %.300s", method, url, res.Status, answer)
	}
	return answer, nil
}

// ready waits until a process serves.
func ready(ctx context.Context, c *http.Client, url string) error {
	for {
		_, err := send(ctx, c, http.MethodGet, url+"/readyz", "", http.StatusOK)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
