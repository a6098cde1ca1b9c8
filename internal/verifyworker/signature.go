package verifyworker

import (
	"context"
	"net/http"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

// signature sends what Postern would with another secret, and without any.
func (v *verifier) signature(ctx context.Context) finding {
	other := append([]byte{}, v.o.Secret...)
	other[0] ^= 1
	var x remote.Exchange
	st := v.client.Status(watch(remote.Signed(ctx, other), &x), v.o.URL, v.o.Type, v.call().Token(), "")
	switch {
	case x.Status == 0:
		return failed("a question that is signed with another secret is not answered: %s", x.Message)
	case st.State != outbox.StatusUnreachable && st.State != outbox.StatusUnsupported:
		return failed("a question that is signed with another secret is answered: %s", st.State)
	}
	c := v.call()
	if a, _ := v.send(remote.Signed(ctx, other), c); a.Class == "" {
		return failed("a dispatch that is signed with another secret is accepted")
	}
	status, answer, err := v.do(ctx, http.MethodPost, "/dispatch/"+v.o.Type,
		[]byte(`{"txData": {"uid": "verify-unsigned", "type": "`+v.o.Type+`", "data": `+string(v.o.Data)+`}}`))
	switch {
	case err != nil:
		return failed("a dispatch that is not signed is not answered: %s", err)
	case !refused(status, answer) && status < 500:
		return failed("a dispatch that is not signed is answered with HTTP %d, want 401", status)
	}
	return ok("what is signed with another secret, or not at all, is refused")
}
