package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/devnetworker"
)

func workerDevnetCommand() *cobra.Command {
	var address, keys, data string
	var attached bool
	cfg := devnetworker.Config{}
	cmd := &cobra.Command{
		Use:   "devnet",
		Short: "The worker of the devnet: signs with keys from files, and submits",
		Long: trim(`
			Serve the worker contract in front of a devnet. It signs with the key of the sender's account,
			which it reads from the keystore (postern devnet keys); Postern never sees one. A retry replaces
			what is pending under the same nonce with a higher fee. It remembers tokens and fences in its data
			directory, also over kill -9. The first line is its address: the worker_url of dispatchers.

			What a transaction does, by its type and data:
			  TRANSFER {"to": "acct-2", "amount": "10"}      to an account of the keystore, or an address
			  EXECUTE [{"transfer": {"to", "amount"}}, {"set": {"to": "app"}}]               messages of a processor's batch
			  any type {"calls": [{"to", "amount"}, {"to": "app", "method": "set", "args": {}}]}   all or none
			  any other                                      calls an app (zkAppAddress, claimUid or planUid)
			The member "simulate" makes trouble; the files in testdata/transactions use all of it.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Keys, err = devnetDir(keys, "keys"); err != nil {
				return err
			}
			if cfg.Data, err = devnetDir(data, "worker"); err != nil {
				return err
			}
			w, err := devnetworker.Open(cfg)
			if err != nil {
				return err
			}
			ctx, stop := attach(cmd.Context(), attached)
			defer stop()
			return errors.Join(serveDevnet(ctx, cmd, address, w.Handler(), nil), w.Close())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&address, "listen", "127.0.0.1:0", "address to listen on")
	f.StringVar(&cfg.Ledger, "ledger", "http://"+devnetAddress, "address of the devnet")
	f.StringVar(&keys, "keys", "", "directory of the keystore ($XDG_STATE_HOME/postern/devnet/keys)")
	f.StringVar(&data, "data", "", "directory of its journal ($XDG_STATE_HOME/postern/devnet/worker)")
	f.Uint64Var(&cfg.FirstFee, "first-fee", 1000, "fee of a first attempt whose dispatcher names none")
	f.Uint64Var(&cfg.Auto, "auto", 0, "for development: accounts without key or money get both, so much of it")
	f.BoolVar(&attached, "attached", false, "end when standard input does")
	f.MarkHidden("attached")
	return cmd
}
