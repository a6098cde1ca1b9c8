// Package httpapi is the HTTP door: requests go in, pg and its machines decide, JSON and problem documents
// come out.
//
// It is one flat package of two kinds of files, told apart by their names. The files base_x.go are used by all
// handlers: requests and their actors, problems, paging, conditions, and the resource of base_resource.go, which
// answers the requests that every named thing has. Any other file is that of a noun: its routes, how it is written and
// read, its handlers. api.go lists the routes of all nouns on one screen.
//
// A request passes on its way: an id and the recovery of panics, the checks of development mode (Host, Origin), the
// credential, the context, the body (size, media type, and a strict pass over its raw bytes), then huma, which
// validates against the schemas that api/openapi.yaml shows, then a handler. A handler returns a fault or a value;
// base_problem.go turns every fault into one answer.
package httpapi
