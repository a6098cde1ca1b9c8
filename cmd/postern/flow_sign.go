package main

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/outbox"
)

// ofRequest are the members of a job that are no part of what is signed for another installation: they say how it
// stands in its flow.
var ofRequest = []string{"ref", "dependends", "prerequisites", "prerequisite_timeout", "queue", "target", "envelope"}

// signTargets signs the jobs of a flow that name a target and have no envelope, with a key of the caller. Each is for
// the door of its peer.
func (d *door) signTargets(body []byte, file string) ([]byte, error) {
	flow := map[string]json.RawMessage{}
	var jobs []map[string]json.RawMessage
	if json.Unmarshal(body, &flow) != nil || len(flow["jobs"]) == 0 || json.Unmarshal(flow["jobs"], &jobs) != nil {
		return body, nil // the API says what is wrong with it
	}
	var key ed25519.PrivateKey
	meant := map[string]message.Audience{}
	for _, job := range jobs {
		var target struct{ Peer string }
		if len(job["target"]) == 0 || len(job["envelope"]) > 0 || json.Unmarshal(job["target"], &target) != nil ||
			target.Peer == "" {
			continue
		}
		if key == nil {
			from := cmp.Or(file, os.Getenv("POSTERN_ACTOR_KEY_FILE"))
			if from == "" {
				return nil, errors.New("a job with a target is signed by its actor: --sign-with (or " +
					"POSTERN_ACTOR_KEY_FILE) names the file of the key")
			}
			var err error
			if key, err = actorKey(from); err != nil {
				return nil, err
			}
		}
		if _, ok := meant[target.Peer]; !ok {
			a, err := d.audience(target.Peer)
			if err != nil {
				return nil, err
			}
			meant[target.Peer] = a
		}
		envelope, err := signJob(key, meant[target.Peer], job)
		if err != nil {
			return nil, err
		}
		job["envelope"] = envelope
	}
	if key == nil {
		return body, nil
	}
	var err error
	if flow["jobs"], err = json.Marshal(jobs); err != nil {
		return nil, err
	}
	return json.Marshal(flow)
}

// signJob signs one job for a peer.
func signJob(key ed25519.PrivateKey, to message.Audience, job map[string]json.RawMessage) ([]byte, error) {
	signed := map[string]json.RawMessage{}
	for name, value := range job {
		signed[name] = value
	}
	for _, name := range ofRequest {
		delete(signed, name)
	}
	list, err := json.Marshal([]any{signed})
	if err != nil {
		return nil, err
	}
	return message.Write(message.Signed{Audience: to, CreatedAt: time.Now().UTC(), Type: message.Job, Jobs: list}, key)
}

// audience is for whom something is signed that goes to a peer.
func (d *door) audience(peer string) (to message.Audience, err error) {
	_, p, err := d.get(objectPath("peers/" + peer))
	if err != nil {
		return to, err
	}
	at, ok := outbox.DoorOf(p.text("url"))
	if !ok {
		return to, fmt.Errorf("peer %s has no url: nothing is sent to it", clean(peer))
	}
	to = message.Audience{Installation: p.text("installation"), Context: at.Context, Peer: at.Peer}
	if to.Installation != "" {
		return to, nil
	}
	_, checked, err := d.posted(objectPath("peers/"+peer)+"/check", nil)
	if err != nil {
		return to, err
	}
	if to.Installation = checked.text("installation"); to.Installation == "" {
		return to, fmt.Errorf("peer %s does not say which installation it is (%s): %s", clean(peer),
			clean(checked.text("code")), clean(checked.text("message")))
	}
	return to, nil
}
