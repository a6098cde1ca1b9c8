package leader

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/strict"
)

// Class is what one call of a tool means for the event that asked for it (S1.11).
type Class string

const (
	Successful Class = "successful" // the output goes out, also where it tells of an error
	Fatal      Class = "fatal"      // it will never succeed: its workflow is told
	Retriable  Class = "retriable"  // it may: counted, and tried again
)

// CodePage is the code of an answer that is an HTML page in place of an input.
const CodePage = "answer_html"

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

// rule is one line of the table: what a call looks like, and what that means. The first that matches counts.
type rule struct {
	status  int    // 0: none; -1: any; 2, 3 ...: the hundreds
	says    string // the error that the tool names, or why there is no body; "" for any
	whose   whose
	class   Class
	code    string
	meaning string
}

// whose says who can have written an answer, by its body.
type whose int

const (
	anyones   whose = iota
	theTools        // one variant of the tool under 2xx, or the form in which tools name their errors
	notTheirs       // anything else, such as a page of what stands before the tool
)

// longestOfOthers is how long a tool is left alone at most by the word of what stands before it.
const longestOfOthers = 5 * time.Minute

// Codes that tools say, and that go on to the workflow as they are.
const (
	codeInput  = "input_deserialization_error"
	codeOutput = "output_serialization_error"
)

// rules is the table of S1.11 for all but a 200 with a variant of the tool. Only its own word is fatal, and an answer
// that is too large, which would be the same the next time.
var rules = []rule{
	{0, "bad_worker_url", anyones, Fatal, "bad_url", "the tool's URL cannot be called"},
	{0, "no_signing_key", anyones, Retriable, "no_signing_key", "the tool wants signed calls, and we have no key"},
	{0, "", anyones, Retriable, "", "the tool cannot be reached"},
	{2, "answer_too_large", anyones, Fatal, "answer_too_large", "the answer is larger than the tool is registered for"},
	{2, "answer_nested", anyones, Fatal, "answer_nested", "the answer is nested deeper than 64 levels"},
	{2, "answer_broken", anyones, Retriable, "answer_broken", "the answer broke off"},
	{2, "", notTheirs, Retriable, "no_answer", "that is no answer of the tool: want one variant, an object of JSON"},
	{2, "", theTools, Fatal, "", "a tool answers 200 with one variant"},
	{3, "", notTheirs, Retriable, "", "that is a page of what stands before the tool"},
	{3, "", anyones, Retriable, "redirect", "redirects are not followed: register the final URL"},
	{422, codeInput, theTools, Fatal, codeInput, "the tool could not read its input"},
	{403, "permission_denied", theTools, Fatal, "permission_denied", "the tool does not let us call it"},
	{500, codeOutput, theTools, Fatal, codeOutput, "the tool could not write its output"},
	{408, "", anyones, Retriable, "", "the tool ran out of time"},
	{425, "", anyones, Retriable, "", "the tool wants to be asked later"},
	{429, "", anyones, Retriable, "", "the tool is asked too often"},
	{404, "", theTools, Fatal, "", "the tool says that it does not have what is asked for"},
	{409, "", theTools, Fatal, "", "the tool has seen this call with another input"},
	{4, "", theTools, Fatal, "", "the tool refuses the call"},
	{4, "", anyones, Retriable, "", `that is no answer of a tool, which refuses by {"error": code, "details": text}`},
	{5, "", anyones, Retriable, "", "the tool failed"},
	{-1, "", anyones, Retriable, "", "the answer is none of HTTP"},
}

// ownCodes are the codes that only our client says; a tool that names its error so says nothing by it.
var ownCodes = map[string]bool{
	"bad_worker_url":   true,
	"no_signing_key":   true,
	"answer_too_large": true,
	"answer_nested":    true,
	"answer_broken":    true,
}

func (r rule) matches(status int, says string, by whose) bool {
	hundreds := r.status > 0 && r.status < 10 && status/100 == r.status
	return (r.status == status || r.status == -1 && status != 0 || hundreds) && (r.says == "" || r.says == says) &&
		(r.whose == anyones || r.whose == by)
}

// Judge says what a reply means. An output counts if it has one variant and holds against the schema, also a
// variant err or err_*. A variant that does not hold is the tool's own fault. Any other object may be of what stands
// before the tool, which writes JSON, too.
func (d *Definition) Judge(p Reply) Verdict {
	variant, err := d.ValidateOutput(p.Body)
	if p.Status == ok && err == nil {
		return Verdict{Class: Successful, Variant: variant, Output: p.Body}
	}
	own := p.Status/100 == 2 && d.answers(p.Body)
	if p.Status == ok && own {
		return Verdict{Class: Fatal, Code: fault.CodeOf(err), Message: err.Error()}
	}
	says, detail, by := p.told(own)
	for _, r := range rules {
		if !r.matches(p.Status, says, by) {
			continue
		}
		v := Verdict{Class: r.class, Code: r.code, Message: r.meaning}
		if v.Code == "" {
			if v.Code = "http_" + strconv.Itoa(p.Status); p.Status == 0 {
				v.Code = p.Code
			}
		}
		if strict.HTML(p.Body) {
			v.Message = "an HTML page came: is that the tool, or what stands before it?"
		}
		if p.Status != 0 && p.Status != ok {
			v.Message += fmt.Sprintf(" (HTTP %d)", p.Status)
		}
		if detail != "" {
			v.Message += ": " + detail
		}
		if v.Class == Retriable {
			if v.After = p.After; by != theTools {
				v.After = min(v.After, longestOfOthers)
			}
		}
		return v
	}
	panic("the last rule matches whatever the others do not")
}

// told says what a reply names, in which words, and who can have written it: the tool, where it is a variant.
func (p Reply) told(variant bool) (says, detail string, by whose) {
	if p.Body == nil {
		if says = p.Code; p.Status/100 == 2 && !ownCodes[says] {
			says = "answer_broken"
		}
		return says, p.Message, anyones
	}
	says, detail, form := toolError(p.Body)
	if ownCodes[says] {
		says = ""
	}
	switch {
	case form, variant:
		return says, detail, theTools
	case p.Status/100 == 3 && !strict.HTML(p.Body): // a redirect has nothing to say but where to
		return says, detail, anyones
	}
	return says, detail, notTheirs
}

// Uncalled is the verdict on an event whose input does not fit: the tool is not called.
func Uncalled(err error) Verdict {
	return Verdict{Class: Fatal, Code: fault.CodeOf(err), Message: err.Error()}
}

// errorCode is how a tool writes the code of an error. Gateways write numbers, or words such as Not Found.
var errorCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// toolError reads how a tool names its error: {"error": code, "details": text}, or {"error": {"code", "message"}}. form
// says whether it has this form, with a code and a text: {"error": "invalid_token"} alone is what gateways say, too.
func toolError(body []byte) (code, detail string, form bool) {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Details json.RawMessage `json:"details"`
		Message json.RawMessage `json:"message"`
	}
	if strict.Read(body, &e) != nil {
		return "", "", false
	}
	var inner struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
	}
	text := func(raw json.RawMessage) (s string, is bool) {
		is = json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"'
		return s, is
	}
	code, isText := text(e.Error)
	if isText {
		detail, form = text(e.Details)
	} else if strict.Read(e.Error, &inner) == nil {
		code, _ = text(inner.Code)
		detail, form = text(inner.Message)
	}
	if detail == "" {
		detail, _ = text(e.Message)
	}
	return fault.Clip(Printable(code)), fault.Clip(Printable(detail)), form && errorCode.MatchString(code)
}

// Printable is text from outside for a sentence: no control characters, which a terminal or a row would choke on.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
