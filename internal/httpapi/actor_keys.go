package httpapi

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// actorKeyRoutes are those of the keys with which actors sign.
func (a *API) actorKeyRoutes() {
	const tag = "access"
	post(a, tag, "/actors/{id}/keys", "post-actor-key", "Give an actor one more key", a.postActorKey, 201, 200)
	remove(a, tag, "/actors/{id}/keys/{key}", "delete-actor-key", "Retire a key of an actor", a.deleteActorKey)
}

// actorKeyView is a key of an actor as clients read it.
type actorKeyView struct {
	ID          string     `json:"id" doc:"the key in the base64 of URLs"`
	PublicKey   string     `json:"public_key" doc:"base64 of 32 bytes"`
	AddedAt     time.Time  `json:"added_at"`
	RetiredAt   *time.Time `json:"retired_at" doc:"null: it is live"`
	Compromised bool       `json:"compromised" doc:"nothing is believed that it has signed"`
}

func viewActorKey(k *actors.PublicKey) actorKeyView {
	return actorKeyView{
		ID:          k.ID(),
		PublicKey:   base64.StdEncoding.EncodeToString(k.Key),
		AddedAt:     k.AddedAt.UTC(),
		RetiredAt:   utc(k.RetiredAt),
		Compromised: k.Compromised,
	}
}

// readKey reads a public key that may name somebody.
func readKey(pointer, text string) (ed25519.PublicKey, error) {
	key, err := signature.ParseKey(text)
	if err != nil {
		return nil, fault.At(pointer, "public key %s", err)
	}
	if err := signature.CheckKey(key); err != nil {
		return nil, fault.At(pointer, "public key %q: %s", fault.Clip(text), err)
	}
	return key, nil
}

type postActorKeyInput struct {
	ID   string `path:"id" maxLength:"200"`
	Body struct {
		PublicKey string `json:"public_key" maxLength:"100" doc:"Ed25519, base64 of 32 bytes."`
		Proof     string `json:"proof" maxLength:"200" doc:"As postern actor key prove makes it."`
		Reason    string `json:"reason,omitempty" maxLength:"1000"`
	}
}

// postActorKey gives an actor one more key, whose holder proves to have it: 201; 200 if the actor has it already.
func (a *API) postActorKey(ctx context.Context, in *postActorKeyInput) (*actorOutput, error) {
	key, err := readKey("/public_key", in.Body.PublicKey)
	if err != nil {
		return nil, err
	}
	installation, err := a.Store.Actors.Installation(ctx)
	if err != nil {
		return nil, err
	}
	if !signature.Proves(key, installation.String(), in.ID, in.Body.Proof) {
		return nil, fault.At("/proof", "proof: it is no signature by this key, in base64, of the three lines "+
			"\"postern add key\", %q and %q without a newline at the end", installation, fault.Clip(in.ID))
	}
	added, err := a.Store.Actors.AddKey(ctx, by(ctx, in.Body.Reason), in.ID, key)
	if err != nil {
		return nil, err
	}
	out, err := a.getActor(ctx, &actorInput{in.ID})
	if err == nil && added {
		out.Status, out.Location = http.StatusCreated, "/actors/"+in.ID
	}
	return out, err
}

type deleteActorKeyInput struct {
	ID  string `path:"id" maxLength:"200"`
	Key string `path:"key" maxLength:"100" doc:"its id"`
	Trial
	Compromised bool `query:"compromised" doc:"Nothing that it has signed is believed any more."`
}

// deleteActorKey retires a key: it signs no request any more, in every process at once.
func (a *API) deleteActorKey(ctx context.Context, in *deleteActorKeyInput) (*struct{}, error) {
	key, err := signature.ParseKey(in.Key)
	if err != nil {
		return nil, fault.New(fault.NotFound, "not_found", "%s has no key %q", in.ID, fault.Clip(in.Key))
	}
	_, err = a.Store.Actors.RetireKey(ctx, by(ctx, ""), in.ID, key, in.Compromised)
	return nil, err
}
