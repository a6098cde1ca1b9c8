// Package httpapi is the HTTP door: requests go in, pg and its machines decide, JSON and problem documents
// come out.
//
// It is one flat package of two kinds of files, told apart by their names. A file base_x.go is what all handlers stand
// on: requests and who makes them, problems, paging, conditions, and the resource of base_resource.go, which answers
// what is asked of every named thing. Any other file is that of a noun: its routes, how it is written and read, its
// handlers. api.go lists the routes of all nouns on one screen.
//
// What a request passes on its way: an id and the recovery of panics, the checks of development mode
// (Host, Origin), the credential, the context, the body (size, media type, and a strict pass over its raw
// bytes), then huma, which validates against the schemas that api/openapi.yaml shows, then a handler. A
// handler returns a fault or a value; base_problem.go turns every fault into one answer.
package httpapi
