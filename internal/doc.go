// Package internal holds the rules of the house as tests: which package may import which (floors), that
// every package explains itself, which SQL must stay out (portability), and how big a file may be. Run
// them with go test ./internal.
package internal
