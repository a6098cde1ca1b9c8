// Package httpapi is the HTTP door: requests go in, pg and its machines decide, JSON and problem documents
// come out. api.go lists what there is; the routes of a noun stand at the head of
// its file, beside their handlers.
//
// What a request passes on its way: an id and the recovery of panics, the checks of development mode
// (Host, Origin), the credential, the context, the body (size, media type, and a strict pass over its raw
// bytes), then huma, which validates against the schemas that api/openapi.yaml shows, then a handler. A
// handler returns a fault or a value; problem.go turns every fault into one answer.
package httpapi
