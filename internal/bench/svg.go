package bench

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// plot is a picture of rates: lines over a number, each point with the range of its runs.
type plot struct {
	title, x string
	log      bool // x grows by factors
	lines    []line
}

type line struct {
	name   string
	points []dot
}

type dot struct {
	x, y, low, high float64
	label           string // under the axis; "" for the number itself
}

// Plots draws a picture of each sweep that results hold two points of, by file name.
func Plots(results []*Result) map[string]string {
	keys, conns := plot{title: "FIFO per key", x: "queues", log: true}, plot{title: "POST, one each", x: "connections", log: true}
	back, many := plot{title: "with what else is in the tables", x: ""}, plot{title: "sequencers on the same queues", x: "processes"}
	held := plot{title: "while a session holds its SQL transaction", x: "seconds"}
	for _, r := range results {
		if r.Rate == 0 {
			continue
		}
		d := dot{y: r.Rate, low: r.RateMin, high: r.RateMax}
		at := func(name string) float64 { n, _ := r.Settings[name].(int); return float64(n) }
		switch {
		case strings.HasPrefix(r.Scenario, "fifo-"):
			d.x, d.label = at("queues"), fmt.Sprintf("%s x %s", count(int(at("queues"))), count(int(at("depth"))))
			name := r.System
			if strings.HasSuffix(r.Scenario, "-zipf") {
				name += ", Zipf"
			}
			keys.add(name, d)
		case strings.HasPrefix(r.Scenario, "ingest-http"):
			d.x = at("connections")
			conns.add(r.System, d)
		case strings.HasPrefix(r.Scenario, "backlog-"):
			d.label = strings.TrimPrefix(r.Scenario, "backlog-")
			if len(back.lines) > 0 {
				d.x = float64(len(back.lines[0].points))
			}
			back.add(r.System, d)
		case strings.HasPrefix(r.Scenario, "replicas-"):
			d.x = at("processes")
			many.add(r.System, d)
		case strings.HasPrefix(r.Scenario, "snapshot-"):
			for _, p := range r.Series {
				held.add(strings.TrimPrefix(r.Scenario, "snapshot-"), dot{x: p.Second, y: p.Rate, low: p.Rate, high: p.Rate})
			}
		}
	}
	files := map[string]string{}
	for name, p := range map[string]plot{"keys": keys, "connections": conns, "backlog": back, "replicas": many, "snapshot": held} {
		if slices.ContainsFunc(p.lines, func(l line) bool { return len(l.points) > 1 }) {
			files[name+".svg"] = p.svg()
		}
	}
	return files
}

func (p *plot) add(name string, d dot) {
	i := slices.IndexFunc(p.lines, func(l line) bool { return l.name == name })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, line{name: name})
	}
	p.lines[i].points = append(p.lines[i].points, d)
}

// Readers who see fewer colours can tell these apart, too.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"}

// svg draws the picture. The rate's axis begins at zero: half as high is half as much.
func (p *plot) svg() string {
	const width, height, left, right, top, bottom = 640, 360, 70, 150, 40, 50
	least, most, highest := math.Inf(1), math.Inf(-1), 0.0
	scale := func(x float64) float64 {
		if p.log {
			return math.Log(max(x, 1))
		}
		return x
	}
	for _, l := range p.lines {
		for _, d := range l.points {
			least, most, highest = min(least, scale(d.x)), max(most, scale(d.x)), max(highest, d.high)
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(highest)))
	for highest/step < 4 {
		step /= 2
	}
	highest = math.Ceil(highest/step) * step
	x := func(v float64) float64 {
		if most == least {
			return left + (width-left-right)/2
		}
		return left + 20 + (scale(v)-least)/(most-least)*(width-left-right-40)
	}
	y := func(v float64) float64 { return height - bottom - v/highest*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n"+`<text x="%d" y="20" font-size="14">%s: transactions a second</text>`+"\n", width, height, left, html.EscapeString(p.title))
	for v := 0.0; v <= highest*1.0001; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(v), width-right, left-6, y(v)+4, thousands(v))
	}
	marked := map[float64]bool{}
	for i, l := range p.lines {
		colour := colours[i%len(colours)]
		points := slices.Clone(l.points)
		slices.SortStableFunc(points, func(a, c dot) int { return cmp.Compare(a.x, c.x) })
		var path []string
		for _, d := range points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(d.x), y(d.y)))
			fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="%s"/><circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.0f (%.0f-%.0f)</title></circle>`+"\n",
				x(d.x), y(d.low), y(d.high), colour, x(d.x), y(d.y), colour, d.y, d.low, d.high)
			if !marked[d.x] && (len(points) <= 8 || len(marked)%3 == 0) {
				label := d.label
				if label == "" {
					label = fmt.Sprintf("%g", d.x)
				}
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%s</text>`+"\n", x(d.x), height-bottom+16, html.EscapeString(label))
			}
			marked[d.x] = true
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", width-right+10, top+10+18*i, colour, html.EscapeString(l.name))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n</svg>\n", (left+width-right)/2, height-12, html.EscapeString(p.x))
	return b.String()
}

func thousands(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%gk", round(v/1000))
	}
	return fmt.Sprintf("%g", round(v))
}
