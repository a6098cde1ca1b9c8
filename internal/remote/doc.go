// Package remote calls workers over HTTP: it sends one dispatch, question or hook, and says what came of
// it in the vocabulary of internal/outbox. It decides nothing and stores nothing.
//
// A worker is not trusted (reliability: hostile worker). The address that is really dialled is checked,
// redirects are never followed, the environment's proxies are ignored, an answer is read up to 1 MiB and
// within the time of the call, and what PostgreSQL could not store (NUL, bad UTF-8, bottomless nesting,
// monstrous numbers) does not leave this package.
//
// Two sentences rule the classification (S2.8). A request did not happen if not one byte of it was written. It may have
// happened once one byte was written, whatever the network says afterwards. Therefore nothing is ever sent a second
// time below this package's interface, unless no byte of the first request went out; in particular net/http is kept
// from repeating a request with an Idempotency-Key.
package remote
