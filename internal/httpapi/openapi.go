package httpapi

import "github.com/danielgtaylor/huma/v2"

// OpenAPI returns the contract, OpenAPI 3.1 as YAML, with all routes. It needs neither store nor network.
func OpenAPI() ([]byte, error) {
	a := New(Config{Auth: "none", Version: "1.0.0"})
	return a.huma.OpenAPI().YAML()
}

// Operations lists "METHOD /path" of every route, for those who compare it with what they call.
func Operations() []string {
	var list []string
	for path, item := range New(Config{Auth: "none"}).huma.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				list = append(list, method+" "+path)
			}
		}
	}
	return list
}
