package chaos

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlWorker executes messages in a database of its own: those of one dispatch, and that it was executed, in one SQL
// transaction. A message "fail" is refused, and with it all.
type sqlWorker struct{ pool *pgxpool.Pool }

const sqlWorkerTables = `CREATE SCHEMA target;
	CREATE TABLE target.executed (token text PRIMARY KEY);
	CREATE TABLE target.effect (token text, batch text, name text)`

func (w sqlWorker) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	answer := func(status int, v any) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(status)
		_ = json.NewEncoder(out).Encode(v)
	}
	var body struct {
		Token  string
		TxData struct {
			UID  string
			Data json.RawMessage
		} `json:"txData"`
		Sender  struct{ Queue string }
		Postern struct{ Token string }
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/status"):
		var known bool
		if err := w.pool.QueryRow(r.Context(), `SELECT EXISTS (SELECT FROM target.executed WHERE token = $1)`, body.Token).Scan(&known); err != nil {
			answer(503, nil)
		} else if known {
			answer(200, map[string]any{"state": "included", "block_height": "1"})
		} else {
			answer(200, map[string]any{"state": "unknown"})
		}
		return
	case !strings.HasPrefix(r.URL.Path, "/dispatch"):
		answer(404, nil)
		return
	}
	data := body.TxData.Data
	if data[0] != '[' {
		data = append(append([]byte{'['}, data...), ']')
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(data, &messages) != nil {
		answer(400, nil)
		return
	}
	refused := false
	err := pgx.BeginFunc(r.Context(), w.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(r.Context(), `INSERT INTO target.executed (token) VALUES ($1) ON CONFLICT DO NOTHING`, body.Postern.Token)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		for _, m := range messages {
			for name := range m {
				if refused = name == "fail"; refused {
					return pgx.ErrTxClosed // rolls back
				}
				if _, err := tx.Exec(r.Context(), `INSERT INTO target.effect (token, batch, name) VALUES ($1, $2, $3)`, body.Postern.Token, body.Sender.Queue, name); err != nil {
					return err
				}
			}
		}
		return nil
	})
	switch {
	case refused:
		answer(200, map[string]any{"hash": "", "done": nil, "error": map[string]any{"class": "retry", "code": 500, "message": "fail"}})
	case err != nil:
		answer(503, nil)
	default:
		answer(200, map[string]any{"hash": "", "done": map[string]bool{"ok": true}, "error": nil})
	}
}
