// Package httpapi is the HTTP door: requests go in, pg and its machines decide, JSON and problem documents
// come out. The routes stand in api.go, the problems in problem.go, each noun in a file of its own.
//
// What a request passes on its way: an id and the recovery of panics, the checks of development mode
// (Host, Origin), the credential, the context, the body (size, media type, and a strict pass over its raw
// bytes), then huma, which validates against the schemas that api/openapi.yaml shows, then a handler. A
// handler returns a fault or a value; problem.go turns every fault into one answer.
package httpapi
