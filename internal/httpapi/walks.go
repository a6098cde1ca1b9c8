package httpapi

import (
	"context"

	"github.com/postern-dev/postern/internal/leader"
)

func (a *API) walkRoutes() {
	const tag = "leader"
	post(a, tag, "/walks:validate", "validate-walk",
		"Judge the definition of a walk, by vertex and port", a.validateWalk, 200)
}

type walkInput struct {
	Body leader.Walk
}

type walkOutput struct {
	Body struct {
		Valid    bool     `json:"valid" doc:"always true: what is not valid is refused, with the text of the first check that fails"`
		Vertices int      `json:"vertices"`
		Edges    int      `json:"edges"`
		Groups   []string `json:"entry_groups"`
	}
}

// validateWalk judges a walk and stores nothing: 200; 422 whose detail names vertex and port, with a pointer
// into the document (S1.16).
func (a *API) validateWalk(_ context.Context, in *walkInput) (*walkOutput, error) {
	if err := in.Body.Validate(); err != nil {
		return nil, err
	}
	out := &walkOutput{}
	out.Body.Valid, out.Body.Vertices, out.Body.Edges, out.Body.Groups = true, len(in.Body.Vertices),
		len(in.Body.Edges), in.Body.Groups()
	return out, nil
}
