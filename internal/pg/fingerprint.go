package pg

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Fingerprint is what makes two submissions of one uid the same, through whichever door they came: SHA-256
// over the fields that define a transaction, with sorted keys, without white space, and with numbers by
// their value (the door of SQL keeps no other). The uid is the key itself and not part of it.
func (sub *Submission) Fingerprint() []byte {
	fields := map[string]any{"type": sub.Type, "data": canonical(sub.Data)}
	if sub.Queue != "" {
		fields["queue"] = sub.Queue
	}
	if !sub.NotBefore.IsZero() {
		fields["not_before"] = sub.NotBefore.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	}
	if sub.MaxRetries != nil {
		fields["max_retries"] = *sub.MaxRetries
	}
	if tags, ok := canonical(sub.Tags).(map[string]any); ok && len(tags) > 0 {
		fields["tags"] = tags
	}
	if sub.Sender != "" {
		fields["sender"] = sub.Sender
	}
	if len(sub.DependsOn) > 0 {
		fields["depends_on"] = sub.DependsOn
	}
	if sub.Insertion != nil {
		fields["place"] = sub.Insertion.key()
	}
	if sub.Callback != nil {
		fields["callback"] = sub.Callback
	}
	b, err := json.Marshal(fields) // maps are written with sorted keys
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// canonical reads JSON and writes each number in one way only.
func canonical(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return oneWay(v)
}

func oneWay(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = oneWay(e)
		}
	case []any:
		for i, e := range x {
			x[i] = oneWay(e)
		}
	case json.Number:
		return oneNumber(string(x))
	}
	return v
}

// oneNumber writes 1.50, 15e-1 and 0.015E+2 alike: digits without zeros at the ends, and an exponent.
func oneNumber(s string) json.Number {
	digits, exp := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
		if err != nil {
			return json.Number(s)
		}
		digits, exp = s[:i], n
	}
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits, exp = strings.TrimLeft(whole+fraction, "0"), exp-len(fraction)
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	exp += len(digits) - len(short)
	if negative {
		short = "-" + short
	}
	return json.Number(short + "e" + strconv.Itoa(exp))
}
