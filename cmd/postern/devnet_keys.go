package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnetworker"
)

func devnetKeysCommand() *cobra.Command {
	var keys, url string
	var fund uint64
	cmd := &cobra.Command{
		Use:   "keys [ACCOUNT...]",
		Short: "Make keys for accounts, or list those that there are",
		Long: trim(`
			Make a key for each account that has none: a file in the keystore that only its owner may read,
			named like the account of Postern's sender. A key that is there is never replaced. Without
			accounts, list all. Prints accounts and addresses, never a key.

			  postern devnet keys acct-1 acct-2 --fund 1000000`),
		RunE: func(cmd *cobra.Command, accounts []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			dir, err := devnetDir(keys, "keys")
			if err != nil {
				return err
			}
			store := devnetworker.Keystore{Dir: dir}
			var all []devnetworker.NamedKey
			for _, account := range accounts {
				key, err := store.Create(account)
				if err != nil {
					return err
				}
				all = append(all, devnetworker.NamedKey{Account: account, Address: devnet.AddressOf(key)})
			}
			if len(accounts) == 0 {
				if all, err = store.List(); err != nil {
					return err
				}
			}
			if fund > 0 {
				if err := fundAll(cmd, url, all, fund); err != nil {
					return err
				}
			}
			if asked {
				return printJSON(cmd, map[string]any{"items": all})
			}
			rows := [][]string{{"account", "address"}}
			for _, k := range all {
				rows = append(rows, []string{k.Account, string(k.Address)})
			}
			printTable(cmd, rows)
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&keys, "keys", "", "directory of the keystore ($XDG_STATE_HOME/postern/devnet/keys)")
	cmd.Flags().Uint64Var(&fund, "fund", 0, "money that the faucet of the devnet gives to each of them")
	cmd.Flags().StringVar(&url, "ledger", "http://"+devnetAddress, "address of the devnet, for --fund")
	return cmd
}

// fundAll grants money to accounts.
func fundAll(cmd *cobra.Command, url string, all []devnetworker.NamedKey, amount uint64) error {
	c := devnet.NewClient(url, 5*time.Second)
	defer c.Close()
	for _, k := range all {
		_, err := c.Faucet(cmd.Context(), k.Address, amount)
		var gone *devnet.Unanswered
		if errors.As(err, &gone) {
			return &failure{exitUnreachable, "start one: `postern devnet`",
				fmt.Errorf("the devnet at %s does not answer: %w", url, err)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
