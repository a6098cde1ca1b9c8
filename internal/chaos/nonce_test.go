package chaos

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// TestANonceIsUsedOnceOverTwoProcesses sends each signed request to two servers of one database, and to both at one
// time: one of them takes it, and the other one says that its nonce was used.
func TestANonceIsUsedOnceOverTwoProcesses(t *testing.T) {
	const public = "https://postern.example"
	db := pgtest.New(t)
	at := []string{serve(t, db, public), serve(t, db, public)}
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	signed := func(method, path, body string) http.Header {
		h := http.Header{}
		must(t, signature.Signer{Key: key}.Sign(h, method, public+path, []byte(body), time.Now()))
		return h
	}
	id := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	body := fmt.Sprintf(`{"public_keys": [%q]}`, id)
	said := send(t, at[0], "POST", "/actors", body, signed("POST", "/actors", body))
	var made struct{ ID string }
	if json.Unmarshal([]byte(said), &made); made.ID == "" {
		t.Fatal(said)
	}
	path := "/actors/" + made.ID
	for n := range 6 {
		h := signed("GET", path, "")
		answers := make(chan string, 2)
		for _, api := range at {
			ask := func() { answers <- verdict(send(t, api, "GET", path, "", h)) }
			if n%2 == 0 {
				ask()
			} else {
				go ask()
			}
		}
		got := []string{<-answers, <-answers}
		if slices.Sort(got); !slices.Equal(got, []string{"replayed_signature", "taken"}) {
			t.Errorf("a request that was sent to two processes is %q", got)
		}
	}
}

// serve starts a server of a database, at which everybody may register.
func serve(t *testing.T, db *pgtest.DB, public string) (api string) {
	t.Helper()
	b, err := postern()
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	listen := l.Addr().String()
	l.Close()
	cmd := exec.Command(b, "serve", "--listen", listen)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+db.URL, "POSTERN_METRICS_LISTEN=off", "POSTERN_LOG_LEVEL=warn",
		"POSTERN_REGISTRATION=open", "POSTERN_PUBLIC_URL="+public)
	cmd.SysProcAttr = dieWithParent()
	cmd.Stderr = t.Output()
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, time.Minute, "the server is ready", func() bool {
		res, err := http.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return "http://" + listen
}

// send makes a request, and returns what is answered.
func send(t *testing.T, api, method, path, body string, h http.Header) string {
	req, err := http.NewRequestWithContext(t.Context(), method, api+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err.Error()
	}
	req.Header = h.Clone()
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// verdict is taken, or the code of a refusal.
func verdict(answer string) string {
	var p struct{ Code, ID string }
	if err := json.Unmarshal([]byte(answer), &p); err != nil {
		return answer
	}
	if p.Code == "" && p.ID != "" {
		return "taken"
	}
	return strings.TrimSpace(p.Code)
}
