package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pgtest"
)

// An envelope is sent as it is: the defaults of flags say nothing against it, and those that were given must agree.
func TestASignedMessageIsSentAsItIs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, at := serving(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve", "--work")
	env := []string{at, "POSTERN_OUTPUT=table"}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	if _, err := db.Pool.Exec(t.Context(), `WITH a AS (
			INSERT INTO postern.actor (actor_id) VALUES ('dev') ON CONFLICT DO NOTHING)
		INSERT INTO postern.actor_key (public_key, actor_id, slot) VALUES (decode($1, 'base64'), 'dev', 1)`,
		public); err != nil {
		t.Fatal(err)
	}
	var here struct{ Installation string }
	health := postern(t, env, "api", "GET", "/contexts/default/peers/any/health")
	if err := json.Unmarshal([]byte(health.stdout), &here); err != nil {
		t.Fatal(err, health.stdout)
	}
	signed := func(s message.Signed) string {
		s.Audience = message.Audience{Installation: here.Installation, Context: "default"}
		s.CreatedAt = time.Now().UTC()
		envelope, err := message.Write(s, key)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "envelope.json")
		if err := os.WriteFile(file, envelope, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	chat := signed(message.Signed{Type: message.Chat, Body: "hello"})
	mail := signed(message.Signed{Type: message.Mail, Format: "md", Body: "*hello*"})
	send := func(file string, more ...string) result {
		return postern(t, env, append([]string{"message", "send", "default", "--envelope", file}, more...)...)
	}
	send(chat).want(t, 0)
	send(mail, "-o", "json").want(t, 0, `"message_type":"mail"`, `"message_format_type":"md"`)
	send(chat, "--format", "text", "--type", "chat").want(t, 0)
	send(chat, "--format", "md").want(t, 1, "message_format_type is not what the envelope says")
	send(mail, "--type", "chat").want(t, 1, "message_type is not what the envelope says")
}
