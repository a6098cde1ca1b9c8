package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// matches says whether a list of entity tags, as in If-Match and If-None-Match, names etag.
func matches(list, etag string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimPrefix(strings.TrimSpace(part), "W/"); part == "*" || part == etag {
			return true
		}
	}
	return false
}

func etag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

// Why is what everything takes that somebody may be asked about: why it is done. Actions take it in the body, too.
type Why struct {
	Reason string `query:"reason" maxLength:"1000" doc:"Kept in the audit row, with who and when."`
}

func (w *Why) why() string { return w.Reason }

// Attempt is what a change of something without an ETag takes: whether it is only tried, and why.
type Attempt struct {
	Why
	DryRun bool `query:"dry_run" doc:"Answer what would change, and change nothing."`
}

func (t *Attempt) attempt() *Attempt { return t }

// Trial is what every other action and change takes: also the condition under which it is done.
type Trial struct {
	Attempt
	IfMatch string `header:"If-Match" doc:"The ETag that was last seen: 412 if it changed since."`
}

func (t *Trial) match() string { return t.IfMatch }

// try prepares the context of a handler whose input has an Attempt or a Trial; end must be called after it.
func (a *API) try(ctx context.Context, in any) (_ context.Context, t *Attempt, end func()) {
	if x, ok := in.(interface{ why() string }); ok {
		scopeOf(ctx).reason = x.why()
	}
	if x, ok := in.(interface{ match() string }); ok && x.match() != "" {
		scopeOf(ctx).match = func(tag string) bool { return matches(x.match(), `"`+tag+`"`) }
	}
	x, ok := in.(interface{ attempt() *Attempt })
	if !ok {
		return ctx, &Attempt{}, func() {}
	}
	if t = x.attempt(); !t.DryRun {
		return ctx, t, func() {}
	}
	ctx, end = a.Store.DryRun(ctx)
	return ctx, t, end
}

// Conditions are the preconditions of a write.
type Conditions struct {
	Trial
	IfNoneMatch string `header:"If-None-Match" doc:"*: only create."`
}

// version is what the store compares: 0 whatever there is, -1 only create.
func (c Conditions) version() (int64, error) {
	if strings.TrimSpace(c.IfNoneMatch) == "*" {
		return -1, nil
	}
	switch strings.TrimSpace(c.IfMatch) {
	case "":
		return 0, nil
	case "*":
		return db.AnyVersion, nil
	}
	n, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(strings.TrimSpace(c.IfMatch), "W/"), `"`), 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.New(fault.Conflict, "precondition_failed",
			"If-Match %q is no ETag that was handed out here", fault.Clip(c.IfMatch))
	}
	return n, nil
}

// check compares the version of what a DELETE or an action is about to change.
func (c Conditions) check(have int64) error {
	want, err := c.version()
	if err != nil {
		return err
	}
	if want > 0 && want != have {
		return fault.New(fault.Conflict, "precondition_failed",
			"it is at version %d by now: read it again", have).With("version", have)
	}
	return nil
}
