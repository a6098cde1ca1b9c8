package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/remote/signature"
)

func actorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actor",
		Short: "Register as an actor with a key of one's own, and rotate that key",
		Long: trim(`
			An actor is known by its Ed25519 key, and signs its requests with it (RFC 9421). Two keys may be
			live, for a rotation. POSTERN_ACTOR_KEY_FILE names the file of the key: then each command of this
			client signs its requests. The URL of the API must be the one that the server takes for its own
			(POSTERN_PUBLIC_URL).

			  postern actor register --key-file ann.key --own-context anns
			  export POSTERN_ACTOR_KEY_FILE=ann.key
			  postern actor key add --new-key-file ann-2.key`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want register or key"))
		},
	}
	key := &cobra.Command{
		Use:   "key",
		Short: "Add and retire keys of an actor",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("want add, prove or retire"))
		},
	}
	key.AddCommand(actorKeyAddCommand(), actorKeyProveCommand(), actorKeyRetireCommand())
	cmd.AddCommand(actorRegisterCommand(), key)
	return cmd
}

// actorKey reads the key of an actor.
func actorKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the key of the actor cannot be read: %w", err)
	}
	var k app.SigningKey
	if err := k.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("the key of the actor in %s: %w", file, err)
	}
	if len(k) == 0 {
		return nil, fmt.Errorf("the key of the actor in %s: the file is empty", file)
	}
	return ed25519.PrivateKey(k), nil
}

// drawnKey reads the key of a file, which is drawn into it where there is none.
func drawnKey(file string) (ed25519.PrivateKey, error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return actorKey(file)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return key, writeSecretFile(file, "whsk_"+base64.StdEncoding.EncodeToString(key))
}

func publicKey(key ed25519.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

// signs has a client sign its requests with the key of an actor.
func (d *door) signs(key ed25519.PrivateKey) {
	d.Sign = func(r *http.Request, body []byte) error {
		return signature.Signer{Key: key}.Sign(r.Header, r.Method, r.URL.String(), body, time.Now())
	}
}

func actorRegisterCommand() *cobra.Command {
	var file, own string
	var address []string
	cmd := asClient(&cobra.Command{
		Use:   "register",
		Short: "Become an actor, by a request signed with the key that it brings",
		Long: trim(`
			Register as an actor where POSTERN_REGISTRATION is open. The key is read from a file, or drawn into
			it. Done again it shows the actor that has the key.

			  postern actor register --key-file ann.key --own-context anns`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			key, err := drawnKey(file)
			if err != nil {
				return usage(cmd, err)
			}
			d.signs(key)
			in := map[string]any{"public_keys": []string{publicKey(key)}}
			if own != "" {
				in["own_context"] = own
			}
			if len(address) > 0 {
				in["address"] = address
			}
			_, _, b, err := d.send(http.MethodPost, "/actors", in)
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
	cmd.Flags().StringVar(&file, "key-file", "",
		"of the key, in PEM or as whsk_ and base64; drawn if it is not there")
	cmd.Flags().StringVar(&own, "own-context", "", "make a context of this name, whose admin it is")
	cmd.Flags().StringSliceVar(&address, "address", nil, "URL under which it can be reached")
	cmd.MarkFlagRequired("key-file")
	return cmd
}

// proof is the body that gives an actor a key.
func (d *door) proof(actor string, key ed25519.PrivateKey) (map[string]string, error) {
	_, here, err := d.get("/identity")
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"public_key": publicKey(key),
		"proof":      signature.Prove(key, here.text("installation"), actor),
	}, nil
}

func actorKeyAddCommand() *cobra.Command {
	var file, reason string
	cmd := asClient(&cobra.Command{
		Use:   "add ACTOR",
		Short: "Give an actor one more key, which proves that it is there",
		Long: trim(`
			Give an actor one more key. The request is made with the credentials of this client, as a rule
			signed with the key that the actor has (POSTERN_ACTOR_KEY_FILE); the new key signs that it is to be
			one of this actor, at this installation.

			  postern actor key add 0193... --new-key-file ann-2.key`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			key, err := drawnKey(file)
			if err != nil {
				return usage(cmd, err)
			}
			in, err := d.proof(args[0], key)
			if err != nil {
				return err
			}
			in["reason"] = reason
			_, _, b, err := d.send(http.MethodPost, "/actors/"+url.PathEscape(args[0])+"/keys", in)
			if err != nil {
				return err
			}
			return printed(cmd, b)
		},
	})
	cmd.Flags().StringVar(&file, "new-key-file", "", "of the new key; drawn if it is not there")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	cmd.MarkFlagRequired("new-key-file")
	return cmd
}

func actorKeyProveCommand() *cobra.Command {
	var file string
	cmd := asClient(&cobra.Command{
		Use:   "prove ACTOR",
		Short: "Print the body with which an admin gives an actor a key",
		Long: trim(`
			Print what POST /actors/ACTOR/keys takes: for an actor that has lost its keys, and asks an admin of
			the context system to add one.

			  postern actor key prove 0193... --new-key-file ann-2.key`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			key, err := drawnKey(file)
			if err != nil {
				return usage(cmd, err)
			}
			in, err := d.proof(args[0], key)
			if err != nil {
				return err
			}
			return printJSON(cmd, in)
		},
	})
	cmd.Flags().StringVar(&file, "new-key-file", "", "of the new key; drawn if it is not there")
	cmd.MarkFlagRequired("new-key-file")
	return cmd
}

func actorKeyRetireCommand() *cobra.Command {
	var compromised bool
	var reason string
	cmd := asClient(&cobra.Command{
		Use:   "retire ACTOR KEY",
		Short: "Retire a key of an actor",
		Long: trim(`
			Retire a key, by its id: it signs no request any more. Messages that it signed before are taken for
			a day; with --compromised none is.

			  postern actor key retire 0193... JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs --compromised`),
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dial(cmd)
			if err != nil {
				return err
			}
			query := url.Values{}
			if compromised {
				query.Set("compromised", "true")
			}
			if reason != "" {
				query.Set("reason", reason)
			}
			path := "/actors/" + url.PathEscape(args[0]) + "/keys/" + url.PathEscape(args[1])
			if len(query) > 0 {
				path += "?" + query.Encode()
			}
			if _, _, _, err := d.raw(http.MethodDelete, path, nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s retired\n", args[1])
			return err
		},
	})
	cmd.Flags().BoolVar(&compromised, "compromised", false, "nothing is believed any more that it has signed")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept with who and when")
	return cmd
}
