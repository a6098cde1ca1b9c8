package remote

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// A reply over Mycelium is an answer with a status that HTTP has, or 0, with a header within its limit, and with the
// body whose length it tells; or it is none, and what became of the call is unknown.
func FuzzAnswerOf(f *testing.F) {
	for _, s := range []string{`{"status":200,"headers":{"A":["1"]},"body":"e30="}`, `{}`, `null`, `[]`,
		`{"status":-1}`,
		`{"status":1000}`, `{"status":100}`, `{"status":200,"headers":{"a b":["\r\n"],"":[""]}}`,
		`{"body":"not base64"}`,
		`{"headers":{"A":null}}`, `{"status":1e2}`} {
		f.Add([]byte(s), 0)
	}
	f.Add([]byte(`{"status":200,"headers":{"X":["?"]}}`), maxHeader)
	f.Fuzz(func(t *testing.T, payload []byte, long int) {
		if long > 0 {
			payload = bytes.ReplaceAll(payload, []byte("?"), bytes.Repeat([]byte("y"), min(long, 2*maxHeader)))
		}
		r, err := answerOf(payload, nil)
		if (r == nil) == (err == nil) {
			t.Fatalf("%.80q is %v and %v", payload, r, err)
		}
		if r == nil {
			return
		}
		size := 0
		for name, values := range r.Header {
			for _, v := range values {
				size += len(name) + len(v)
			}
		}
		body, err := io.ReadAll(r.Body)
		if r.StatusCode != 0 && (r.StatusCode < 200 || r.StatusCode > 999) || size > maxHeader || err != nil ||
			int64(len(body)) != r.ContentLength {
			t.Errorf("%.80q is %d with a header of %d and a body of %d bytes", payload, r.StatusCode, size, len(body))
		}
	})
}

// What a peer says of itself without a signature can be shown and stored, and an installation can be sent in a header.
func FuzzPeerSaid(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"detail":"no"}`, `{"detail":"\u0000\ud800\n"}`, `{"detail":7}`,
		`{"installation":"0190b5a2-7c1e-7000-8000-000000000001"}`, `{"installation":"\u0000"}`,
		`{"installation":"a\r\nB: c"}`,
		`{"installation":"\u007f"}`, `{"installation":"ä"}`, `{"installation":"\ud800"}`, "{\"detail\":\"\xff\"}",
		`{"installation":"` + strings.Repeat("a", 101) + `"}`, `{"detail":"` + strings.Repeat("ä", 3000) + `"}`} {
		f.Add([]byte(s), 502)
	}
	control := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		if s := peerSaid(reply{status: status, body: body}); s == "" || !utf8.ValidString(s) || control(s) ||
			len(s) > maxKept {
			t.Errorf("%q says %q", body, s)
		}
		if s := installationIn(body); !utf8.ValidString(s) || control(s) || len(s) > 100 {
			t.Errorf("%q is the installation %q", body, s)
		}
	})
}

// once fails where an object of JSON, or one within it, is none, or has a member twice.
func once(t *testing.T, text []byte) map[string]json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(text))
	seen := map[string]json.RawMessage{}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		t.Fatalf("%q is no object: %v", text, err)
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		key, _ := name.(string)
		if _, twice := seen[key]; err != nil || twice {
			t.Fatalf("%q has %q twice, or is none: %v", text, key, err)
		}
		seen[key] = value
	}
	if !json.Valid(text) {
		t.Fatalf("%q is no JSON", text)
	}
	return seen
}

// What a hook is sent is one object, and so is the result in it; each member is there once, and those of a worker's
// error stand in it, under our class. The members are those that we keep of an answer.
func FuzzHookBody(f *testing.F) {
	for _, c := range [][4]string{{"", "", "", ""}, {`{"hash":"h","done":{},"data":[1]}`, `{"x":1}`, `null`, `h`},
		{`{"done":null}`, `{"error":{"class":"retry","a":1},"nonce":"7","hash":"x","done":1,"data":2}`,
			`{"class":"rejected","code":"c"}`, ""},
		{`[]`, `{"error":"text","X":null}`, `{"class":"rejected"}`, `"\`}, {`{"data":null}`, `{"<":"\u2028"}`, `{}`,
			"\xff"},
		{`null`, `{"error":null}`, `{"code":"c"}`, "\x00"}} {
		f.Add([]byte(c[0]), []byte(c[1]), []byte(c[2]), c[3])
	}
	f.Fuzz(func(t *testing.T, result, answered, ours []byte, text string) {
		if len(result) > 0 && !json.Valid(result) || len(ours) > 0 && !json.Valid(ours) {
			return
		}
		var all map[string]json.RawMessage
		_ = json.Unmarshal(answered, &all)
		c := Call{Type: text, UID: text, Hash: text, Queue: text, Nonce: text, Members: members(all, true),
			PreviousHashes: []string{text}}
		body := once(t, hookBody(c, text, result, ours))
		said := once(t, body["result"])
		for _, name := range []string{"hash", "done", "error"} {
			if said[name] == nil {
				t.Errorf("%s has no %s", body["result"], name)
			}
		}
		for name, value := range all {
			if !slices.Contains(knownMembers, name) && !bytes.Equal(said[name], value) {
				t.Errorf("%s has %q as %s, and not as %s", body["result"], name, said[name], value)
			}
		}
		var own, merged map[string]json.RawMessage
		if json.Unmarshal(ours, &own) == nil && own["class"] != nil &&
			(json.Unmarshal(said["error"], &merged) != nil || !equalText(merged["class"], own["class"])) {
			t.Errorf("%s has not our class, of %s", said["error"], ours)
		}
	})
}

// equalText says whether two texts are the same JSON, but for how a string is escaped.
func equalText(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// A value that is storable is JSON without a NUL, not nested too deep, and stays as it is when it is stored once more.
func FuzzStorable(f *testing.F) {
	for _, s := range []string{`null`, `"\u0000"`, `{"\u0000":1,"a":"\\u0000"}`, `"\ud800"`, "\"\xff\"", `1e999999`,
		`-1e-1001`, `1e1000`,
		strings.Repeat("9", 1001), strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[",
			65) + strings.Repeat("]", 65),
		`"\u2028"`, `"[[["`, `{"a":1,"a":2}`, `"\\"`, ` [1 , 2] `, `{"\u0000":1,"\ufffd":2}`,
		`0.` + strings.Repeat("1", 1200)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		kept, ok := storable(raw)
		_, depth := scan(raw)
		if !ok {
			if depth <= maxDepth || kept != nil {
				t.Errorf("%q cannot be stored, of %d levels: %q", raw, depth, kept)
			}
			return
		}
		if !json.Valid(kept) || !utf8.Valid(kept) || holdsNUL(kept) {
			t.Errorf("%q is kept as %q", raw, kept)
		}
		if again, ok := storable(kept); !ok || !bytes.Equal(again, kept) {
			t.Errorf("%q is kept as %q, and that as %q", raw, kept, again)
		}
	})
}

// However an address of a private range is written in a URL, it is no public place: it is known for what it is, or is
// neither an address nor a name.
func FuzzLiteral(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "127.1", "127.0.0.1.", "0x7f.1", "2130706433", "[::1]", "[::ffff:10.0.0.1]",
		"[fe80::1%25eth0]",
		"[::ffff:a00:1%25x]", "localhost.", "a.LOCALHOST", "0177.0.0.1", "[::10.0.0.1]", "[64:ff9b::a00:1]",
		"１２７.0.0.1", "10.0.0.1%2e",
		"169.254.169.254", "[fd00::1]", "0", "example.com", "8.8.8.8", "[2001:4860:4860::8888]", "u@10.0.0.1:80",
		"127。0。0。1"} {
		f.Add(s, uint32(0x0a000001))
	}
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::1/128")}
	within := func(a netip.Addr) bool {
		a = a.Unmap().WithZone("")
		return slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	f.Fuzz(func(t *testing.T, host string, number uint32) {
		p := Literal("http://" + host + "/x")
		if p.Literal && len(p.Addrs) == 0 || p.NoHost && !p.Literal && len(p.Addrs) > 0 {
			t.Errorf("%q is %+v", host, p)
		}
		if p.Literal && !p.NoHost && slices.ContainsFunc(p.Addrs, within) && p.Public() {
			t.Errorf("%q is public: %+v", host, p)
		}
		last := strings.TrimRight(p.Host, ".")
		last = strings.ToLower(last[strings.LastIndexByte(last, '.')+1:])
		digits, base := last, 10
		if hex, ok := strings.CutPrefix(last, "0x"); ok {
			digits, base = hex, 16
		}
		if _, err := strconv.ParseUint(digits, base, 64); err == nil && !p.Literal && !p.NoHost {
			t.Errorf("%q, which some take for an address, is %+v", host, p)
		}
		a := netip.AddrFrom4([4]byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)})
		if !within(a) {
			return
		}
		mapped := netip.AddrFrom16(a.As16())
		for _, spelt := range []string{a.String(), "[" + mapped.String() + "]", "[" + mapped.StringExpanded() + "]:80",
			"[" + strings.ToUpper(mapped.StringExpanded()) + "]", "u:p@" + a.String() + ":80",
			strconv.Itoa(int(number)),
			"0x" + strconv.FormatUint(uint64(number), 16), a.String() + ".", "[" + mapped.String() + "%25eth0]"} {
			if p := Literal("https://" + spelt); p.Public() && !p.NoHost {
				t.Errorf("%s is public: %+v", spelt, p)
			}
		}
	})
}

// How often a worker wants a type retried is a number within bounds, that it has written, or the answer is refused.
func FuzzMaxRetries(f *testing.F) {
	for _, s := range []string{`3`, `"3"`, `{"max_retries":3}`, `{"max_retries":"3"}`, `{"Max_Retries":3}`,
		`{"max_retries":null}`, `-1`, `1000001`,
		`1e3`, `3.0`, `3.5`, `{"max_retries":1,"max_retries":2}`, ``, `[]`, `+3`, `"０"`} {
		f.Add([]byte(s), 200)
	}
	f.Add([]byte(`3`), 404)
	f.Add([]byte(`3`), 500)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		n, err := retriesIn(reply{status: 200 + (status&0x7fffffff)%400, body: body, sent: true, header: http.Header{}})
		if n != nil && (err != nil || *n < 0 || *n > maxRetriesMost) {
			t.Errorf("%q is %d: %v", body, *n, err)
		}
		if err != nil && (fault.KindOf(err) != fault.Retry || !utf8.ValidString(err.Error()) ||
			len(err.Error()) > 1000) {
			t.Errorf("%q: %v", body, err)
		}
		if n != nil && !bytes.ContainsAny(body, "0123456789") && !bytes.Contains(body, []byte(`\u`)) {
			t.Errorf("%q is %d", body, *n)
		}
	})
}
