// Package test is a module of its own: tests that need somebody else's code as the judge, so that nothing of
// it comes near the server.
package test
