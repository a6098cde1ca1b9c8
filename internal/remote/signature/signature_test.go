package signature

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rfcKey is the Ed25519 key of RFC 9421, appendix B.1.4.
func rfcKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		t.Fatal(err)
	}
	return key.(ed25519.PrivateKey)
}

// rfcRequest is the request of RFC 9421, appendix B.2, with the signature of B.2.6.
func rfcRequest() *Request {
	return &Request{
		Method: "POST",
		Target: "https://example.com/foo?param=Value&Pet=dog",
		Header: http.Header{
			"Host":           {"example.com"},
			"Date":           {"Tue, 20 Apr 2021 02:07:55 GMT"},
			"Content-Type":   {"application/json"},
			"Content-Length": {"18"},
			"Signature-Input": {`sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length")` +
				`;created=1618884473;keyid="test-key-ed25519"`},
			"Signature": {`sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WP` +
				`pBKRCw==:`},
		},
		Body: []byte(`{"hello": "world"}`),
	}
}

// The example of RFC 9421, appendix B.2.6.
func TestTheSignatureOfTheStandardHolds(t *testing.T) {
	key := rfcKey(t).Public().(ed25519.PublicKey)
	r := rfcRequest()
	list, err := Parse(r.Header)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	s := list[0]
	if s.Label != "sig-b26" || s.KeyID != "test-key-ed25519" || s.Created.Unix() != 1618884473 {
		t.Errorf("%+v", s)
	}
	if err := s.Verify(r, key); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Request){
		"date":      func(r *Request) { r.Header.Set("Date", "Tue, 20 Apr 2021 02:07:56 GMT") },
		"method":    func(r *Request) { r.Method = "PUT" },
		"path":      func(r *Request) { r.Target = "https://example.com/bar" },
		"authority": func(r *Request) { r.Target = "https://example.org/foo" },
		"length":    func(r *Request) { r.Header.Set("Content-Length", "19") },
		"no date":   func(r *Request) { r.Header.Del("Date") },
	} {
		r := rfcRequest()
		if change(r); s.Verify(r, key) == nil {
			t.Errorf("%s: it holds for another request", name)
		}
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	if s.Verify(r, other) == nil {
		t.Error("it holds for another key")
	}
}

// The parts of B.2.6 in another order are another base, and each order is verified as it came.
func TestParametersHoldInTheOrderInWhichTheyCame(t *testing.T) {
	key := rfcKey(t)
	for _, params := range []string{
		`("@method" "@target-uri");created=1618884473;keyid="k";nonce="n";alg="ed25519"`,
		`("@target-uri" "@method");nonce="n";alg="ed25519";keyid="k";expires=1618884500;created=1618884473`,
		`("@method" "@target-uri" "@scheme" "@query" "@request-target");tag="app";keyid="k";created=1618884473;x`,
	} {
		r := rfcRequest()
		list := params[strings.Index(params, "(")+1 : strings.Index(params, ")")]
		text, err := base(r, strings.Fields(strings.ReplaceAll(list, `"`, "")), params)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Signature-Input", "a="+params)
		r.Header.Set("Signature", "a=:"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, text))+":")
		got, err := Parse(r.Header)
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if err := got[0].Verify(r, key.Public().(ed25519.PublicKey)); err != nil {
			t.Errorf("%s: %v", params, err)
		}
	}
}

func TestWhatASignerSignsIsVerified(t *testing.T) {
	key := rfcKey(t)
	public := key.Public().(ed25519.PublicKey)
	now := time.Unix(1618884473, 0)
	h := http.Header{"Idempotency-Key": {"a", "b"}, "Postern-Context": {" shop "}}
	const target, body = "https://postern.example/p/transactions?wait=1s", `{"hello": "world"}`
	if err := (Signer{Key: key}).Sign(h, "POST", target, []byte(body), now); err != nil {
		t.Fatal(err)
	}
	r := &Request{"POST", target, h, []byte(body)}
	list, err := Parse(h)
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	if m := s.Covers("@method", "@target-uri", "content-digest", "idempotency-key", "postern-context"); m != "" {
		t.Errorf("%s is not covered", m)
	}
	if m := s.Covers("@method", "postern-fence"); m != "postern-fence" {
		t.Errorf("%q is missing", m)
	}
	if s.KeyID != ID(public) || s.Nonce == "" || s.Expires.Sub(s.Created) != Life {
		t.Errorf("%+v", s)
	}
	for _, err := range []error{s.Verify(r, public), s.Fresh(now), CheckDigest(h, r.Body)} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTheAgeOfASignatureTellsByHowMuchClocksDiffer(t *testing.T) {
	made := time.Unix(1618884473, 0)
	s := &Signature{Created: made, Expires: made.Add(Life)}
	for d, want := range map[time.Duration]string{
		0:                          "",
		-Ahead:                     "",
		Life - time.Second:         "",
		-6 * time.Minute:           "it was created 6m0s ahead of the clock here",
		-Ahead - time.Second:       "it was created 1m1s ahead of the clock here",
		6 * time.Minute:            "it was created 6m0s ago by the clock here",
		Life:                       "it was created 5m0s ago by the clock here",
		100 * 365 * 24 * time.Hour: "it has expired",
	} {
		err := s.Fresh(made.Add(d))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after %s: %v, want %q", d, err, want)
		}
	}
	if err := (&Signature{Created: made, Expires: made.Add(Life + time.Second)}).Fresh(made); err == nil {
		t.Error("a signature may hold for longer than five minutes")
	}
	if err := (&Signature{}).Fresh(made); err == nil {
		t.Error("a signature that does not say when it was made is taken")
	}
}

func TestWhatIsNotKnownOrThereTwiceIsRefused(t *testing.T) {
	const value = "a=:AAAA:"
	for input, why := range map[string]string{
		`a=("@method");created=1;created=2`:           "twice",
		`a=("@method");created=1;keyid="x";keyid="x"`: "twice",
		`a=("@method");created=1, a=("@method")`:      "twice",
		`a=("@method" "@method");created=1`:           "twice",
		`a=("@method";req);created=1`:                 "parameter req",
		`a=("content-digest";sf);created=1`:           "parameter sf",
		`a=("content-digest";bs);created=1`:           "parameter bs",
		`a=("x";key="y");created=1`:                   "parameter key",
		`a=("@query-param";name="y");created=1`:       "parameter name",
		`a=("@status");created=1`:                     "not known",
		`a=("@unheard");created=1`:                    "not known",
		`a=("Content-Digest");created=1`:              "lower case",
		`a=("");created=1`:                            "lower case",
		`a=(content-digest);created=1`:                "no text",
		`a="@method";created=1`:                       "no list",
		`a=("@method");created="1"`:                   "parameter created",
		`a=("@method");created=1.0`:                   "parameter created",
		`a=("@method");created=-1`:                    "parameter created",
		`a=("@method");created=9999999999999`:         "parameter created",
		`a=("@method");expires=?1`:                    "twice",
		`a=("@method");keyid=x`:                       "parameter keyid",
		`a=("@method");nonce=1`:                       "parameter nonce",
		`a=("@method"`:                                "no dictionary",
		`b=("@method")`:                               "which Signature-Input has not",
		``:                                            "0 signatures",
		`a=("@method"), b=("@method")`:                "Signature has no b=",
	} {
		_, err := Parse(http.Header{"Signature-Input": {input}, "Signature": {value}})
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", input, err, why)
		}
	}
	for _, h := range []http.Header{
		{"Signature": {value}},
		{"Signature-Input": {`a=("@method")`}},
		{"Signature-Input": {`a=("@method")`}, "Signature": {"a=1"}},
		{"Signature-Input": {`a=("@method")`}, "Signature": {"a=:AAAA:, a=:BBBB:"}},
		{"Signature-Input": {`a=("@method")`}, "Signature": {"a=::"}},
	} {
		if _, err := Parse(h); err == nil {
			t.Errorf("%v is taken", h)
		}
	}
	if list, err := Parse(http.Header{}); list != nil || err != nil {
		t.Error(list, err)
	}
	// two headers of one name are one list, and blanks do not matter
	list, err := Parse(http.Header{
		"Signature-Input": {`a=( "@method"  "@path" );created=1`, `b=("@path"); nonce="a \"b"`},
		"Signature":       {"a=:AAAA:  ,  b=:BBBB:"},
	})
	if err != nil || len(list) != 2 || list[1].Nonce != `a "b` || list[0].params != `("@method" "@path");created=1` {
		t.Error(list, err)
	}
}

// Digests of RFC 9530: the examples of appendix B and D.
func TestADigestIsThatOfTheBody(t *testing.T) {
	const body = "{\"hello\": \"world\"}"
	const right256, right512 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
		"sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
	if Digest([]byte(body)) != right256 {
		t.Error(Digest([]byte(body)))
	}
	const wrong256 = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
	for _, c := range []struct {
		digest []string
		body   string
		why    string
	}{
		{[]string{right256}, body, ""},
		{[]string{right512}, body, ""},
		{[]string{right256 + ", " + right512}, body, ""},
		{[]string{right256, right512}, body, ""},
		{[]string{"md5=:AAAA:, " + right256}, body, ""},
		{[]string{wrong256}, "{\"hello\": \"world\"}\n", ""},
		{[]string{right256}, body + "\n", "sha-256 is not"},
		{[]string{right256 + ", sha-512=:AAAA:"}, body, "sha-512 is not"},
		{[]string{wrong256 + ", " + right512}, body, "sha-256 is not"},
		{[]string{wrong256 + ", " + right256}, body, "twice"},
		{[]string{right256, right256}, body, "twice"},
		{[]string{"md5=:AAAA:"}, body, "neither"},
		{[]string{"sha-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE="}, body, "no dictionary"},
		{[]string{`sha-256="x"`}, body, "sha-256 is not"},
		{nil, body, "missing"},
	} {
		err := CheckDigest(http.Header{"Content-Digest": c.digest}, []byte(c.body))
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q of %q: %v, want %q", c.digest, c.body, err, c.why)
		}
	}
}

// smallOrder are the encodings of the points of small order, and of those some that are not canonical.
var smallOrder = []string{
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"0000000000000000000000000000000000000000000000000000000000000000",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"0100000000000000000000000000000000000000000000000000000000000080",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// Under each of them somebody without a secret makes a signature that crypto/ed25519 takes: it is why they are refused.
func TestAKeyOfSmallOrderNamesNobody(t *testing.T) {
	forged := make([]byte, ed25519.SignatureSize)
	forged[0] = 1 // R is the neutral point, and S is zero
	for _, text := range smallOrder {
		key, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckKey(key); err == nil || !strings.Contains(err.Error(), "small order") {
			t.Errorf("%s: %v", text, err)
		}
		taken := false
		for i := range 256 {
			taken = taken || ed25519.Verify(key, []byte{byte(i)}, forged)
		}
		if !taken {
			t.Logf("crypto/ed25519 takes no signature under %s of 256", text)
		}
	}
	if err := CheckKey([]byte("\x02" + strings.Repeat("\x00", 31))); err == nil {
		t.Error("what is no point is taken")
	}
	if err := CheckKey(rfcKey(t).Public().(ed25519.PublicKey)); err != nil {
		t.Error(err)
	}
}

func TestAKeyIsReadInAnyBase64(t *testing.T) {
	key := rfcKey(t).Public().(ed25519.PublicKey)
	for _, text := range []string{
		base64.StdEncoding.EncodeToString(key), base64.URLEncoding.EncodeToString(key), ID(key),
		"whpk_" + base64.StdEncoding.EncodeToString(key),
	} {
		if got, err := ParseKey(text); err != nil || !got.Equal(key) {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "whpk_", "AAAA", ID(key) + "A", ID(key) + "\n", "?"} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

func TestAProofIsForOneActorAtOneInstallation(t *testing.T) {
	key := rfcKey(t)
	public := key.Public().(ed25519.PublicKey)
	text := Prove(key, "here", "ann")
	if !Proves(public, "here", "ann", text) {
		t.Error("it does not hold")
	}
	if Proves(public, "there", "ann", text) || Proves(public, "here", "bob", text) ||
		Proves(public, "here", "ann", "?") {
		t.Error("it holds for another")
	}
}
