package devnetworker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/fault"
)

// openKey makes a key readable for everybody.
func openKey(t *testing.T, dir, account string) {
	t.Helper()
	must(t, os.Chmod(filepath.Join(dir, account+".key"), 0o644))
}

func TestAKeystoreKeepsKeysToItself(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	k := devnetworker.Keystore{Dir: dir}
	if all, err := k.List(); err != nil || len(all) != 0 {
		t.Errorf("an empty keystore lists %v, %v", all, err)
	}
	made, err := k.Create("a.1")
	must(t, err)
	if again, err := k.Create("a.1"); err != nil || !again.Equal(made) {
		t.Errorf("made again: another key, %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "a.1.key"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	if all, err := k.List(); err != nil || len(all) != 1 ||
		all[0] != (devnetworker.NamedKey{Account: "a.1", Address: devnet.AddressOf(made)}) {
		t.Errorf("it lists %v, %v", all, err)
	}
	for name, kind := range map[string]fault.Kind{"b": fault.NotFound, "": fault.Invalid, "../x": fault.Invalid,
		".x": fault.Invalid, "a/b": fault.Invalid} {
		if _, err := k.Key(name); fault.KindOf(err) != kind {
			t.Errorf("key %q: %v, want kind %s", name, err, kind)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "c.key"), []byte("x"), 0o600))
	if _, err := k.Key("c"); fault.CodeOf(err) != "key_damaged" {
		t.Errorf("a damaged key: %v", err)
	}
	openKey(t, dir, "a.1")
	if _, err := k.Key("a.1"); fault.CodeOf(err) != "key_open" {
		t.Errorf("an open key: %v", err)
	}
}
