package httpapi

import (
	"context"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/pg/stores"
)

// OpenAPI returns the contract, OpenAPI 3.1 as YAML, with all routes. It needs neither store nor network.
func OpenAPI() ([]byte, error) {
	return whole().huma.OpenAPI().YAML()
}

// whole is an API with every route that there can be. Its store has no rooms: routes name functions of them.
func whole() *API {
	return New(Config{
		Store:      &stores.Store{},
		Auth:       "none",
		Version:    "1.0.0",
		DebugClock: func(context.Context) error { return nil },
	})
}

// Operations lists "METHOD /path" of every route, for those who compare it with what they call.
func Operations() []string {
	var list []string
	for path, item := range whole().huma.OpenAPI().Paths {
		for method := range methods(item) {
			list = append(list, method+" "+path)
		}
	}
	return list
}

// document is huma's configuration: the head of the OpenAPI document, and its traps turned off.
func (a *API) document() huma.Config {
	version := a.Version
	if version == "" {
		version = "dev"
	}
	c := huma.DefaultConfig("Postern", version)
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Info.Description = "A transactional outbox and sequencer: post, and it goes out once, in order, through a scarce signer. " +
		"A request is about one context (tenant): that of its API key, else the one that the header Postern-Context names, else default. " +
		"An admin of the context system reads in all of them with Postern-Context: *; " +
		"the answer's Postern-Context says in which. " +
		"What is refused is application/problem+json; its code and retryable are stable."
	c.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	c.Info.Contact = &huma.Contact{Name: "Postern", URL: "https://github.com/postern-dev/postern"}
	c.Servers = []*huma.Server{{URL: "http://127.0.0.1:8080",
		Description: "postern dev, demo and serve, unless they are told to listen elsewhere"}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer",
		Description: "An API key, " + KeyForm + ", or a token of an identity provider that the installation trusts. " +
			"In development mode none is needed."},
		"signature": {Type: "apiKey", In: "header", Name: "Signature", Description: signatureForm}}
	c.Security = []map[string][]string{{"bearer": {}}, {"signature": {}}}
	c.CreateHooks = nil
	c.Transformers = append(c.Transformers, encode)
	c.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	c.DocsPath, c.SchemasPath = "", ""
	c.RejectUnknownQueryParameters = true
	c.Tags = []*huma.Tag{
		{Name: "transactions", Description: "What must go out once, in order."},
		{Name: "queues", Description: "The ordering key."},
		{Name: "senders", Description: "Scarce accounts that sign."},
		{Name: "pools", Description: "Sets of senders."},
		{Name: "dispatchers", Description: "The settings of one transaction type."},
		{Name: "subscriptions", Description: "Who hears of events, and what was delivered."},
		{Name: "processors", Description: "Batches of messages, ticked one at a time."},
		{Name: "authorizations", Description: "Who may send which batches."},
		{Name: "jobs", Description: "Scripts that runners execute, and the runners."},
		{Name: "flows", Description: "Jobs that need each other."},
		{Name: "messages", Description: "What contexts tell each other: chat, mail, jobs and results."},
		{Name: "domains", Description: "Intents, and the order in which they become transactions."},
		{Name: "peers", Description: "Other installations, which messages go to and come from."},
		{Name: "leader", Description: "Events call tools, and results go out through channels."},
		{Name: "nodes", Description: "The processes that dispatch."},
		{Name: "quarantine", Description: "What is kept from leaving a database that was restored or copied."},
		{Name: "access", Description: "Contexts (tenants), who may do what in them, and what was done."},
		{Name: "apply", Description: "Many things at once, as files say: all of them or none."},
		{Name: "service", Description: "The service itself."},
	}
	return c
}

// signatureForm is how an actor signs a request.
const signatureForm = "An HTTP message signature (RFC 9421) with an Ed25519 key of an actor, over @method, " +
	"@target-uri, content-digest (RFC 9530; where there is a body), and those of idempotency-key, if-match, " +
	"if-none-match, postern-context and postern-fence that are sent; with created, expires (300 s later at most), " +
	"nonce, and keyid: the public key in base64."

// schemaName names a type in the document: a page of poolView is PoolsOutputBody, anything else has its own name.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	of, ok := strings.CutPrefix(name, "Listed")
	if of, view := strings.CutSuffix(of, "View"); ok && view {
		return of + "sOutputBody"
	}
	return name
}
