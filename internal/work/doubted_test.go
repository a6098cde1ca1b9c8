package work_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/remotetest"
)

// A worker says under a 503 that it may have been done, and cannot be asked: its word counts, and not the status, also
// for the node that goes on with it later. So it is held after one call.
func TestADoubtOfTheWorkersOwnOutlivesItsNode(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(dispatches, remotetest.HTTP(503, `{"error":{"class":"ambiguous","message":"perhaps"}}`))
	h.fake.StatusDown(true)
	h.dispatcher("T", nil)
	stop := h.engine("n1", nil)
	id := h.post("q", "T", "a")[0]
	h.within("its worker is asked, and does not answer", func() bool {
		var n int
		h.must(h.s.Pool().QueryRow(h.ctx, `
			SELECT count(*)
			FROM postern.attempt
			WHERE queue_id = $1 AND step = 'unknown' AND code = 'http_503'`, id.Queue).Scan(&n))
		return n > 0
	})
	stop()
	h.fake.StatusDown(false)
	h.fake.HasStatus(false)
	h.engine("n2", nil)
	h.within("it is held", func() bool {
		var n int
		h.must(h.s.Pool().QueryRow(h.ctx, `
			SELECT count(*)
			FROM postern.mark
			WHERE queue_id = $1 AND kind = 'unknown'`, id.Queue).Scan(&n))
		return n == 1
	})
	if n := len(h.fake.Calls(dispatches)); n != 1 {
		t.Errorf("%d calls of what may have been done, want one", n)
	}
}
