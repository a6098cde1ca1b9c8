package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/message"
)

// far is another installation, which executes jobs of a flow. An actor that both know signs what goes there.
type far struct {
	at       *client // the developer there
	as       *client // the actor, at home
	near     *client
	key      ed25519.PrivateKey
	audience message.Audience
	question string // the id of a message
}

// What the two installations call each other, and where messages go.
const (
	farName, nearName = "far", "near"
	demoContext       = "default"
)

// meet makes two installations known to each other, and an actor to both.
func meet(ctx context.Context, near *client, c Config) (*far, error) {
	if c.Runners.Far == "" {
		return nil, errors.New("there is no other installation")
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	f := &far{near: near, key: key, at: &client{base: c.Runners.Far, http: near.http},
		as: &client{base: near.base, http: near.http, key: key}}
	for _, at := range []*client{near, f.at} {
		var made struct{ ID string }
		if err := at.do(ctx, http.MethodPost, "/actors", map[string]any{
			"public_keys": []string{base64.StdEncoding.EncodeToString(public)}}, &made); err != nil {
			return nil, err
		}
		if err := at.do(ctx, http.MethodPut, "/contexts/"+demoContext+"/members/"+made.ID,
			map[string]any{"roles": []string{"admin"}}, nil); err != nil {
			return nil, err
		}
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it does not fail
	secret := "whsec_" + base64.StdEncoding.EncodeToString(random)
	door := struct{ Door, Installation string }{}
	if err := f.at.do(ctx, http.MethodPut, "/peers/"+nearName, map[string]any{"secret": secret}, &door); err != nil {
		return nil, err
	}
	if err := near.do(ctx, http.MethodPut, "/peers/"+farName, map[string]any{"secret": secret,
		"url": c.Runners.Far + door.Door}, nil); err != nil {
		return nil, err
	}
	if err := near.do(ctx, http.MethodPost, "/peers/"+farName+"/check", nil, &door); err != nil {
		return nil, err
	}
	f.audience = message.Audience{Installation: door.Installation, Context: demoContext, Peer: nearName}
	return f, nil
}

// sign makes a job one of the other installation. What its flow gives to all jobs does not go there, so that it is said
// again.
func (f *far) sign(job map[string]any, env map[string]string) error {
	job["target"], job["env_vars"] = map[string]string{"peer": farName}, env
	signed := map[string]any{}
	for _, name := range []string{"script", "script_type", "timeout", "retries", "env_vars"} {
		if v, ok := job[name]; ok {
			signed[name] = v
		}
	}
	list, err := json.Marshal([]any{signed})
	if err != nil {
		return err
	}
	envelope, err := message.Write(message.Signed{Audience: f.audience, CreatedAt: time.Now().UTC(), Type: message.Job,
		Jobs: list}, f.key)
	job["envelope"] = json.RawMessage(envelope)
	return err
}

// messageRow is what the demo reads of a message.
type messageRow struct {
	ID     string      `json:"id"`
	Fence  json.Number `json:"fence"`
	Status string      `json:"status"`
	Body   string      `json:"message"`
	Reply  struct {
		Body   string `json:"message"`
		Result struct{ Jobs []struct{ ID string } }
	} `json:"reply"`
}

// job returns which job of the other installation one of ours is.
func (f *far) job(ctx context.Context, j jobRow) (at *client, id string, err error) {
	var m messageRow
	if err := f.near.do(ctx, http.MethodGet, "/messages/"+j.Message, nil, &m); err != nil {
		return nil, "", err
	}
	if len(m.Reply.Result.Jobs) != 1 {
		return nil, "", fmt.Errorf("message %s, which carries job %s, does not tell how it ended there", m.ID, j.ID)
	}
	return f.at, m.Reply.Result.Jobs[0].ID, nil
}

// A question on the way, and its answer.
const (
	demoQuestion = "are you there?"
	demoAnswer   = "yes, and at work"
)

// ask sends a chat to the other installation.
func (f *far) ask(ctx context.Context) error {
	envelope, err := message.Write(message.Signed{Audience: f.audience, CreatedAt: time.Now().UTC(), Type: message.Chat,
		Body: demoQuestion}, f.key)
	if err != nil {
		return err
	}
	var made messageRow
	err = f.as.do(ctx, http.MethodPost, "/messages", map[string]any{"to": map[string]string{"peer": farName},
		"envelope": json.RawMessage(envelope)}, &made)
	f.question = made.ID
	return err
}

// answered answers the chat at the other installation, and notes where it does not come back.
func (f *far) answered(ctx context.Context, s *Summary) error {
	var p page[messageRow]
	if err := f.at.do(ctx, http.MethodPost, "/messages:receive?wait=20s", map[string]any{"max": 1}, &p); err != nil {
		return err
	}
	if len(p.Items) != 1 || p.Items[0].Body != demoQuestion {
		s.differ("chat", "the other installation was asked %q, and has received %v", demoQuestion, p.Items)
		return nil
	}
	at := *f.at
	at.fence = p.Items[0].Fence.String()
	if err := at.do(ctx, http.MethodPost, "/messages/"+p.Items[0].ID+"/reply", map[string]any{"message": demoAnswer},
		nil); err != nil {
		return err
	}
	var m messageRow
	if err := f.near.do(ctx, http.MethodGet, "/messages/"+f.question+"?wait=20s", nil, &m); err != nil {
		return err
	}
	if m.Status != "processed" || m.Reply.Body != demoAnswer {
		s.differ("chat", "it is %s, and answered %q, want %q", m.Status, m.Reply.Body, demoAnswer)
	}
	return nil
}
