package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/remotetest"
)

// calls: calls [FIELD]... [on=worker]. The calls that the worker has seen since the story last told: each with its
// token or hash, its sender, fee, nonce and earlier hashes; and of fence, state, data, result, retries, queue those
// that are named. Calls for different queues go out side by side: they are told queue by queue. Questions for
// max-retries are left out, since their number depends on what a node remembers.
func calls(s *story, c *command, say say) error {
	w := s.worker(c.option("on", "worker"))
	more := c.rest()
	all := w.Calls(remotetest.Match{})
	fresh := append([]remotetest.Seen(nil), all[w.told:]...)
	w.told = len(all)
	queueOf := map[string]string{}
	for _, seen := range all {
		if seen.Token != "" && seen.Op != remotetest.OpStatus {
			queueOf[seen.Token] = seen.Queue
		}
	}
	var hash, name string
	if err := s.each(`SELECT a.hash, n.name FROM postern.attempt a JOIN postern.queue_name n USING (queue_id) WHERE a.hash IS NOT NULL`, nil,
		[]any{&hash, &name}, func() error { queueOf[hash] = name; return nil }); err != nil {
		return err
	}
	key := func(seen remotetest.Seen) string {
		if seen.Queue != "" {
			return seen.Queue
		}
		first := queueOf[seen.Token]
		for _, hash := range append([]string{seen.Hash}, seen.Hashes...) {
			if q := queueOf[hash]; q != "" && (first == "" || q < first) {
				first = q
			}
		}
		return first
	}
	sort.SliceStable(fresh, func(i, j int) bool { return key(fresh[i]) < key(fresh[j]) })
	for i := range fresh { // hooks go out side by side too: those in a row are told by position
		for j := i; j > 0 && hook(fresh[j]) && hook(fresh[j-1]) && key(fresh[j]) == key(fresh[j-1]) &&
			fresh[j].Position < fresh[j-1].Position; j-- {
			fresh[j], fresh[j-1] = fresh[j-1], fresh[j]
		}
	}
	for _, seen := range fresh {
		if seen.Op == remotetest.OpMaxRetries {
			continue
		}
		what := seen.Token
		if what == "" {
			hashes := slices.Clone(seen.Hashes)
			slices.Sort(hashes)
			what = strings.Join(append(hashes, seen.Hash), " ")
		}
		say("%s %s%s%s", seen.Op, strings.TrimSpace(what),
			fields("by", seen.Account, "fee", seen.Fee, "nonce", seen.Nonce,
				"previous", strings.Join(seen.PreviousHashes, ","), "again", seen.Repeat), s.extra(seen, all, more))
	}
	return nil
}

// byTheClock, and the day, is what differs from one telling to the next.
var byTheClock = regexp.MustCompile(`("fence"|"deadline"):("[^"]*"|\d+)`)

func hook(seen remotetest.Seen) bool {
	return seen.Op == remotetest.OpOnSuccess || seen.Op == remotetest.OpOnFailure
}

// extra shows the fields that a story asks for.
func (s *story) extra(seen remotetest.Seen, all []remotetest.Seen, more []string) string {
	var b strings.Builder
	for _, f := range more {
		switch f {
		case "fence": // which of the fences of its queue that the worker has seen, counted from 1
			var fences []int64
			for _, o := range all {
				if o.Queue == seen.Queue && o.Fence != 0 && !slices.Contains(fences, o.Fence) {
					fences = append(fences, o.Fence)
				}
			}
			slices.Sort(fences)
			b.WriteString(fields("fence", slices.Index(fences, seen.Fence)+1))
		case "state":
			b.WriteString(fields("state", seen.State, "sender", seen.SenderState))
		case "data":
			b.WriteString(fields("data", string(seen.Data)))
		case "result":
			b.WriteString(fields("result", string(seen.Result)))
		case "retries":
			b.WriteString(fmt.Sprintf(" retries=%d attempt=%d", seen.Retries, seen.Attempt))
		case "before":
			b.WriteString(fields("before", string(seen.Before)))
		case "attributes":
			b.WriteString(fields("attributes", string(seen.Attributes)))
		case "factor":
			b.WriteString(fields("factor", seen.FeeFactor))
		case "queue":
			b.WriteString(fields("queue", seen.Queue, "position", seen.Position))
		case "body":
			body := byTheClock.ReplaceAllString(string(seen.Body), `$1:"..."`)
			b.WriteString(" " + strings.ReplaceAll(body, start.Format(time.DateOnly), "..."))
		default:
			b.WriteString(" (calls have no " + f + ")")
		}
	}
	return b.String()
}
