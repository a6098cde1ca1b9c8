// Package actors stores who may act: people and programs, and the API keys and OIDC subjects that name them.
//
// # Words
//
//   - actor: a name that the audit keeps. It has keys, or is the subject of an identity provider.
//   - API key: a secret of an actor, with a context, a role and an end. Only its hash is stored.
//   - member: an actor's role in a context; the core keeps members beside the context.
//   - public key: of an actor, who signs requests and messages with the other half. It names this actor for good.
//   - nonce: a text that a signature holds, which is used once.
//   - session: a browser that is signed in to the dashboard, with a key or by an identity provider. Only the hash of
//     its cookie is stored.
//
// # Tables
//
// actor, actor_key, spent_key, nonce, api_key and ui_session. The audit row of each change is written in its commit.
//
// # Lock order
//
// One row of actor, then its keys; or one of api_key. Levers that give access first lock those of contexts, and of
// their caller, so that none of these ends meanwhile (Still). The first admin key is stored behind the row of its
// context, so that one of several processes stores it. Nothing here waits while it holds a row of a queue.
//
// # Failures
//
//   - A request is repeated under its Idempotency-Key: the constraint one_actor_per_request_key (or its like for keys)
//     runs the decision again, which finds what the first one made. The secret of a key is answered once only.
//   - A key leaks: it is revoked; other processes hear of it within a second (the cache of keys in httpapi).
//   - A public key leaks: it is retired, and refused at once everywhere, since each signed request looks it up; streams
//     and requests that wait hear of it within a second, as of all credentials.
//   - Two requests with one nonce: the second waits for the commit of the first, and inserts nothing. A restore loses
//     nonces, so that signatures from before it hold no more (store.signed_after).
package actors
