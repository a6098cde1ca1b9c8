// Package message decides what becomes of messages between contexts, and says which are well formed and which are
// signed. It does no I/O and knows no clock: time comes in as an argument.
//
//   - message: what one actor sends to a context, of this installation or of a peer. It has one status, and one end.
//   - box: msg_out of the context that sends it, msg_in of the one that it is for.
//   - route: the second look at the rights of its sender, after which it is let go to where it is for.
//   - deadline: timeout from its creation to its delivery, timeout_ack from there to its acknowledgement, and
//     timeout_result from there to its result. The one that runs ends it when it is over.
//   - result: the message that answers another one, and ends it. It is never handed to a receiver.
//   - late: a word about a message that has ended, or of a receiver that holds it no more. It changes nothing.
//   - envelope: the bytes that an actor signed, with the signature (DSSE).
package message
