// Package mycelium speaks with the local node of a Mycelium network, over its HTTP API (threefoldtech/mycelium,
// docs/api.yaml), and says how a request to a worker, and its answer, are written into messages of that network.
//
// The caller pushes a Call as a message of the topic Topic to the key of another node, and waits for the reply, whose
// payload is an Answer. At the other end a process takes messages of that topic from its own node, and replies.
//
// These are the words of the API. A topic and a payload are base64 in the standard alphabet. A push that waits for a
// reply is answered 200 with it, or 408 with the id of the message alone, once its time is up; 201 is the answer to a
// push that does not wait. A message that is taken is gone from its queue. A node reads request bodies of 2 MiB.
//
// The package knows neither contexts nor rows. It does not decide what an error means for a transaction: that is left
// to internal/remote.
package mycelium
