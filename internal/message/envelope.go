package message

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

// PayloadType is that of what an actor signs of a message.
const PayloadType = "application/vnd.postern.message+json"

// Envelope is what an actor signed, as DSSE has it: the bytes of the payload are signed, and no other form of what they
// say. They are read once.
type Envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"` // base64 in JSON
	Signatures  []Signature `json:"signatures"`
}

// Signature is one of an envelope. The key id is a hint, and is not believed.
type Signature struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   []byte `json:"sig"`
}

// Audience is for whom an envelope is meant. Without it, one installation could hand it on to another.
type Audience struct {
	Installation string `json:"installation"` // the id of the target's
	Context      string `json:"context"`      // as the target calls it
	Peer         string `json:"peer"`         // what the target calls the sender's installation; "": it is its own
}

// Signed is the payload: a message as its actor wrote and signed it.
type Signed struct {
	V         int             `json:"v"`
	Audience  Audience        `json:"audience"`
	CallerKey string          `json:"caller_key"` // base64 of the public key
	Ref       *int64          `json:"ref,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	Actor     string          `json:"actor,omitempty"`
	Topic     string          `json:"topic,omitempty"`
	Type      string          `json:"message_type"`
	Format    string          `json:"message_format_type,omitempty"`
	Body      string          `json:"message,omitempty"`
	Timeout   int64           `json:"timeout,omitempty"`
	Ack       int64           `json:"timeout_ack,omitempty"`
	Result    int64           `json:"timeout_result,omitempty"`
	Jobs      json.RawMessage `json:"job,omitempty"`
	ReplyTo   string          `json:"reply_to,omitempty"`
}

// Limits of an envelope.
const (
	MaxSignatures = 2               // two for a rotation
	MaxKeyID      = 200             // bytes, of the hint that names a key
	MaxEnvelope   = 6 << 20         // bytes as JSON in a call: its door takes 8 MiB, and inputs come beside it
	MaxNesting    = 64              // levels, as of the body of a request
	MaxAhead      = 5 * time.Minute // by which the clock of a sender may be ahead
	MaxAge        = 24 * time.Hour  // when it is posted; on its way it may grow older
)

// PAE is what is signed: the type and the payload with their lengths, so that no two of them give the same bytes.
func PAE(payloadType string, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+len(payloadType)+32)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(payloadType)), 10)
	b = append(append(append(b, ' '), payloadType...), ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	return append(append(b, ' '), payload...)
}

// Seal signs a payload with keys.
func Seal(payload []byte, keys ...ed25519.PrivateKey) ([]byte, error) {
	e := Envelope{PayloadType: PayloadType, Payload: payload}
	for _, k := range keys {
		public, _ := k.Public().(ed25519.PublicKey)
		e.Signatures = append(e.Signatures, Signature{base64.StdEncoding.EncodeToString(public),
			ed25519.Sign(k, PAE(e.PayloadType, payload))})
	}
	return json.Marshal(e)
}

// Write signs a message with a key of its actor, which the payload names.
func Write(s Signed, key ed25519.PrivateKey) ([]byte, error) {
	public, _ := key.Public().(ed25519.PublicKey)
	s.V, s.CallerKey = 1, base64.StdEncoding.EncodeToString(public)
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return Seal(payload, key)
}

// Open reads an envelope, and verifies it with the key that its payload names. It says nothing of whose key that is.
// Faults: Invalid at /envelope, and Forbidden bad_actor_signature where no signature is that key's.
func Open(raw []byte) (*Signed, ed25519.PublicKey, error) {
	var e Envelope
	if err := exactly(raw, &e); err != nil {
		return nil, nil, fault.At("/envelope", "envelope: %s: want {payloadType, payload, signatures: [{keyid, sig}]} "+
			"with the base64 of payload and sig", err)
	}
	switch n := len(e.Signatures); {
	case e.PayloadType != PayloadType:
		return nil, nil, fault.At("/envelope/payloadType", "payloadType %q: want %s", fault.Clip(e.PayloadType),
			PayloadType)
	case n == 0 || n > MaxSignatures:
		return nil, nil, fault.At("/envelope/signatures", "signatures has %d items: want 1, or %d in a rotation", n,
			MaxSignatures)
	}
	for i, sig := range e.Signatures {
		if len(sig.KeyID) > MaxKeyID {
			at := fmt.Sprintf("/envelope/signatures/%d/keyid", i)
			return nil, nil, fault.At(at, "keyid has %d bytes: want at most %d", len(sig.KeyID), MaxKeyID)
		}
	}
	if sent, err := json.Marshal(json.RawMessage(raw)); err != nil || len(sent) > MaxEnvelope {
		return nil, nil, fault.At("/envelope", "envelope has %d bytes as it is sent: want at most %d", len(sent),
			MaxEnvelope)
	}
	var s Signed
	// It comes in base64, so that the check of a whole request has not seen it.
	err := strict.Check(e.Payload, MaxNesting)
	if err == nil {
		err = exactly(e.Payload, &s)
	}
	if err != nil {
		return nil, nil, fault.At("/envelope/payload", "payload: %s", err)
	}
	key, err := base64.StdEncoding.DecodeString(s.CallerKey)
	if s.V != 1 || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, nil, fault.At("/envelope/payload", "payload: want v 1 and caller_key, the base64 of 32 bytes")
	}
	signed := PAE(e.PayloadType, e.Payload)
	for _, sig := range e.Signatures {
		if ed25519.Verify(key, signed, sig.Sig) {
			return &s, key, nil
		}
	}
	return nil, nil, Unsigned("none of its signatures is that of caller_key over the bytes of payload")
}

// Digest is what an envelope is known again by: of what its signatures cover. The same may be written in many ways,
// with other hints and with a signature more.
func Digest(raw []byte) []byte {
	var e Envelope
	if json.Unmarshal(raw, &e) != nil {
		return nil
	}
	sum := sha256.Sum256(PAE(e.PayloadType, e.Payload))
	return sum[:]
}

// Content is what an envelope says, whenever it was signed: without created_at, with the format that it has where it
// names none, and with its jobs written in one way. nil: it cannot be read.
func Content(raw []byte) *Signed {
	var e Envelope
	s := &Signed{}
	if json.Unmarshal(raw, &e) != nil || json.Unmarshal(e.Payload, s) != nil {
		return nil
	}
	if s.CreatedAt = (time.Time{}); s.Format == "" {
		s.Format = DefaultFormat
	}
	if len(s.Jobs) == 0 {
		return s
	}
	d := json.NewDecoder(bytes.NewReader(s.Jobs))
	d.UseNumber()
	var jobs any
	if d.Decode(&jobs) != nil {
		return nil
	}
	s.Jobs, _ = json.Marshal(jobs) // it was JSON
	return s
}

// Unsigned refuses an envelope whose signature is not believed.
func Unsigned(format string, args ...any) error {
	return fault.New(fault.Forbidden, "bad_actor_signature", "envelope: "+format, args...).About("/envelope")
}

// exactly reads JSON that has the members of into and no others, once each as encoding/json has it, and under their
// names.
func exactly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%.200s", err)
	}
	if d.More() {
		return errors.New("something follows its end")
	}
	return strict.Spelled(raw, into)
}

// Meant refuses what was signed for somebody else, or before a time, or by a clock that is ahead.
func (s *Signed) Meant(us Audience, now, since time.Time) error {
	at := "/envelope/payload"
	switch {
	case s.Audience != us:
		return Unsigned("it is for context %q of installation %q (peer %q), and this is context %q of %q (peer %q)",
			fault.Clip(s.Audience.Context), fault.Clip(s.Audience.Installation), fault.Clip(s.Audience.Peer),
			us.Context,
			us.Installation, us.Peer)
	case s.CreatedAt.After(now.Add(MaxAhead)):
		return fault.At(at, "created_at %s is %s ahead: clocks may differ by %s",
			s.CreatedAt.UTC().Format(time.RFC3339),
			s.CreatedAt.Sub(now).Round(time.Second), MaxAhead)
	case s.CreatedAt.Before(since):
		return fault.At(at, "created_at %s is too long ago: want one after %s",
			s.CreatedAt.UTC().Format(time.RFC3339), since.UTC().Format(time.RFC3339))
	}
	return nil
}

// Spec is what the payload says of the message, apart from its jobs.
func (s *Signed) Spec(jobs int) Spec {
	format := s.Format
	if format == "" {
		format = DefaultFormat
	}
	return Spec{
		Ref:      s.Ref,
		To:       To{Context: s.Audience.Context, Actor: s.Actor, Topic: s.Topic},
		Type:     s.Type,
		Format:   format,
		Body:     s.Body,
		Jobs:     jobs,
		Timeouts: Timeouts{Seconds(s.Timeout), Seconds(s.Ack), Seconds(s.Result)},
		ReplyTo:  s.ReplyTo,
	}
}
