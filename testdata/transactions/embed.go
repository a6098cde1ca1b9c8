// Package transactions holds the sample transactions of the demo, one file per type of seed 2 and one
// of transfers: what is posted, and how it must end.
package transactions

import "embed"

// FS holds the files.
//
//go:embed *.json
var FS embed.FS
