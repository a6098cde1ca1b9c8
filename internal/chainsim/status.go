package chainsim

import (
	"net/http"
	"strconv"
)

// status answers for a token or a hash.
func (s *Sim) status(w http.ResponseWriter, r *http.Request) {
	var q struct{ Token, Hash string }
	if !read(w, r, &q) {
		return
	}
	say(w, http.StatusOK, s.asked(q.Token, q.Hash))
}

// asked says what is known of a token, or if that is "", of a hash.
func (s *Sim) asked(token, hash string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == "" {
		return s.known(s.byHash[hash])
	}
	switch said := s.byToken[token]; {
	case said == nil:
		return s.known(nil)
	case said.tx == nil:
		return map[string]any{"state": "failed", "block_height": nil, "failure_reason": said.reason}
	default:
		return s.known(said.tx)
	}
}

// statusBatch answers for many hashes, in their order.
func (s *Sim) statusBatch(w http.ResponseWriter, r *http.Request) {
	var q struct{ Hashes []string }
	if !read(w, r, &q) {
		return
	}
	all := make([]map[string]any, len(q.Hashes))
	for i, h := range q.Hashes {
		all[i] = s.asked("", h)
	}
	say(w, http.StatusOK, map[string]any{"statuses": all})
}

// known says what the chain knows of t. The lock is held.
func (s *Sim) known(t *tx) map[string]any {
	m := map[string]any{"state": "unknown", "block_height": nil, "failure_reason": nil}
	if t == nil || t.gone {
		return m
	}
	m["hash"], m["nonce"] = t.hash, strconv.FormatInt(t.nonce, 10)
	if t.height == 0 {
		m["state"] = "pending"
		return m
	}
	m["state"], m["block_height"], m["confirmations"] = "included", strconv.FormatInt(t.height, 10), s.height-t.height+1
	if t.fails != "" {
		m["failure_reason"] = t.fails
	}
	return m
}
