package devnetworker

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/fault"
)

// keyFile ends the name of a key's file. The name before it is that of the account, as Postern calls it.
const keyFile = ".key"

// Keystore is a directory of keys, one file each with the 64 hexadecimal digits of an ed25519 seed, which
// only its owner may read. Keys are nowhere else: not in the database, not in a call.
type Keystore struct{ Dir string }

// NamedKey is the public half of a key.
type NamedKey struct {
	Account string         `json:"account"`
	Address devnet.Address `json:"address"`
}

// Key reads the key of an account. Errors: NotFound if there is none; Invalid if the name cannot be one;
// Conflict if the file is open to others or is no key.
func (k Keystore) Key(account string) (ed25519.PrivateKey, error) {
	path, err := k.path(account)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "account_not_found",
			"there is no key of account %s: `postern devnet keys %s` makes one", account, account)
	}
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.Conflict, "key_open",
			"the key %s has mode %04o: want 0600, or everybody signs with it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fault.New(fault.Conflict, "key_damaged", "the key %s is none: want 64 hexadecimal digits", path)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// Create makes the key of an account, durably, or returns the one that is there.
func (k Keystore) Create(account string) (ed25519.PrivateKey, error) {
	path, err := k.path(account)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return nil, err
	}
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	f, err := os.CreateTemp(k.Dir, ".new-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(seed) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	// a link, not a rename: a key that is there is never replaced
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return k.Key(account)
}

// List returns the public halves of all keys, sorted by account.
func (k Keystore) List() ([]NamedKey, error) {
	files, err := os.ReadDir(k.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := []NamedKey{}
	for _, f := range files {
		account, ok := strings.CutSuffix(f.Name(), keyFile)
		if !ok || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		key, err := k.Key(account)
		if err != nil {
			return nil, err
		}
		all = append(all, NamedKey{account, devnet.AddressOf(key)})
	}
	slices.SortFunc(all, func(a, b NamedKey) int { return strings.Compare(a.Account, b.Account) })
	return all, nil
}

// path is the file of an account, whose name comes from outside.
func (k Keystore) path(account string) (string, error) {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@:"
	if account == "" || len(account) > 128 || account[0] == '.' || strings.Trim(account, plain) != "" {
		return "", fault.At("/sender/accountId",
			"the account is %q: want 1 to 128 letters, digits and _-.@: and no dot at the front", fault.Clip(account))
	}
	return filepath.Join(k.Dir, account+keyFile), nil
}
