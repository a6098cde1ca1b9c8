package main

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/api/client"
)

// nearest returns the candidate that was probably meant by a word that is none of them, "" if none is near: one that
// differs by few letters, else one that the word begins.
func nearest(word string, candidates []string) string {
	best, least := "", 1+max(1, (len(word)+1)/3)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, word) {
			return c
		}
	}
	return ""
}

// distance counts the letters to insert, remove, replace or swap with their neighbour that make b of a.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			differ := 1
			if s[i-1] == t[j-1] {
				differ = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differ)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}

// perhaps is the question in an error where a name is near to the one that was written, "" if none is.
func perhaps(word string, candidates []string) string {
	if name := nearest(word, candidates); name != "" && name != word {
		return " (did you mean " + name + "?)"
	}
	return ""
}

var (
	unknownCommand = regexp.MustCompile(`^unknown command "([^"]*)"`)
	unknownFlag    = regexp.MustCompile(`^unknown flag: --(\S+)`)
)

// meant is the command or flag that was probably meant where one is not known, "" if there is none.
func meant(cmd *cobra.Command, err error) string {
	if typed := unknownCommand.FindStringSubmatch(err.Error()); typed != nil {
		var list []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				list = append(append(list, c.Name()), c.Aliases...)
			}
		}
		if !cmd.HasParent() {
			list = append(append(list, aliasedNouns()...), slices.Collect(maps.Keys(guesses))...)
			slices.Sort(list)
		}
		name := nearest(typed[1], list)
		if name != "" && !cmd.HasParent() {
			name = cmp.Or(guesses[name], name)
		}
		if name != "" {
			return cmd.CommandPath() + " " + name
		}
	}
	if typed := unknownFlag.FindStringSubmatch(err.Error()); typed != nil {
		var list []string
		add := func(f *pflag.Flag) { list = append(list, f.Name) }
		cmd.Flags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
		name, _, _ := strings.Cut(typed[1], "=")
		if name == "version" {
			return "postern version"
		}
		filters := filtersOf(cmd)
		for i, filter := range filters {
			filters[i] = strings.ReplaceAll(filter, "_", "-")
		}
		switch name = nearest(name, append(list, filters...)); {
		case name == "":
		case slices.Contains(filters, name):
			return cmd.CommandPath() + " " + strings.ReplaceAll(name, "-", "_") + "=VALUE"
		default:
			return "--" + name
		}
	}
	return ""
}

// guesses are words that people try for a command of another name.
var guesses = map[string]string{
	"send":    "post",
	"enqueue": "post",
	"publish": "post",
	"status":  "ls` or `postern doctor",
	"health":  "doctor",
	"ps":      "ls",
	"find":    "ls",
	"start":   "dev` or `postern serve",
	"up":      "dev` or `postern serve",
	"explain": "why",
	"info":    "show",
}

// filtersOf are the filters of a command that lists: of one noun, or of ls, which lists all; none of another command.
func filtersOf(cmd *cobra.Command) (list []string) {
	for noun, filters := range nouns() {
		if cmd.Name() == "ls" && cmd.Parent() == cmd.Root() || cmd.Name() == noun {
			list = append(list, filters...)
		}
	}
	slices.Sort(list)
	return list
}

// known asks the API for a name that is near to one that it did not find, and returns what to type instead, "" if
// there is none. A further request is worth it only after a refusal.
func known(cmd *cobra.Command, err error) string {
	var p *client.Problem
	if !errors.As(err, &p) {
		return ""
	}
	args := cmd.Flags().Args()
	switch {
	case p.Code == "unknown_type" && cmd.Name() == "post" && len(args) == 1:
		return nearest(args[0], names(cmd, "dispatchers"))
	case p.Code != "not_found" || len(args) != 1:
		return ""
	}
	noun, name, ok := strings.Cut(strings.TrimPrefix(args[0], "/"), "/")
	if listed := slices.Contains(listedNouns(), plural(noun)); ok && listed && !strings.Contains(name, "/") {
		if near := nearest(name, names(cmd, plural(noun))); near != "" {
			return noun + "/" + near
		}
	}
	return ""
}
