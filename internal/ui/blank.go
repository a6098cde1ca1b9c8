package ui

import (
	"net/url"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// blank is the field of a form whose lever names no account: only the visitor knows which signs.
const blank = "account"

// hasBlank says whether a path ends where the account is to be put.
func hasBlank(path string) bool { return strings.HasSuffix(path, "/senders/"+reads.AnyAccount) }

// fill puts the account of a form into such a path. The field is no part of the body.
func fill(path string, form url.Values) (string, error) {
	account := strings.TrimSpace(form.Get(blank))
	form.Del(blank)
	if account == "" {
		return "", fault.New(fault.Invalid, "invalid",
			"%s stands for an account that signs: say which", reads.AnyAccount)
	}
	return strings.TrimSuffix(path, reads.AnyAccount) + url.PathEscape(account), nil
}

// complete says whether a body says all that only the visitor knows.
func complete(body doc) error {
	if body["worker_url"] == reads.AnyWorker {
		return fault.New(fault.Invalid, "invalid",
			"%s stands for the address of your worker: put that into worker_url", reads.AnyWorker)
	}
	return nil
}
