package strict

import (
	"bytes"
	"strings"
)

// HTML says whether a body is a whole HTML page, which a proxy, a firewall or a login answers with in place of what it
// stands before. The header of an answer does not count: some languages name every answer text/html, and put their
// warnings before what the program says.
func HTML(body []byte) bool {
	body = bytes.TrimLeft(body, "\ufeff \t\r\n")
	start := strings.ToLower(string(body[:min(len(body), 16)]))
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}
