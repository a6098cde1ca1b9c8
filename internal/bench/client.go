package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// body1 is the transaction that every scenario posts: n is its place in the order of its queue, as its
// client knows it.
func body1(queue string, n int) string {
	return fmt.Sprintf(`{"queue": %q, "type": %q, "data": {"n": %d, "to": "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", "amount": "1000000"}}`, queue, benchType, n)
}

// ready waits until a process serves.
func ready(ctx context.Context, url string) error {
	for {
		res, err := http.Get(url + "/readyz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New("/readyz answers " + res.Status)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
