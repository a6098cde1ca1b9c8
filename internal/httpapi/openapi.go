package httpapi

// OpenAPI returns the contract, OpenAPI 3.1 as YAML, with all routes. It needs neither store nor network.
func OpenAPI() ([]byte, error) {
	a := New(Config{Auth: "none", Version: "1.0.0"})
	return a.huma.OpenAPI().YAML()
}

// Operations lists "METHOD /path" of every route, for those who compare it with what they call.
func Operations() []string {
	var list []string
	for path, item := range New(Config{Auth: "none"}).huma.OpenAPI().Paths {
		for method := range methods(item) {
			list = append(list, method+" "+path)
		}
	}
	return list
}
