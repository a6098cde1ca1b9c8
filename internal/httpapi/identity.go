package httpapi

import "context"

func (a *API) identityRoutes() {
	get(a, "access", "/identity", "get-identity", "Which installation this is", a.getIdentity)
}

// identityView is how an installation tells itself from others.
type identityView struct {
	Installation string `json:"installation" doc:"its id: what is signed for it names this"`
	PublicURL    string `json:"public_url" doc:"which signed requests name; empty: the address that they go to"`
	Registration string `json:"registration" enum:"open,closed" doc:"whether actors register themselves"`
}

type identityOutput struct{ Body identityView }

func (a *API) getIdentity(ctx context.Context, _ *struct{}) (*identityOutput, error) {
	id, err := a.Store.Actors.Installation(ctx)
	if err != nil {
		return nil, err
	}
	v := identityView{Installation: id.String(), PublicURL: a.PublicURL, Registration: "closed"}
	if a.Registration == "open" {
		v.Registration = a.Registration
	}
	return &identityOutput{v}, nil
}
