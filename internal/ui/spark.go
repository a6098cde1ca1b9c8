package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"time"
)

// The size of the bars of an hour, and of their drawing.
const barWide, barGap, barsHigh = 10, 3, 48

// hours draws what ended in each hour as a bar, what failed at its top, and what was accepted as a line across.
func hours(list []doc) template.HTML {
	most := int64(1)
	var accepted, done, failed int64
	for _, h := range list {
		most = max(most, count64(h, "accepted"), ended(h))
		accepted, done = accepted+count64(h, "accepted"), done+count64(h, "done")
		failed += count64(h, "failed")
	}
	if len(list) == 0 {
		return ""
	}
	s := &svg{}
	s.open(len(list)*(barWide+barGap)+8, barsHigh+8, fmt.Sprintf(
		"In %d hours %d were accepted, %d done and %d failed; at most %d in an hour",
		len(list), accepted, done, failed, most))
	tall := func(n int64) int { return int((n*barsHigh + most - 1) / most) }
	for i, h := range list {
		x, bad, all := 4+i*(barWide+barGap), tall(count64(h, "failed")), tall(ended(h))
		in := tall(count64(h, "accepted"))
		at, _ := time.Parse(time.RFC3339, str(h, "hour"))
		fmt.Fprintf(&s.b, `<g class="hour"><title>%s: %d accepted, %d done, %d failed, %d cancelled</title>`,
			at.UTC().Format("15:04"), count64(h, "accepted"), count64(h, "done"), count64(h, "failed"),
			count64(h, "cancelled"))
		const bar = `<rect class="%s" x="%d" y="%d" width="%d" height="%d"></rect>`
		fmt.Fprintf(&s.b, bar, "ended", x, 4+barsHigh-all, barWide, all)
		fmt.Fprintf(&s.b, bar, "bad", x, 4+barsHigh-all, barWide, min(bad, all))
		fmt.Fprintf(&s.b, `<path class="in" d="M%d %dh%d"></path></g>`, x-1, 4+barsHigh-in, barWide+2)
	}
	return s.close()
}

// ended is how many ended in an hour.
func ended(h doc) int64 { return count64(h, "done") + count64(h, "failed") + count64(h, "cancelled") }

// count64 is a member that is a whole number.
func count64(d doc, name string) int64 {
	n, _ := strconv.ParseInt(str(d, name), 10, 64)
	return n
}
