package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func peerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peer",
		Short: "Make other installations known, with which a context exchanges messages",
		Long: trim(`
			A peer is another installation of Postern, under the name that a context has for it. Both ends know one
			secret, with which calls and answers are signed. The url of a peer is its address, and the path that
			postern peer put answers there as door.

			  near$ postern peer put far --peer-url https://far.example/contexts/shop/peers/near --secret-file s
			  far$  postern peer put near --secret-file s
			  near$ postern peer check far
			  near$ postern peer rotate far --out s2

			A peer without url calls, and is not called. Those that may send batches to one processor belong to that:
			PUT /processors/NAME/peers/PEER.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want put, ls, show, check, rotate or rm"))
		},
	}
	cmd.AddCommand(peerPutCommand(), listOf("peers", "List peers, and which of them refuse calls"), peerShowCommand(),
		peerCheckCommand(), peerRotateCommand(), removal("rm NAME...", "peers", "removed",
			"Send nothing to a peer and take nothing of it", `
			Remove peers. It is refused while something waits to be sent to one.

			  postern peer rm far`))
	return cmd
}

// secretFlag adds --secret-file. Its function reads the secret, "" without the flag.
func secretFlag(cmd *cobra.Command, usage string) func() (string, error) {
	file := cmd.Flags().String("secret-file", "", usage)
	return func() (string, error) {
		if *file == "" {
			return "", nil
		}
		var b []byte
		var err error
		if *file == "-" {
			b, err = io.ReadAll(cmd.InOrStdin())
		} else {
			b, err = os.ReadFile(*file)
		}
		if err != nil {
			return "", fmt.Errorf("--secret-file: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
}

func peerPutCommand() *cobra.Command {
	var url string
	var insecure bool
	cmd := asClient(&cobra.Command{
		Use:   "put NAME",
		Short: "Make a peer known, or replace its settings; its secret stays unless it is given",
		Long: trim(`
			Make the peer NAME, or replace its settings. A new secret is good at once, and the one before it no more:
			postern peer rotate keeps both for a time.

			  (printf whsec_; openssl rand -base64 32) > s
			  postern peer put far --peer-url https://far.example/contexts/shop/peers/near --secret-file s
			  postern peer put near --secret-file s`),
		Args: cobra.ExactArgs(1),
	})
	cmd.Flags().StringVar(&url, "peer-url", "", "of its door for this context (none: it calls and is not called)")
	cmd.Flags().BoolVar(&insecure, "insecure", false, "the url may be http over a network")
	secret := secretFlag(cmd, "the secret of both ends, in a file, or - for standard input (it stays)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := map[string]any{"insecure": insecure}
		if url != "" {
			in["url"] = url
		}
		s, err := secret()
		if err != nil {
			return err
		}
		if s != "" {
			in["secret"] = s
		}
		return ask(cmd, http.MethodPut, objectPath("peers/"+args[0]), in)
	}
	return cmd
}

func peerShowCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use: "show NAME", Short: "Show a peer, and why it refuses calls", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNames("peers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodGet, objectPath("peers/"+args[0]), nil)
		},
	})
}

func peerCheckCommand() *cobra.Command {
	return asClient(&cobra.Command{
		Use: "check NAME", Short: "Call a peer, and say what it answers", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeNames("peers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, http.MethodPost, objectPath("peers/"+args[0])+"/check", nil)
		},
	})
}

func peerRotateCommand() *cobra.Command {
	var overlap time.Duration
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "rotate NAME",
		Short: "Change the secret at this end, and keep the one before it good for a time",
		Long: trim(`
			Change the secret of a peer. Calls are signed with both secrets for the overlap, and believed under either,
			so that nothing waits until the other end is changed too, with peer put or peer rotate there. Without
			--secret-file a secret is drawn, and shown this once.

			  near$ postern peer rotate far --out s2
			  far$  postern peer rotate near --secret-file s2
			  near$ postern peer rotate far --secret-file s2 --overlap 0s    # the one before holds no more`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames("peers"),
	})
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the secret before stays good")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	secret := secretFlag(cmd, "the new secret, in a file, or - for standard input (one is drawn)")
	file, checkFree := outFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFree(); err != nil {
			return err
		}
		in := map[string]any{"overlap": overlap.String(), "reason": reason}
		s, err := secret()
		switch {
		case err != nil:
			return err
		case s != "" && *file != "":
			return usage(cmd, errors.New("--out keeps a secret that is drawn: leave out it or --secret-file"))
		case s != "":
			in["secret"] = s
		}
		d, err := dial(cmd)
		if err != nil {
			return err
		}
		return d.handOut(cmd, objectPath("peers/"+args[0])+"/rotate-secret", in, *file)
	}
	return cmd
}
