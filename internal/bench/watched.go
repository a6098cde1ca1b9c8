package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// dashboards is how many of the dashboard's live pages are open.
const dashboards = 10

// watchedPages are those that are open, in turns.
var watchedPages = []string{"now", "machines/transaction"}

// e2eWatched measures e2e with and without open dashboards, in turns.
func e2eWatched(ctx context.Context, b *Bench) (all []*Result, err error) {
	var trials [2][]*trial
	for i := range b.Runs {
		for k, open := range []int{0, dashboards} {
			t, err := b.watched(ctx, open)
			if err != nil {
				return nil, err
			}
			b.told(fmt.Sprintf("e2e-watched, %d dashboards", open), i, t)
			trials[k] = append(trials[k], t)
		}
	}
	for k, open := range []int{0, dashboards} {
		r := b.summary("e2e-watched", "postern", trials[k])
		r.timed(trials[k], "post")
		r.Settings["queues"], r.Settings["depth"], r.Settings["dashboards"] = b.Queues, b.Depth, open
		all = append(all, r)
	}
	all[1].compare("rate_to_unwatched", trials[1], trials[0], (*trial).rate)
	return all, nil
}

// watch opens live pages of a process, and reads what comes. close closes them.
func watch(ctx context.Context, url string, pages int) (close func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	for i := range pages {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			url+"/ui/c/default/"+watchedPages[i%len(watchedPages)]+"?live=1", nil)
		if err != nil {
			cancel()
			return nil, err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil && (res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream") {
			res.Body.Close()
			err = fmt.Errorf("%s answers %s, and no stream", req.URL, res.Status)
		}
		if err != nil {
			cancel()
			return nil, err
		}
		go func() {
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body) // until it is closed
		}()
	}
	return cancel, nil
}
