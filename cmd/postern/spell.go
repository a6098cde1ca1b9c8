package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/pg/doctor"
)

// leverCommand is a lever as the command that pulls it, which a shell takes as it stands. A lever that has no command
// of its own is a call of the API.
func leverCommand(lever record, context string) string {
	words := leverWords(lever)
	if words == nil {
		words = []string{"api", lever.text("method"), lever.text("path")}
		if body := bodyText(lever); body != "" {
			words = append(words, "-d", body)
		}
	}
	if context != "" {
		words = append(words, "--context", context)
	}
	return doctor.Shell(append([]string{"postern"}, words...)...)
}

// leverWords are those of the command that is made for a lever; nil: there is none.
func leverWords(lever record) []string {
	parts := strings.Split(strings.TrimPrefix(lever.text("path"), "/"), "/")
	for i, p := range parts {
		if name, err := url.PathUnescape(p); err == nil {
			parts[i] = name
		}
	}
	switch {
	case parts[0] == "quarantine":
		return quarantineWords(lever, parts)
	case lever.text("method") == "GET" && len(parts) > 2 && parts[len(parts)-1] == "why":
		object := strings.Join(parts[:len(parts)-1], "/")
		return []string{"why", strings.TrimPrefix(object, "transactions/")}
	case lever.text("method") != "POST" || len(parts) < 3:
		return nil
	case parts[0] == "processors" || parts[0] == "authorizations":
		return processorWords(lever, parts)
	case parts[0] == "domains" && len(parts) == 5 && parts[4] != "release":
		return []string{"domain", parts[4], parts[1], parts[3]}
	case len(parts) > 3:
		return nil
	}
	noun, name, verb := parts[0], parts[1], parts[2]
	if !can("POST", "/"+noun+"/{}/"+verb) || !commanded(verb) {
		return nil
	}
	words := []string{verb, noun + "/" + name}
	if noun == "transactions" {
		words[1] = name
	}
	for _, field := range keysOf(lever.at("body")) {
		switch value := lever.text("body." + field); {
		case field == "reason":
			words = append(words, "--reason", value)
		case field == "place" && value == "head":
			words = append(words, "--first")
		default: // no flag says that
			return nil
		}
	}
	return words
}

// commanded says whether a lever has a command of its own.
func commanded(verb string) bool {
	for _, l := range levers {
		if l.verb == verb {
			return true
		}
	}
	return false
}

// processorWords are those of a lever of a processor, or of an authorization.
func processorWords(lever record, parts []string) []string {
	switch {
	case len(parts) == 5 && parts[2] == "executions" && parts[4] == "retry":
		return []string{"processor", "retry", parts[1], parts[3]}
	case parts[0] != "processors" || len(parts) != 3:
		return nil
	case parts[2] == "tick", parts[2] == "pause", parts[2] == "resume":
		return []string{"processor", parts[2], parts[1]}
	case parts[2] == "evict" && lever.text("body.id") != "":
		return []string{"processor", "evict", parts[1], lever.text("body.id")}
	}
	return nil
}

// quarantineWords are those of a lever of what is in quarantine: its scope is in the body.
func quarantineWords(lever record, parts []string) []string {
	if len(parts) == 1 {
		return []string{"quarantine", "status"}
	}
	words := []string{"quarantine", parts[1]}
	if name := lever.text("body.context"); name != "" {
		words = append(words, "contexts/"+name)
	}
	if name := lever.text("body.type"); name != "" {
		words = append(words, "dispatchers/"+name)
	}
	if reason := lever.text("body.reason"); reason != "" {
		words = append(words, "--reason", reason)
	}
	return words
}

// bodyText is the body of a lever, "" if it has none.
func bodyText(lever record) string {
	if len(keysOf(lever.at("body"))) == 0 {
		return ""
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(lever.at("body")); err != nil {
		return fmt.Sprint(lever.at("body"))
	}
	return strings.TrimSpace(b.String())
}

// keysOf are the members of an object in their order, none of what is no object.
func keysOf(v any) []string {
	object, _ := v.(map[string]any)
	var list []string
	for k := range object {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
