package httpapi

import "context"

// OpenAPI returns the contract, OpenAPI 3.1 as YAML, with all routes. It needs neither store nor network.
func OpenAPI() ([]byte, error) {
	return whole().huma.OpenAPI().YAML()
}

// whole is an API with every route that there can be.
func whole() *API {
	return New(Config{Auth: "none", Version: "1.0.0", DebugClock: func(context.Context) error { return nil }})
}

// Operations lists "METHOD /path" of every route, for those who compare it with what they call.
func Operations() []string {
	var list []string
	for path, item := range whole().huma.OpenAPI().Paths {
		for method := range methods(item) {
			list = append(list, method+" "+path)
		}
	}
	return list
}
