package httpapi

import (
	"context"
	"slices"
)

func (a *API) memberRoutes() {
	const tag = "access"
	put(a, tag, "/contexts/{name}/members/{actor}", "put-member", "Give an actor exactly these roles", a.putMember, 200)
	remove(a, tag, "/contexts/{name}/members/{actor}", "delete-member",
		"Take an actor out of a context", a.deleteMember)
}

// rolesBody is what an actor may in a context.
type rolesBody struct {
	Roles []string `json:"roles" minItems:"1" maxItems:"3" enum:"admin,executor,reader"`
}

// memberView is one member.
type memberView struct {
	Actor string   `json:"actor"`
	Roles []string `json:"roles"`
}

type memberOutput struct{ Body memberView }

type putMemberInput struct {
	Name  name   `path:"name"`
	Actor string `path:"actor" maxLength:"200"`
	Trial
	Body rolesBody
}

// putMember gives an actor exactly these roles, without rewriting the lists; 409 if the last admin would go.
func (a *API) putMember(ctx context.Context, in *putMemberInput) (*memberOutput, error) {
	slices.Sort(in.Body.Roles)
	roles := slices.Compact(in.Body.Roles)
	if _, err := a.Store.SetMember(ctx, by(ctx, ""), string(in.Name), in.Actor, roles); err != nil {
		return nil, err
	}
	a.forget()
	return &memberOutput{memberView{in.Actor, roles}}, nil
}

type deleteMemberInput struct {
	Name  name   `path:"name"`
	Actor string `path:"actor" maxLength:"200"`
	Trial
}

// deleteMember takes an actor out of a context; 409 for the last admin.
func (a *API) deleteMember(ctx context.Context, in *deleteMemberInput) (*struct{}, error) {
	_, err := a.Store.SetMember(ctx, by(ctx, ""), string(in.Name), in.Actor, nil)
	a.forget()
	return nil, err
}
