package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/deliveries"
)

type feedInput struct {
	Name   name   `path:"name"`
	After  string `query:"after" maxLength:"64" doc:"The cursor of the last event that is known; else what was acknowledged."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for an event, at most 60s; wins over Prefer: wait=N."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

// eventView is one event as it is fetched.
type eventView struct {
	Cursor    string          `json:"cursor"`
	Type      string          `json:"type" example:"transaction.done"`
	Timestamp time.Time       `json:"timestamp" doc:"when it happened"`
	Data      json.RawMessage `json:"data" doc:"the transaction right after it, with from, event and at"`
}

type feedOutput struct {
	Applied string `header:"Preference-Applied"`
	Body    struct {
		Items  []eventView `json:"items"`
		Cursor string      `json:"cursor" doc:"of the last one: acknowledge it, or go on after it"`
	}
}

// feed returns what comes after a cursor, in order; with wait, when there is something or time runs out.
func (a *API) feed(ctx context.Context, in *feedInput) (*feedOutput, error) {
	length, err := a.lengthOf(in.Wait, in.Prefer)
	if err != nil {
		return nil, err
	}
	s, err := a.Store.Deliveries.Reading(ctx, contextID(ctx), string(in.Name))
	if err != nil {
		return nil, err
	}
	at := deliveries.Cursor{Subscription: s.ID, Position: s.Cursor}
	if in.After != "" {
		if at, err = deliveries.ParseCursor(in.After, s.ID); err != nil {
			return nil, err
		}
	}
	or(&in.Limit, 50)
	out := &feedOutput{}
	list, _, err := a.Store.Deliveries.Feed(ctx, s.ID, s.Include, at.Position, in.Limit)
	if err == nil && len(list) == 0 && length > 0 {
		left, applied, back := a.beginWait(ctx, length)
		defer back()
		if out.Applied = applied; left > 0 {
			a.news.after(ctx, s.ID, at.Position, left)
			if err := a.stillMay(ctx); err != nil {
				return nil, err
			}
			list, _, err = a.Store.Deliveries.Feed(ctx, s.ID, s.Include, at.Position, in.Limit)
		}
	}
	if err != nil {
		return nil, err
	}
	out.Body.Items = []eventView{}
	for _, e := range list {
		at.Position = e.Position
		out.Body.Items = append(out.Body.Items, eventView{at.String(), e.Event.Name(), e.At.UTC(), e.Body})
	}
	out.Body.Cursor = at.String()
	return out, nil
}

// lengthOf is how long a request asks to wait.
func (a *API) lengthOf(wait, prefer string) (time.Duration, error) {
	length, _ := preferred(prefer)
	if wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil || d < 0 {
			return 0, fault.At("wait", "wait %q: want a duration such as \"30s\", not below zero", fault.Clip(wait))
		}
		length = d
	}
	return min(length, time.Duration(a.Limits.Wait)*time.Second), nil
}
