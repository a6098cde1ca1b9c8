// Package ui is the dashboard under /ui: pages that say why something is stuck, and forms that move it.
//
// It has no rules and no SQL of its own. All that it reads and does are requests to the API of its own process, made in
// place (transport.go), with the identity of who is signed in: access, conditions, dry runs and the wording of refusals
// are the API's. Which levers a thing has, which fields they take and which filters a list has is read from the
// contract (contract.go).
//
// A page is a file: how it is loaded, with its template beside it. What most nouns need is one list and one detail
// page (plain.go), and a table says what is their own (nouns.go). A form posts to the URL of its page; the page
// is the answer, with what came of it at the top. So every lever works without script. Script only keeps what is shown
// up to date (live.go).
package ui
