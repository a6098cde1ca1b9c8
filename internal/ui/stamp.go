package ui

import (
	"crypto/sha256"
	"fmt"
)

// acted is the data of a page that has reasons and levers beside its live part.
type acted interface{ reasons() *whyPage }

func (t *thingPage) reasons() *whyPage { return t.Why }

func (p queuePage) reasons() *whyPage { return p.Why }

func (p transactionPage) reasons() *whyPage { return p.Why }

// Stamp tells the reasons and the levers of a page from those of another moment: by its blockers with their levers, the
// levers that fit the thing, and its ETag. It says nothing of the visitor, who may pull only some of them: a live part
// is shared. "": the page has none. The live part brings the present one, and the page says where its own is another:
// forms stand beside the live part, and are not sent over streams.
func (s *screen) Stamp() string {
	page, ok := s.Data.(acted)
	if !ok || s.Live == "" {
		return ""
	}
	sum := sha256.New()
	if why := page.reasons(); why != nil {
		for _, l := range why.Links {
			fmt.Fprintln(sum, l.doc["kind"], l.doc["object"], l.doc["detail"])
			for _, x := range docs(l.doc["levers"]) {
				fmt.Fprintln(sum, x["method"], x["path"])
			}
		}
	}
	fmt.Fprintln(sum, s.fitting)
	if a := s.seen[pathTo(s.r.PathValue("noun"), s.r.PathValue("name"))]; a != nil {
		fmt.Fprintln(sum, a.header.Get("ETag"))
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}
