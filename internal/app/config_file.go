package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/manifest"
)

// applyFile applies the configuration file, if there is one: all of it or, with a fault, nothing. Of several
// processes that begin at once one changes something, and the others find that there is nothing to change.
func applyFile(ctx context.Context, api *httpapi.API, cfg Config, log *slog.Logger) error {
	if cfg.ConfigFile == "" {
		return nil
	}
	documents, err := manifest.Read(os.Stdin, cfg.ConfigFile)
	if err != nil {
		return err
	}
	body := httpapi.ApplyBody{Label: httpapi.Label(cfg.ConfigLabel), Prune: cfg.ConfigPrune}
	for _, d := range documents {
		body.Documents = append(body.Documents, httpapi.ApplyDocument{
			Kind:     d.Kind,
			Context:  d.Context,
			Name:     d.Name,
			Settings: d.Settings,
		})
	}
	done, err := api.ApplyFile(ctx, body)
	if err != nil {
		return locate(err, documents)
	}
	for _, t := range done.Things {
		if t.Result != "unchanged" {
			log.Info("applied", "kind", t.Kind, "context", t.Context, "name", t.Name, "result", t.Result)
		}
		for _, w := range t.Warnings {
			log.Warn("applied, but", "kind", t.Kind, "context", t.Context, "name", t.Name, "warning", w)
		}
	}
	log.Info("the configuration file is applied",
		"file", cfg.ConfigFile, "documents", len(documents), "changed", done.Changed)
	return nil
}

// locate is err with where in the file everything stands that was refused.
func locate(err error, documents []*manifest.Document) error {
	f := fault.As(err)
	raw, _ := json.Marshal(f.Extra["refused"])
	lines := manifest.Refusals(raw, documents)
	if len(lines) == 0 {
		return err
	}
	at := fault.New(f.Kind, f.Code, "nothing of the configuration file was applied:\n%s", strings.Join(lines, "\n"))
	return at.Because(f.Err)
}
