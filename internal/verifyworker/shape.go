package verifyworker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/strict"
)

// shape tells what inspect has seen.
func (v *verifier) shape(context.Context) finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.odd) > 0 {
		return failed("%s", strings.Join(v.odd, "; "))
	}
	return ok("%d answers could be read", v.answers)
}

// inspect looks at the form of every answer that came; the lock is held.
func (v *verifier) inspect(x remote.Exchange) {
	verb, _, _ := strings.Cut(strings.TrimPrefix(x.URL[min(len(v.o.URL), len(x.URL)):], "/"), "/")
	if x.Status == 0 || verb != "dispatch" && verb != "status" {
		return
	}
	v.answers++
	var complaint string
	switch {
	case x.Status >= 300 && x.Status < 400:
		complaint = fmt.Sprintf("HTTP %d, a redirect, which is not followed", x.Status)
	case x.Code == "answer_too_large":
		complaint = "an answer longer than 1 MiB"
	case x.Code != "":
		complaint = "an answer that broke off (" + x.Code + ")"
	case verb == "dispatch":
		complaint = oddAnswer(x)
	case x.Status == http.StatusOK:
		complaint = oddStatus(x.Body)
	}
	if complaint = "/" + verb + ": " + complaint; !strings.HasSuffix(complaint, ": ") && len(v.odd) < 5 && !slices.Contains(v.odd, complaint) {
		v.odd = append(v.odd, complaint)
	}
}

// oddAnswer says what is wrong with an answer to a dispatch, "" for nothing.
func oddAnswer(x remote.Exchange) string {
	var raw struct {
		Hash  json.RawMessage `json:"hash"`
		Done  json.RawMessage `json:"done"`
		Error json.RawMessage `json:"error"`
		Nonce json.RawMessage `json:"nonce"`
		Fee   json.RawMessage `json:"fee"`
	}
	if strict.Read(x.Body, &raw) != nil || !bytes.HasPrefix(bytes.TrimSpace(x.Body), []byte("{")) {
		switch {
		case x.Status < 300:
			return fmt.Sprintf("HTTP %d with what is no JSON object", x.Status)
		case x.Status >= 500 && x.Status != http.StatusBadGateway && x.Status != http.StatusServiceUnavailable:
			return fmt.Sprintf("HTTP %d without a readable error", x.Status)
		}
		return ""
	}
	switch {
	case set(raw.Done) && set(raw.Error):
		return "done and error in one answer: want one of them, Postern takes the error"
	case x.Status < 300 && !set(raw.Done) && !set(raw.Error) && !set(raw.Hash):
		return "neither hash, done nor error"
	case set(raw.Hash) && !isString(raw.Hash):
		return "hash is no string"
	case set(raw.Nonce) && !digits(raw.Nonce):
		return "nonce is not made of digits"
	case set(raw.Fee) && !digits(raw.Fee):
		return "fee is not made of digits"
	case set(raw.Error):
		return oddError(raw.Error)
	case x.Status >= 500 && x.Status != http.StatusBadGateway && x.Status != http.StatusServiceUnavailable && x.Status != http.StatusGatewayTimeout:
		return fmt.Sprintf("HTTP %d without a readable error", x.Status)
	}
	return ""
}

// oddError says what is wrong with the member error.
func oddError(obj json.RawMessage) string {
	var e struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Class   json.RawMessage `json:"class"`
		Until   json.RawMessage `json:"until"`
		After   json.RawMessage `json:"after"`
	}
	if strict.Read(obj, &e) != nil || obj[0] != '{' {
		return "error is no object"
	}
	switch {
	case !set(e.Code) && !set(e.Class):
		return "an error with neither code nor class"
	case set(e.Message) && !isString(e.Message):
		return "error.message is no string"
	}
	if text := text(e.Class); set(e.Class) && !slices.Contains([]string{"blocked", "ambiguous", "rejected", "retry"}, text) {
		return fmt.Sprintf("error.class is %q: want blocked, ambiguous, rejected or retry", text)
	}
	if _, err := time.Parse(time.RFC3339, text(e.Until)); set(e.Until) && err != nil {
		return "error.until is no time as RFC 3339 writes it"
	}
	if _, err := time.ParseDuration(text(e.After)); set(e.After) && isString(e.After) && err != nil && !digits(e.After) {
		return "error.after is neither seconds nor a duration"
	}
	return ""
}

// oddStatus says what is wrong with the answer to a question.
func oddStatus(body []byte) string {
	var raw struct {
		State         json.RawMessage `json:"state"`
		Hash          json.RawMessage `json:"hash"`
		BlockHeight   json.RawMessage `json:"block_height"`
		FailureReason json.RawMessage `json:"failure_reason"`
		Confirmations json.RawMessage `json:"confirmations"`
	}
	if strict.Read(body, &raw) != nil {
		return "HTTP 200 with what is no JSON object"
	}
	state := text(raw.State)
	switch {
	case !slices.Contains([]string{"pending", "included", "done", "failed", "unknown"}, state):
		return fmt.Sprintf("state is %.64q: want pending, included, done, failed or unknown", state)
	case state == "done" && set(raw.FailureReason):
		return "done with a failure_reason: want one of them"
	case set(raw.Hash) && !isString(raw.Hash):
		return "hash is no string"
	case set(raw.BlockHeight) && !digits(raw.BlockHeight):
		return "block_height is not made of digits"
	case state == "included" && !set(raw.BlockHeight):
		return "included without a block_height: that counts as pending"
	case set(raw.Confirmations) && !digits(raw.Confirmations):
		return "confirmations is no number"
	}
	return ""
}

// set says whether a member counts: neither absent, null, "" nor an empty object (S2.7).
func set(raw json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(raw)), "") {
	case "", "null", `""`, "{}":
		return false
	}
	return true
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

func digits(raw json.RawMessage) bool {
	s := strings.Trim(string(raw), `"`)
	return s != "" && strings.Trim(s, "0123456789") == ""
}
