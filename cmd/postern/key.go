package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/httpapi"
)

func keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke API keys",
		Long: trim(`
			An API key lies in one context and has one role: reader, executor (posts, and cancels, retries or
			redrives what it posted) or admin. Its secret is shown once and stored as a hash.

			The first key of an installation is drawn here and given to postern serve, which stores it as an
			admin of everything if there is none yet; nothing else makes keys without one.

			  postern key draw --out root.key
			  POSTERN_BOOTSTRAP_KEY_FILE=root.key postern serve
			  export POSTERN_API_KEY_FILE=root.key
			  postern context create shop
			  postern key create till --context shop --role executor --out till.key`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want draw, create, ls, rotate or revoke"))
		},
	}
	cmd.AddCommand(keyDrawCommand(), keyCreateCommand(), keyLsCommand(), keyRotateCommand(), keyRevokeCommand())
	return cmd
}

// writeSecretFile writes a secret into a new file that only its owner reads.
func writeSecretFile(file, secret string) error {
	f, err := newSecretFile(file)
	if err != nil {
		return err
	}
	return writeSecret(f, secret)
}

// newSecretFile makes the file of a secret.
func newSecretFile(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be kept: %w", err)
	}
	return f, nil
}

// writeSecret writes a secret into its file, so that it is there after a crash too.
func writeSecret(f *os.File, secret string) error {
	_, err := f.WriteString(secret + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// outFlag adds --out. checkFree refuses a file that exists, before anything is asked for.
func outFlag(cmd *cobra.Command) (file *string, checkFree func() error) {
	file = cmd.Flags().String("out", "", "write the key into this new file, for its owner only, and do not show it")
	return file, func() error {
		if _, err := os.Lstat(*file); *file != "" && err == nil {
			return usage(cmd, fmt.Errorf("--out: %s exists already, and a key is not written over", *file))
		}
		return nil
	}
}

func keyDrawCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "draw",
		Short: "Draw the first key of an installation, for POSTERN_BOOTSTRAP_KEY_FILE",
		Long: trim(`
			Draw a key, in secret: 32 random bytes, written as API keys are. postern serve stores the one in
			POSTERN_BOOTSTRAP_KEY_FILE as the first admin of the context system, as long as that has none.

			  postern key draw --out root.key`),
		Args: cobra.NoArgs,
	}
	file, checkFree := outFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFree(); err != nil {
			return err
		}
		if *file != "" {
			return writeSecretFile(*file, httpapi.DrawKey())
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), httpapi.DrawKey())
		return err
	}
	return cmd
}

func keyCreateCommand() *cobra.Command {
	var role string
	var only []string
	var expires time.Duration
	cmd := asClient(&cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key and show its secret, this once",
		Long: trim(`
			Make an API key in the context of --context (POSTERN_CONTEXT).

			  postern key create till --role executor --out till.key
			  postern key create dashboard --role reader --expires-in 2160h
			  postern key create loader --role executor --only post`),
		Args: cobra.ExactArgs(1),
	})
	cmd.Flags().StringVar(&role, "role", "", "reader, executor or admin")
	cmd.Flags().StringSliceVar(&only, "only", nil, "narrow the role to read, post or operate")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "after which it does not hold any more")
	cmd.MarkFlagRequired("role")
	cmd.RegisterFlagCompletionFunc("role", oneOf("reader", "executor", "admin"))
	cmd.RegisterFlagCompletionFunc("only", oneOf("read", "post", "operate"))
	file, checkFree := outFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := &client.NewAPIKey{Name: args[0], Role: client.NewAPIKeyRole(role)}
		for _, o := range only {
			in.Only = append(in.Only, client.NewAPIKeyOnly(o))
		}
		if expires < 0 {
			return usage(cmd, errors.New("--expires-in: want a duration ahead, such as 720h"))
		} else if expires > 0 {
			at := time.Now().Add(expires).UTC().Truncate(time.Second)
			in.ExpiresAt = &at
		}
		if err := checkFree(); err != nil {
			return err
		}
		d, err := dial(cmd)
		if err != nil {
			return err
		}
		return d.handOut(cmd, "/api-keys", in, *file)
	}
	return cmd
}

// handOut asks for a key and shows it, or keeps it in a file. The file is made before the key: the key that a rotation
// replaced may hold no more, and the new one is told once. It is shown where it cannot be written all the same.
func (d *door) handOut(cmd *cobra.Command, path string, in any, file string) error {
	wantsJSON, err := asJSON(cmd)
	if err != nil {
		return err
	}
	if file == "" {
		r, err := d.handed(path, in)
		if err != nil {
			return err
		}
		return showKey(cmd, r, wantsJSON)
	}
	f, err := newSecretFile(file)
	if err != nil {
		return err
	}
	r, err := d.handed(path, in)
	if err != nil { // the error is told as it is; the file is empty
		f.Close()
		os.Remove(file)
		return err
	}
	lost := writeSecret(f, r.text("secret"))
	if lost == nil {
		delete(r, "secret")
	} else {
		lost = fmt.Errorf("the key is shown here, and could not be kept: %w", lost)
	}
	return errors.Join(showKey(cmd, r, wantsJSON), lost)
}

// handed asks for a key.
func (d *door) handed(path string, in any) (record, error) {
	_, _, b, err := d.send(http.MethodPost, path, in)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

func showKey(cmd *cobra.Command, r record, wantsJSON bool) error {
	if wantsJSON {
		return printJSON(cmd, r)
	}
	paperOf(cmd).record(cmd.OutOrStdout(), r)
	return nil
}

func keyLsCommand() *cobra.Command {
	return listOf("api-keys", "List the API keys of a context, without secrets")
}

func keyRotateCommand() *cobra.Command {
	var overlap time.Duration
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "rotate ID|NAME",
		Short: "Give an API key another secret, and show it",
		Long: trim(`
			Give an API key another secret. The one before holds for the overlap; without one, none before does.

			  postern key rotate till --overlap 24h --out till.key`),
		Args: cobra.ExactArgs(1),
	})
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the secret before still holds")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	file, checkFree := outFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFree(); err != nil {
			return err
		}
		d, err := dial(cmd)
		if err != nil {
			return err
		}
		path, err := d.named(objectPath("api-keys/" + args[0]))
		if err != nil {
			return err
		}
		in := map[string]string{"overlap": overlap.String(), "reason": reason}
		return d.handOut(cmd, path+"/rotate", in, *file)
	}
	return cmd
}

func keyRevokeCommand() *cobra.Command {
	return removal("revoke ID|NAME...", "api-keys", "revoked", "Revoke API keys", `
		Revoke API keys: they are refused at once by the process that is asked, by others within 2 s.

		  postern key revoke till`)
}

// named is the path of an object that is named as people know it. An API key is found by its name, where one of the
// context has it; other objects are named by their paths.
func (d *door) named(path string) (string, error) {
	name, key := strings.CutPrefix(path, "/api-keys/")
	if _, err := uuid.Parse(name); !key || err == nil {
		return path, nil
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	var ids []string
	err := d.each("/api-keys", func(r record) {
		if r.text("name") == name {
			ids = append(ids, r.text("id"))
		}
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", &client.Problem{
			Code:   "not_found",
			Status: http.StatusNotFound,
			Detail: fmt.Sprintf("no API key has the id or name %q", name),
		}
	case len(ids) > 1:
		return "", &failure{exitBad, "give the id of one: `postern key ls` shows more of them",
			fmt.Errorf("%d API keys are named %q: %s", len(ids), name, strings.Join(ids, ", "))}
	}
	return "/api-keys/" + ids[0], nil
}
