package pgworld

import "github.com/postern-dev/postern/internal/leader"

func (w *World) Source(change func(*leader.Source)) {
	w.T.Helper()
	v := leader.Source{Name: "log", Kind: "http_json", URL: "http://127.0.0.1:1/",
		Map: leader.SourceMap{FQN: "/tool"}}.WithDefaults()
	if change != nil {
		change(&v)
	}
	_, err := w.S.Events.PutSource(w.Ctx, w.By, v, 0)
	w.Must(err)
}
