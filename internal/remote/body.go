package remote

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dispatchBody writes the body of a dispatch (S2.7) in one pass: this is the hot path.
func dispatchBody(c Call, token string, deadline time.Time) []byte {
	b := make([]byte, 0, 640+len(c.Data)+64*len(c.PreviousHashes))
	b = appendTxData(b, c)
	b = appendSender(b, c)
	b = append(b, `,"postern":{"token":`...)
	b = appendString(b, token)
	b = appendPostern(b, c)
	b = append(b, `,"deadline":"`...)
	b = deadline.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, '"')
	if len(c.Before) > 0 && len(b)+len(c.Before) > mostBody-64 {
		b = appendLeftOut(b, []string{"result"})
		c.Before = nil
	}
	b = append(b, '}')
	if len(c.Before) > 0 {
		b = append(b, `,"result":`...)
		b = append(b, c.Before...)
	}
	return append(b, '}')
}

// mostBody is how many bytes the body of a call has: workers must take that many.
const mostBody = 1 << 20

// appendLeftOut names what stays out of a body that would be larger than workers must take.
func appendLeftOut(b []byte, names []string) []byte {
	if len(names) == 0 {
		return b
	}
	list, _ := json.Marshal(names) // strings never fail
	b = append(b, `,"left_out":`...)
	return append(b, list...)
}

// Baton writes {hash, done, error} with all other members that a worker answered, but for data, which is that of the
// transaction from then on: the attempt after it is told (S2.7). errObj is our word for what went wrong, null for
// nothing.
func Baton(hash string, members, errObj json.RawMessage) json.RawMessage {
	return appendResult(nil, hash, baton{}, members, errObj)
}

// baton is what a transaction ended with.
type baton struct {
	Hash string          `json:"hash"`
	Done json.RawMessage `json:"done"`
	Data json.RawMessage `json:"data"`
}

// hookBody writes the body of a hook: the same, with the result between. Of what is larger than workers must take, it
// leaves out one part after the other, and names them. The first is data, which txData has, too.
func hookBody(c Call, token string, result, errObj json.RawMessage) []byte {
	var r baton
	_ = json.Unmarshal(result, &r) // of another shape: what it has no name for stays out
	parts := []struct {
		name string
		of   *json.RawMessage
	}{{"result.data", &r.Data}, {"result.*", &c.Members}, {"result.done", &r.Done}, {"txData.data", &c.Data}}
	var left []string
	b := appendHook(c, token, r, errObj, left)
	for _, p := range parts {
		if len(b) <= mostBody {
			break
		}
		if len(*p.of) > 0 {
			*p.of, left = nil, append(left, p.name)
			b = appendHook(c, token, r, errObj, left)
		}
	}
	return b
}

func appendHook(c Call, token string, r baton, errObj json.RawMessage, left []string) []byte {
	b := make([]byte, 0, 640+len(c.Data)+len(r.Done)+len(r.Data)+len(c.Members)+len(errObj))
	b = appendTxData(b, c)
	b = append(b, `,"result":`...)
	b = appendResult(b, c.Hash, r, c.Members, errObj)
	b = appendSender(b, c)
	b = append(b, `,"postern":{"token":`...)
	b = appendString(b, token)
	b = appendPostern(b, c)
	b = appendLeftOut(b, left)
	return append(b, `}}`...)
}

// uid is the client's name of the transaction, else its id (S2.1).
func (c Call) uid() string {
	if c.UID != "" {
		return c.UID
	}
	return c.ID.String()
}

func appendTxData(b []byte, c Call) []byte {
	b = append(b, `{"txData":{"uid":`...)
	b = appendString(b, c.uid())
	b = append(b, `,"type":`...)
	b = appendString(b, c.Type)
	b = append(b, `,"data":`...)
	b = appendRaw(b, c.Data)
	b = append(b, `,"state":`...)
	b = appendString(b, string(c.State))
	b = append(b, `,"hash":`...)
	b = appendString(b, c.Hash)
	b = append(b, `,"ts":"`...)
	b = c.PostedAt.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, `"}`...)
}

// appendSender writes the sender. secretKey is a member that reference workers read; it is always empty:
// Postern holds no key.
func appendSender(b []byte, c Call) []byte {
	b = append(b, `,"sender":{"accountId":`...)
	b = appendString(b, c.Account)
	b = append(b, `,"secretKey":"","workerUrl":`...)
	b = appendString(b, c.SenderWorkerURL)
	b = append(b, `,"queue":`...)
	b = appendString(b, c.Queue)
	b = append(b, `,"state":`...)
	b = appendString(b, c.SenderState)
	b = append(b, `,"retries":`...)
	b = strconv.AppendInt(b, int64(c.Retries), 10)
	if len(c.Attributes) > 0 {
		b = append(b, `,"attributes":`...)
		b = append(b, c.Attributes...)
	}
	return append(b, '}')
}

func appendPostern(b []byte, c Call) []byte {
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(c.Attempt), 10)
	b = append(b, `,"fence":`...)
	b = strconv.AppendInt(b, c.Fence, 10)
	b = append(b, `,"position":`...)
	b = strconv.AppendInt(b, c.Position, 10)
	b = append(b, `,"fee":`...)
	b = appendString(b, c.Fee)
	b = append(b, `,"fee_factor":`...)
	b = appendString(b, cmp.Or(c.FeeFactor, "1"))
	b = append(b, `,"previous_hashes":[`...)
	for i, h := range c.PreviousHashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, h)
	}
	b = append(b, `],"nonce":`...)
	return appendString(b, c.Nonce)
}

// appendResult writes the seed's baton {hash, done, error, data?} from what we recorded, and the other members as they
// came.
func appendResult(b []byte, hash string, r baton, members, errObj json.RawMessage) []byte {
	if r.Hash == "" {
		r.Hash = hash
	}
	var others map[string]json.RawMessage
	_ = json.Unmarshal(members, &others) // none: no error, and no others
	b = append(b, `{"hash":`...)
	b = appendString(b, r.Hash)
	b = append(b, `,"done":`...)
	b = appendRaw(b, r.Done)
	b = append(b, `,"error":`...)
	b = appendRaw(b, whole(others["error"], errObj))
	if len(r.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, r.Data...)
	}
	delete(others, "error")
	for _, name := range slices.Sorted(maps.Keys(others)) {
		b = append(b, ',')
		b = appendString(b, name)
		b = append(b, ':')
		b = append(b, others[name]...)
	}
	return append(b, '}')
}

// whole is the error as the worker said it, with our class, and with our code and message where it has none. Without a
// word of ours nothing went wrong, and without one of the worker's it is ours.
func whole(said, ours json.RawMessage) json.RawMessage {
	var object, all map[string]json.RawMessage
	if json.Unmarshal(ours, &object) != nil || len(object) == 0 || json.Unmarshal(said, &all) != nil || all == nil {
		return ours
	}
	for name, value := range object {
		if _, has := all[name]; !has || name == "class" {
			all[name] = value
		}
	}
	merged, err := json.Marshal(all)
	if err != nil {
		return ours
	}
	return merged
}

// appendRaw writes JSON as it is, null for none.
func appendRaw(b []byte, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// appendString writes s as a JSON string. Nearly all of ours are plain ASCII and need no encoder.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if ch := s[i]; ch < 0x20 || ch > 0x7e || ch == '"' || ch == '\\' {
			quoted, _ := json.Marshal(s) // a string never fails
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// callHeader holds what a worker may want to see before it reads the body (api.md 3). The keys are
// written in canonical form, so that they can be set without a pass through the canonicaliser.
func callHeader(c Call, token string, deadline time.Time) http.Header {
	h := http.Header{
		"Postern-Transaction": {c.ID.String()},
		"Postern-Attempt":     {strconv.Itoa(c.Attempt)},
		"Postern-Fence":       {strconv.FormatInt(c.Fence, 10)},
		"Idempotency-Key":     {token},
	}
	if line := c.Line.String(); line != "" {
		h["Postern-Line"] = []string{line}
	}
	if !deadline.IsZero() {
		h["Postern-Deadline"] = []string{deadline.UTC().Format(time.RFC3339)}
	}
	if c.Traceparent != "" {
		h["Traceparent"] = []string{c.Traceparent}
	}
	return h
}

// endpoint joins the worker's URL with a verb and, unless it is "", a type.
func endpoint(base, verb, typ string) string {
	base = strings.TrimRight(base, "/")
	if typ == "" {
		return base + "/" + verb
	}
	return base + "/" + verb + "/" + url.PathEscape(typ)
}
