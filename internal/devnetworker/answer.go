package devnetworker

import (
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// answer is what a call is answered. Without a body, its connection is closed without a word.
type answer struct {
	status int
	body   map[string]any
}

// accepted says that a transaction is on its way.
func accepted(st devnet.Status) answer {
	return answer{http.StatusOK, map[string]any{"hash": st.Hash, "done": map[string]any{}, "error": nil,
		"nonce": strconv.FormatUint(st.Nonce, 10), "fee": strconv.FormatUint(st.Fee, 10)}}
}

// refuse says that it did not go out, with a code of S2.8.
func refuse(r refusal) answer {
	return answer{http.StatusOK, map[string]any{"hash": "", "done": nil,
		"error": map[string]any{"code": r.Code, "message": r.Message}}}
}

// rejected is what can never be done.
func rejected(message string) refusal { return refusal{500, message} }

// blocked says that nothing was done and nothing can be for a while (S2.8).
func blocked(message string, wait time.Duration) answer {
	e := map[string]any{"class": "blocked", "code": 502, "message": message}
	if wait > 0 {
		e["until"] = time.Now().Add(wait).UTC().Format(time.RFC3339Nano)
	}
	return answer{http.StatusServiceUnavailable, map[string]any{"hash": "", "done": nil, "error": e}}
}

// open says that it may have been done: the caller asks by token (S2.10).
func open(message string) answer {
	return answer{http.StatusGatewayTimeout, map[string]any{"hash": "", "done": nil,
		"error": map[string]any{"class": "ambiguous", "code": "ledger_timeout", "message": message}}}
}

// stale says that a higher fence came: nothing was done.
func stale(message string) answer {
	return answer{http.StatusConflict, map[string]any{"message": message}}
}
