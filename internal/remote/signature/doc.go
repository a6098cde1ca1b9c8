// Package signature signs HTTP requests with Ed25519 keys and verifies such signatures, as RFC 9421 has it, with the
// digests of RFC 9530 for bodies.
//
// # Words
//
//   - signature: of one request, under a label. A request may carry several.
//   - component: a part of a request that a signature covers: a header by its name, or a derived one, such as @method.
//   - base: the text that is signed, with a line for each component and one for the parameters.
//   - target: the URL of a request as the one who sends it sees it.
//
// # How it is verified
//
// Parse reads the headers with a parser of structured fields (RFC 8941). What it does not know it refuses: a component
// with a flag, a component twice, a parameter twice. The order of parameters is that in which they came. Then the
// caller asks, in this order: do they cover what they must (Covers), is the digest that of the body (CheckDigest),
// does a key hold (Verify), is it of now (Fresh). That a nonce is used once is for the one who has a store.
package signature
