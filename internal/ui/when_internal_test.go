package ui

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Times are shown beside the time by which the API decides, also where somebody has moved that.
func TestTimesFollowTheClockThatDecides(t *testing.T) {
	u := New(Config{API: http.NotFoundHandler(), Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if s := string(u.when(time.Now())); !strings.Contains(s, ">60 min ago<") {
		t.Error(s)
	}
}
