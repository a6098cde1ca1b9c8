package app

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/twin"
)

// bootstrap stores the key in file as the first admin key of the context system, if that has none that holds:
// afterwards the file can go. Fault: bad_setting, which never shows what the file holds.
func bootstrap(ctx context.Context, store *stores.Store, cfg Config, log *slog.Logger) error {
	file := cfg.BootstrapKeyFile
	if file == "" {
		if any, err := store.Actors.HasAdmin(ctx); err != nil || any || cfg.Auth == "none" {
			return err
		}
		log.Warn("no caller can get in: the context system has no admin; run `postern key draw --out root.key` and start with POSTERN_BOOTSTRAP_KEY_FILE=root.key")
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return invalid("bootstrap-key-file", file, "cannot read it: "+err.Error())
	}
	prefix, hash, ok := httpapi.ParseKey(strings.TrimSpace(string(text)))
	if !ok {
		return invalid("bootstrap-key-file", file, "want an API key in it, as "+httpapi.KeyForm)
	}
	stored, err := store.Actors.BootstrapKey(ctx, prefix, hash)
	if twin.Planted("key_logged") {
		prefix = string(text)
	}
	if err == nil && stored {
		log.Info("the first admin key of system is stored", "prefix", prefix)
	}
	return err
}
