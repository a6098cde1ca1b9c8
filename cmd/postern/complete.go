package main

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
)

// names asks the API for the names of what there is of a noun, for the shell: at once or not at all.
func names(cmd *cobra.Command, noun string) []string {
	d, err := dial(cmd)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d.ctx = ctx
	_, page, err := d.get("/" + noun + "?" + url.Values{"limit": {"500"}}.Encode())
	if err != nil {
		return nil
	}
	var list []string
	for _, r := range page.records("items") {
		for _, key := range []string{"uid", "name", "type", "account", "id"} {
			if s := r.text(key); s != "" {
				list = append(list, s)
				break
			}
		}
	}
	return list
}

func completeNames(noun string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, noun), cobra.ShellCompDirectiveNoFileComp
	}
}

// oneOf completes one of a few words.
func oneOf(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFilters completes [NOUN] [FILTER=VALUE...].
func completeFilters(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	noun, list := "transactions", []string{}
	if len(args) == 0 {
		list = slices.Sorted(maps.Keys(nouns()))
	} else if !strings.Contains(args[0], "=") {
		noun = plural(args[0])
	}
	if name, _, ok := strings.Cut(typed, "="); ok {
		of := map[string]string{"queue": "queues", "type": "dispatchers", "sender": "senders", "pool": "pools"}[name]
		if name == "state" && noun == "transactions" {
			for _, s := range []client.TransactionViewState{client.TransactionViewStateWAITING,
				client.TransactionViewStateDISPATCHING, client.TransactionViewStateREVISION,
				client.TransactionViewStateRETRY, client.TransactionViewStateDONE, client.TransactionViewStateFAILED,
				client.TransactionViewStateUNRESOLVED, client.TransactionViewStateCANCELLED} {
				list = append(list, name+"="+string(s))
			}
		} else if of != "" {
			for _, n := range names(cmd, of) {
				list = append(list, name+"="+n)
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
	for _, f := range nouns()[noun] {
		list = append(list, f+"=")
	}
	return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeObjects completes ID, UID and NOUN/NAME for a call GET or POST /noun/{}/verb; "" for any noun.
func completeObjects(verb string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		of := slices.Sorted(maps.Keys(nouns()))
		if verb != "" {
			of = nounsWith(verb)
		}
		noun, _, ok := strings.Cut(typed, "/")
		if ok {
			var list []string
			for _, n := range names(cmd, plural(noun)) {
				list = append(list, noun+"/"+n)
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		}
		var list []string
		for _, n := range of {
			if n != "transactions" && !strings.Contains(n, "/") && (verb != "" || can("GET", "/"+n+"/{}")) {
				list = append(list, n+"/")
			}
		}
		if slices.Contains(of, "transactions") {
			list = append(list, names(cmd, "transactions")...)
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if !slices.Contains(of, "transactions") || strings.HasPrefix(strings.Join(of, " "), typed) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
}

// completeCalls completes METHOD PATH.
func completeCalls(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, cobra.ShellCompDirectiveNoFileComp
	}
	var list []string
	for _, op := range client.Operations {
		if len(args) == 1 && strings.EqualFold(op.Method, args[0]) {
			list = append(list, op.Path+"\t"+op.Summary)
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
