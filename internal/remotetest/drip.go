package remotetest

import (
	"net/http"
	"time"
)

// drip writes a blank now and then, without end: an answer that is always coming.
func (b bring) drip(w http.ResponseWriter, r *http.Request, gone <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	w.WriteHeader(b.status)
	flush := http.NewResponseController(w)
	for {
		if _, err := w.Write([]byte(" ")); err != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-gone:
			return
		}
	}
}
