// Package labels stores what was applied under which label, and makes many changes of the configuration one commit.
//
// # Words
//
//   - apply: one commit that makes many things what documents say.
//   - label: a name, in a context, under which documents were applied. It names the things of these documents, so
//     that a later apply can remove those that it names no more.
//   - thing: whatever has a kind, a name and a context: a pool, a queue, a context itself.
//
// # Tables
//
// applied.
//
// # Lock order
//
// An apply locks the row of the context system first, so that one comes behind the other. It then locks the rows
// that it changes, by kinds: those of its queues among them are not in the order of their ids. It may be the victim
// of a deadlock with other work and then begins anew.
//
// # Failures
//
//   - The process dies, or the database breaks off: nothing of the apply is there.
//   - The answer of the commit is lost: it is commit_unknown. Sent again it changes what is still to be changed.
package labels
