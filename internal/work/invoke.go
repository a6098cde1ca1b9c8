package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
)

// invoke is the worker of leader.tool (S1.5): it looks the tool up, gets and checks the input, calls the tool and
// checks its answer. Successful is done, fatal is rejected, retriable is retry. A tool that this node may not call is
// blocked: nothing was done, another node may call it, and a setting is no reason for an event to be Dead.
func (e *Events) invoke(ctx context.Context, l *pg.Lease, call remote.Call) outbox.Answer {
	started := time.Now()
	v := e.verdict(ctx, l, call)
	a := outbox.Answer{Code: v.Code, Message: clipped(v.Message), StartedAt: started, Elapsed: time.Since(started)}
	switch {
	case v.Class == leader.Successful:
		a.Result.Done, _ = json.Marshal(events.ToolOutput{Variant: v.Variant, Output: v.Output})
		a.Code, a.Message = "", ""
	case v.Class == leader.Fatal:
		a.Class = outbox.ClassRejected
	case v.Code == codeRefused:
		a.Class, a.Scope, a.Unsent = outbox.ClassBlocked, outbox.ScopeQueue, true
	default:
		a.Class, a.After = outbox.ClassRetry, v.After
		e.leaveAlone(ctx, l, call, v.After)
	}
	return a
}

// leaveAlone keeps how long a tool wants to be left alone, before the call that said so has ended for others.
func (e *Events) leaveAlone(ctx context.Context, l *pg.Lease, call remote.Call, wait time.Duration) {
	var ask events.ToolCall
	if wait <= 0 || json.Unmarshal(call.Data, &ask) != nil {
		return
	}
	if err := e.Store.Events.LeaveToolAlone(ctx, l.Dispatcher.ContextID, ask, wait); err != nil {
		e.Log.Warn("keep how long a tool wants to be left alone", "tool", ask.Tool, "event", ask.Event, "error", err)
	}
}

func (e *Events) verdict(ctx context.Context, l *pg.Lease, call remote.Call) leader.Verdict {
	retry := func(code string, err error) leader.Verdict {
		return leader.Verdict{Class: leader.Retriable, Code: code, Message: err.Error()}
	}
	var ask events.ToolCall
	if err := json.Unmarshal(call.Data, &ask); err != nil {
		return leader.Uncalled(fault.New(fault.Invalid, "no_event", "the data names no event: %s", err))
	}
	ev, err := e.Store.Events.CalledEvent(ctx, l.Dispatcher.ContextID, ask)
	switch {
	case fault.KindOf(err) == fault.NotFound, fault.KindOf(err) == fault.Conflict:
		return leader.Uncalled(err)
	case err != nil:
		return retry("registry_unreachable", err)
	}
	tool, err := e.Store.Events.Tool(ctx, l.Dispatcher.ContextID, ask.Tool)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return leader.Uncalled(fault.New(fault.Invalid, "unknown_tool", "no tool %q is registered", ask.Tool))
	case err != nil:
		return retry("registry_unreachable", err)
	}
	input, from, err := ev.Map.InputOf(ev.JSON)
	if err != nil {
		return leader.Uncalled(err)
	}
	if from != "" {
		if p := e.Tools.Input(ctx, from); p.Status == http.StatusOK && p.Body != nil {
			input = p.Body
		} else if v := noInput(from, p); v.Class != "" {
			return v
		}
	}
	if err := tool.ValidateInput(input); err != nil {
		return leader.Uncalled(err)
	}
	call.BaseURL, call.Timeout, call.Sign = tool.Definition.URL, tool.Definition.Timeout, tool.Definition.Sign != ""
	reply := e.Tools.Invoke(ctx, call, call.Token(), input, tool.Definition.MaxAnswer)
	if reply.Status == http.StatusNotFound {
		if err := e.Store.Events.SuspectTool(ctx, tool); err != nil {
			e.Log.Warn("have a tool looked at", "tool", ask.Tool, "error", err)
		}
	}
	return tool.Judge(reply)
}

// clipped is a message as a row can hold it: at most 1 KiB of text.
func clipped(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 1<<10)], ""))
	return s
}

// noInput says what it means that there is no input (S1.4): 404 is for good, unless it is a page of what stands before
// the inputs.
func noInput(from string, p leader.Reply) leader.Verdict {
	v := leader.Verdict{
		Class:   leader.Retriable,
		Code:    "input_unreachable",
		Message: "the input cannot be fetched from " + fault.Clip(from) + ": ",
		After:   p.After,
	}
	switch {
	case p.Status == 0:
		v.Message += p.Message
	case p.Code == leader.CodePage:
		v.Message += fmt.Sprintf("HTTP %d with an HTML page: is that the workflow, or what stands before it?", p.Status)
	case p.Status == http.StatusNotFound:
		v.Class, v.Code = leader.Fatal, "no_input"
		v.Message += "HTTP 404"
	case p.Status != http.StatusOK:
		v.Message += strings.TrimSpace(fmt.Sprintf("HTTP %d %s", p.Status, http.StatusText(p.Status)))
	case p.Code == "answer_too_large":
		v.Class, v.Code = leader.Fatal, "no_input"
		v.Message += "it is larger than 1 MiB"
	default:
		v.Message += "the answer is no JSON, or broke off"
	}
	return v
}
