package webhook

import (
	"io"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// believed returns the body of a message that is signed with the secret.
func believed(secret string, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 8<<20)) // room for the largest data and result
	if err != nil {
		return nil, err
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	return body, webhook.Verify(body, r.Header)
}
