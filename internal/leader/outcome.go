package leader

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// Class is what one call of a tool means for the event that asked for it (S1.11).
type Class string

const (
	Successful Class = "successful" // the output goes out, also where it tells of an error
	Fatal      Class = "fatal"      // it will never succeed: who waits is told
	Retriable  Class = "retriable"  // it may: counted, and tried again
)

// Reply is what came of calling a tool, as its client saw it.
type Reply struct {
	Status  int    // of HTTP; 0: there was no answer
	Body    []byte // nil when it could not be read whole
	Code    string // without an answer or a whole body, why: "timeout", "connection_refused", "answer_too_large" ...
	Message string // the same as a sentence
	After   time.Duration
	Elapsed time.Duration
}

// Verdict is what a reply comes to.
type Verdict struct {
	Class   Class
	Variant string          // of a successful one
	Output  json.RawMessage // likewise: the whole answer, {variant: payload}
	Code    string          // of another one: stable
	Message string          // a sentence
	After   time.Duration   // retriable: the tool wants to be left alone for so long
}

// ok is the status with which a tool answers.
const ok = 200

// rule is one line of the table: what is seen, and what it means. The first that matches counts.
type rule struct {
	status  int    // 0: none; -1: any; 4, 5 ...: the hundreds
	says    string // the error that the tool names, or why there is no body; "" for any
	class   Class
	code    string
	meaning string
}

// rules is the table of S1.11 for all but a 200 whose body was read.
var rules = []rule{
	{0, "bad_worker_url", Fatal, "bad_url", "the tool's URL cannot be called"},
	{0, "no_signing_key", Retriable, "no_signing_key", "the tool wants signed calls, and this node has no key"},
	{0, "", Retriable, "", "the tool cannot be reached"},
	{-1, "answer_too_large", Fatal, "answer_too_large", "the answer is larger than the tool is registered for"},
	{-1, "answer_nested", Fatal, "answer_nested", "the answer is nested deeper than 64 levels"},
	{ok, "", Retriable, "answer_broken", "the answer broke off"},
	{422, "input_deserialization_error", Fatal, "input_deserialization_error", "the tool could not read its input"},
	{403, "permission_denied", Fatal, "permission_denied", "the tool does not let us call it"},
	{500, "output_serialization_error", Fatal, "output_serialization_error", "the tool could not write its output"},
	{408, "", Retriable, "", "the tool ran out of time"},
	{425, "", Retriable, "", "the tool wants to be asked later"},
	{429, "", Retriable, "", "the tool is asked too often"},
	{404, "", Fatal, "tool_not_found", "there is no tool at this URL: it may have moved"},
	{409, "", Fatal, "", "the tool has seen this call with another input"},
	{2, "", Fatal, "", "a tool answers 200"},
	{3, "", Fatal, "redirect", "redirects are not followed: register the final URL"},
	{4, "", Fatal, "", "the tool refuses the call"},
	{5, "", Retriable, "", "the tool failed"},
	{-1, "", Retriable, "", "the answer is none of HTTP"},
}

// ownCodes are the codes that only our client says; a tool that names its error so says nothing by it.
var ownCodes = map[string]bool{"bad_worker_url": true, "no_signing_key": true, "answer_too_large": true, "answer_nested": true}

func (r rule) matches(status int, says string) bool {
	hundreds := r.status > 0 && r.status < 10 && status/100 == r.status
	return (r.status == status || r.status == -1 && status != 0 || hundreds) && (r.says == "" || r.says == says)
}

// Judge says what a reply means. An output counts if it has one variant and holds against the schema, also a
// variant err or err_*.
func (d *Definition) Judge(p Reply) Verdict {
	if p.Status == ok && p.Body != nil {
		variant, err := d.ValidateOutput(p.Body)
		if err != nil {
			return Verdict{Class: Fatal, Code: fault.CodeOf(err), Message: err.Error()}
		}
		return Verdict{Class: Successful, Variant: variant, Output: p.Body}
	}
	says, detail := p.Code, p.Message
	if p.Body != nil {
		if says, detail = toolError(p.Body); ownCodes[says] {
			says = ""
		}
	}
	for _, r := range rules {
		if !r.matches(p.Status, says) {
			continue
		}
		v := Verdict{Class: r.class, Code: r.code, Message: r.meaning}
		if v.Code == "" {
			if v.Code = "http_" + strconv.Itoa(p.Status); p.Status == 0 {
				v.Code = p.Code
			}
		}
		if p.Status != 0 && p.Status != ok {
			v.Message += fmt.Sprintf(" (HTTP %d)", p.Status)
		}
		if detail != "" {
			v.Message += ": " + detail
		}
		if v.Class == Retriable {
			v.After = p.After
		}
		return v
	}
	panic("the last rule matches whatever the others do not")
}

// Uncalled is the verdict on an event whose input does not fit: the tool is not called.
func Uncalled(err error) Verdict {
	return Verdict{Class: Fatal, Code: fault.CodeOf(err), Message: err.Error()}
}

// toolError reads how a tool names its error: {"error": code, "details": text}, or {"error": {code, message}}.
func toolError(body []byte) (code, detail string) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Details json.RawMessage `json:"details"`
		Message json.RawMessage `json:"message"`
		Code    string          `json:"code"`
	}
	if json.Unmarshal(body, &e) != nil {
		return "", ""
	}
	var inner struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	text := func(raw json.RawMessage) (s string) { _ = json.Unmarshal(raw, &s); return s }
	if json.Unmarshal(e.Error, &inner) == nil {
		code, detail = inner.Code, inner.Message
	}
	for _, s := range []string{text(e.Error), e.Code} {
		if code == "" {
			code = s
		}
	}
	for _, s := range []string{text(e.Details), text(e.Message)} {
		if detail == "" {
			detail = s
		}
	}
	return fault.Clip(printable(code)), fault.Clip(printable(detail))
}

// printable is text from outside for a sentence: no control characters, which a terminal or a row would choke on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
