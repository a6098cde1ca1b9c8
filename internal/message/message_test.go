package message

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func TestTheTableIsSoundAndItsNamesAreBound(t *testing.T) {
	machinetest.Sound(t, Tables())
	if named := Message.Guards(); len(named) > 0 {
		t.Errorf("guards that nothing decides: %v", named)
	}
	var bound []string
	for name := range effects {
		bound = append(bound, name)
	}
	slices.Sort(bound)
	if named := slices.Compact(slices.Sorted(slices.Values(Message.Effects()))); !slices.Equal(named, bound) {
		t.Errorf("the table names %v, bound are %v", named, bound)
	}
}

func TestThePageBesideTheCodeIsRenderedFromTheTable(t *testing.T) {
	machinetest.Page(t, Tables(), Meanings, *update)
}

// The published design draws no diagram of messages. It names their statuses in the table of its fields, and says in
// its requirements (S5.6) which event leads from one to another.
func TestTheStatusesAreThoseOfTheDesign(t *testing.T) {
	page, err := os.ReadFile("../../../shared/seeds/5-coordinator.md")
	if err != nil {
		t.Skip("the published design is not beside this checkout")
	}
	row := regexp.MustCompile("(?m)^\\| `message:.*`status`.str \\(`([a-z|]+)`\\)").FindSubmatch(page)
	if row == nil {
		t.Fatal("the design has no row of messages with a status")
	}
	drawn, ours := strings.Split(string(row[1]), "|"), Message.States()
	slices.Sort(drawn)
	slices.Sort(ours)
	if !slices.Equal(drawn, ours) {
		t.Errorf("the design has %v, the table %v", drawn, ours)
	}
}

// asked are the edges of S5.6; added are those that it does not have, with the reason.
var (
	asked = []string{
		" Created dispatched",
		"dispatched Acknowledged acknowledged",
		"acknowledged ResultReceived processed",
		"acknowledged Processed processed",
		"dispatched Deadline error",
		"acknowledged Deadline error",
		"dispatched Refused error",
		"acknowledged Refused error",
	}
	added = map[string]string{
		"dispatched Routed dispatched":    "a fact: it was let go to a peer",
		"dispatched Delivered dispatched": "a fact: timeout_ack counts from it",
		"dispatched Received dispatched":  "a fact: the lease of a receiver",
	}
)

func TestTheEdgesAreThoseOfTheRequirements(t *testing.T) {
	var have []string
	for _, r := range Message.Rules {
		edge := r.From + " " + r.On + " " + r.To
		have = append(have, edge)
		if !slices.Contains(asked, edge) && added[edge] == "" {
			t.Errorf("no requirement has %q", edge)
		}
	}
	for _, edge := range asked {
		if !slices.Contains(have, edge) {
			t.Errorf("%q is missing from the table", edge)
		}
	}
}

// Each deadline begins where the one before it ends, and names itself when it is over.
func TestTheThreeDeadlinesFollowOneAnother(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	all := Timeouts{Deliver: time.Second, Ack: time.Minute, Result: time.Hour}
	for _, c := range []struct {
		from      Status
		on        Event
		t         Timeouts
		delivered bool
		to        Status
		due       time.Duration // -1: none
		code      string
	}{
		{"", OnCreated, all, false, Dispatched, time.Second, ""},
		{"", OnCreated, Timeouts{Ack: time.Second}, false, Dispatched, -1, ""},
		{Dispatched, OnRouted, all, false, Dispatched, 7 * time.Second, ""},
		{Dispatched, OnDelivered, all, false, Dispatched, time.Minute, ""},
		{Dispatched, OnReceived, all, true, Dispatched, 7 * time.Second, ""},
		{Dispatched, OnAcknowledged, all, true, Acknowledged, time.Hour, ""},
		{Dispatched, OnAcknowledged, Timeouts{Ack: 1}, true, Acknowledged, -1, ""},
		{Dispatched, OnDeadline, all, false, Error, -1, CodeTimeout},
		{Dispatched, OnDeadline, all, true, Error, -1, CodeTimeoutAck},
		{Acknowledged, OnDeadline, all, true, Error, -1, CodeTimeoutResult},
		{Acknowledged, OnProcessed, all, true, Processed, -1, ""},
	} {
		running := now.Add(7 * time.Second)
		s, err := Next(c.from, c.on, c.t, c.delivered, &running, now)
		due := time.Duration(-1)
		if s.Due != nil {
			due = s.Due.Sub(now)
		}
		if err != nil || s.To != c.to || due != c.due || s.Code != c.code || (s.Code == "") != (s.Text == "") {
			t.Errorf("%s in %q: %+v %v, want %s due %s code %q", c.on, c.from, s, err, c.to, c.due, c.code)
		}
	}
	for _, end := range []Status{Processed, Error} {
		for _, on := range []Event{OnAcknowledged, OnResult, OnProcessed, OnDeadline, OnRefused, OnReceived} {
			if _, err := Next(end, on, all, true, nil, now); err == nil {
				t.Errorf("%s means something after %s: want it late", on, end)
			}
		}
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	good := Spec{To: To{Context: "b"}, Type: Chat, Format: "text", Body: "hello"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	ref := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		change  func(*Spec)
		pointer string
	}{
		"ref -1":              {func(s *Spec) { s.Ref = ref(-1) }, "/ref"},
		"ref 2^32":            {func(s *Spec) { s.Ref = ref(1 << 32) }, "/ref"},
		"no context":          {func(s *Spec) { s.To.Context = "" }, "/to/context"},
		"no type":             {func(s *Spec) { s.Type = "" }, "/message_type"},
		"an unknown type":     {func(s *Spec) { s.Type = "letter" }, "/message_type"},
		"xml":                 {func(s *Spec) { s.Format = "xml" }, "/message_format_type"},
		"a topic a/b":         {func(s *Spec) { s.To.Topic = "a/b" }, "/to/topic"},
		"a long topic":        {func(s *Spec) { s.To.Topic = strings.Repeat("t", 201) }, "/to/topic"},
		"a long actor":        {func(s *Spec) { s.To.Actor = strings.Repeat("\u00e4", 201) }, "/to/actor"},
		"a result":            {func(s *Spec) { s.Type = Result }, "/message_type"},
		"a job without jobs":  {func(s *Spec) { s.Type = Job }, "/job"},
		"101 jobs":            {func(s *Spec) { s.Type, s.Jobs = Job, 101 }, "/job"},
		"a chat with jobs":    {func(s *Spec) { s.Jobs = 1 }, "/job"},
		"an empty chat":       {func(s *Spec) { s.Body = "" }, "/message"},
		"1 MiB and a byte":    {func(s *Spec) { s.Body = strings.Repeat("x", MaxBody+1) }, "/message"},
		"NUL":                 {func(s *Spec) { s.Body = "a\x00" }, "/message"},
		"timeout -1":          {func(s *Spec) { s.Timeouts.Deliver = Seconds(-1) }, "/timeout"},
		"timeout_ack absurd":  {func(s *Spec) { s.Timeouts.Ack = Seconds(1 << 62) }, "/timeout_ack"},
		"timeout_result -big": {func(s *Spec) { s.Timeouts.Result = Seconds(-1 << 63) }, "/timeout_result"},
	} {
		s := good
		c.change(&s)
		f := fault.As(s.Validate())
		if f == nil || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%s: %v, want it at %s", name, f, c.pointer)
		}
	}
}

// The bytes that the specification of DSSE gives for its example.
func TestWhatIsSignedIsThatOfTheSpecification(t *testing.T) {
	got := string(PAE("http://example.com/HelloWorld", []byte("hello world")))
	if want := "DSSEv1 29 http://example.com/HelloWorld 11 hello world"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := string(PAE("", nil)); got != "DSSEv1 0  0 " {
		t.Errorf("%q", got)
	}
}

// vector is an envelope that another program made: the key is the first one of RFC 8032, section 7.1.
const vectorSeed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"

func testKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	seed, err := hex.DecodeString(vectorSeed)
	if err != nil {
		t.Fatal(err)
	}
	return ed25519.NewKeyFromSeed(seed)
}

func payload(t *testing.T, key ed25519.PrivateKey, change func(*Signed)) []byte {
	t.Helper()
	public, _ := key.Public().(ed25519.PublicKey)
	s := Signed{V: 1, Audience: Audience{"i", "b", ""}, CallerKey: base64.StdEncoding.EncodeToString(public),
		CreatedAt: time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC), Type: Chat, Body: "hello"}
	change(&s)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnEnvelopeHoldsForItsBytesAlone(t *testing.T) {
	key := testKey(t)
	text := payload(t, key, func(*Signed) {})
	raw, err := Seal(text, key)
	if err != nil {
		t.Fatal(err)
	}
	s, public, err := Open(raw)
	if err != nil || s.Body != "hello" || !public.Equal(key.Public()) {
		t.Fatalf("%+v %v", s, err)
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	two, _ := Seal(text, other, key)
	if _, _, err := Open(two); err != nil {
		t.Errorf("the second of two signatures: %v", err)
	}
	foreign, _ := Seal(text, other)
	var e Envelope
	changed := func(fn func(*Envelope)) []byte {
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		fn(&e)
		out, _ := json.Marshal(e)
		return out
	}
	for name, c := range map[string]struct {
		raw  []byte
		code string
	}{
		"a foreign key": {foreign, "bad_actor_signature"},
		"a changed body": {changed(func(e *Envelope) {
			e.Payload = []byte(strings.Replace(string(text),
				"hello", "hallo", 1))
		}), "bad_actor_signature"},
		"white space": {changed(func(e *Envelope) { e.Payload = append([]byte(" "), text...) }),
			"bad_actor_signature"},
		"another type": {changed(func(e *Envelope) { e.PayloadType = "text/plain" }), "invalid"},
		"no signature": {changed(func(e *Envelope) { e.Signatures = nil }), "invalid"},
		"three signatures": {changed(func(e *Envelope) {
			e.Signatures = append(e.Signatures, e.Signatures[0],
				e.Signatures[0])
		}), "invalid"},
		"a field more":        {[]byte(`{"payloadType": "x", "payload": "", "signatures": [], "more": 1}`), "invalid"},
		"a field more inside": {seal(t, key, `{"v": 1, "more": 1}`), "invalid"},
		"no key":              {seal(t, key, `{"v": 1}`), "invalid"},
		"version 2":           {seal(t, key, strings.Replace(string(text), `"v":1`, `"v":2`, 1)), "invalid"},
		"another spelling":    {bytes.Replace(raw, []byte(`"payload":`), []byte(`"Payload":`), 1), "invalid"},
		"not JSON":            {[]byte("{"), "invalid"},
		"two values":          {append(slices.Clone(raw), raw...), "invalid"},
	} {
		if _, _, err := Open(c.raw); fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func seal(t *testing.T, key ed25519.PrivateKey, payload string) []byte {
	t.Helper()
	raw, err := Seal([]byte(payload), key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnEnvelopeIsMeantForOneAndForATime(t *testing.T) {
	now := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	us := Audience{"i", "b", "a"}
	for name, c := range map[string]struct {
		s    Signed
		code string
	}{
		"ours":                 {Signed{Audience: us, CreatedAt: now}, ""},
		"a day old":            {Signed{Audience: us, CreatedAt: now.Add(-MaxAge)}, ""},
		"another installation": {Signed{Audience: Audience{"j", "b", "a"}, CreatedAt: now}, "bad_actor_signature"},
		"another context":      {Signed{Audience: Audience{"i", "c", "a"}, CreatedAt: now}, "bad_actor_signature"},
		"another peer":         {Signed{Audience: Audience{"i", "b", ""}, CreatedAt: now}, "bad_actor_signature"},
		"6 minutes ahead":      {Signed{Audience: us, CreatedAt: now.Add(6 * time.Minute)}, "invalid"},
		"too old":              {Signed{Audience: us, CreatedAt: now.Add(-MaxAge - time.Second)}, "invalid"},
	} {
		err := c.s.Meant(us, now, now.Add(-MaxAge))
		if fault.CodeOf(err) != c.code || name == "6 minutes ahead" && !strings.Contains(err.Error(), "6m0s") {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
	}
}

// The payload is in base64, where the check of a request does not look: it is read as strictly as that.
func TestAPayloadIsReadAsStrictlyAsARequest(t *testing.T) {
	key := testKey(t)
	good := string(payload(t, key, func(s *Signed) {
		s.Type, s.Body, s.Actor, s.Topic = Job, "", "who", "what"
		s.Jobs = json.RawMessage(`[{"script": "1", "script_type": "python", "env_vars": {"A": "b"}}]`)
	}))
	if _, _, err := Open(seal(t, key, good)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"NUL in actor":            {`"who"`, `"wh\u0000"`},
		"NUL in topic":            {`"what"`, `"\u0000what"`},
		"NUL in a variable":       {`"b"`, `"\u0000"`},
		"half a surrogate":        {`"script":"1"`, `"script":"\ud800"`},
		"half a surrogate, a key": {`"A":`, `"\udc00":`},
		"a key twice":             {`"topic":`, `"actor": "x", "topic":`},
		"a key twice in a job":    {`"script":`, `"script": "x", "script":`},
		"another spelling":        {`"topic":`, `"Actor": "x", "topic":`},
		"another spelling inside": {`"context":`, `"Context": "x", "context":`},
		"no UTF-8":                {`"who"`, "\"\xff\""},
		"a number out of range":   {`"script":"1"`, `"script": "1", "retries": 1e999`},
		"too deep": {`"script":"1"`, `"script": "1", "more": ` + strings.Repeat("[", MaxNesting) +
			strings.Repeat("]", MaxNesting)},
		"something behind": {`{"v":1`, `{} {"v":1`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		_, _, err := Open(seal(t, key, bad))
		if bad == good || fault.CodeOf(err) != "invalid" || fault.As(err).Fields[0].Pointer != "/envelope/payload" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What an envelope brings besides its payload is bounded, and so is the whole, as it is sent.
func TestAnEnvelopeIsBounded(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	for body, hint := range map[string]string{
		"x":                        strings.Repeat("<", MaxKeyID+1),
		strings.Repeat("x", 5<<20): "k",
	} {
		raw, err := Write(Signed{Type: Chat, Body: body}, key)
		if err != nil {
			t.Fatal(err)
		}
		raw = bytes.Replace(raw, []byte(`"sig"`), []byte(`"keyid":"`+hint+`","sig"`), 1)
		_, _, err = Open(raw)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "want at most") {
			t.Errorf("a body of %d bytes and a hint of %d: %v", len(body), len(hint), err)
		}
	}
}
