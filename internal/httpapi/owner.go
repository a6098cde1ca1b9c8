package httpapi

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
)

// putProcessor stores a processor, and refuses an owner who does not act in its context: a mistyped name would close
// its lines to everybody. Names of actors and keys are drawn when these are made, so that no owner can be named before.
// An owner that stays is not looked at: its key may have been revoked since.
func (a *API) putProcessor(ctx context.Context, by db.By, p *batches.Processor, version int64) (bool, error) {
	if p.Owner != "" && p.Owner != by.Actor {
		acts, err := a.actsHere(ctx, by.Context, p.Owner)
		if err != nil {
			return false, err
		}
		if !acts {
			if err := a.ownsAlready(ctx, by, p); err != nil {
				return false, err
			}
		}
	}
	return a.Store.Batches.PutProcessor(ctx, by, *p, version)
}

// ownsAlready refuses the owner of a processor unless it is the one that the processor has.
func (a *API) ownsAlready(ctx context.Context, by db.By, p *batches.Processor) error {
	have, err := a.Store.Batches.Processor(ctx, by.Context, p.Name)
	switch {
	case err == nil && have.Owner == p.Owner:
		return nil
	case err != nil && fault.KindOf(err) != fault.NotFound:
		return err
	}
	return fault.At("/owner", "owner %q does not act in this context: want the actor of one of its keys, such as %q "+
		"(GET /api-keys), or an actor that is its member (GET /contexts/{name}); or leave it out, and a new processor "+
		"belongs to you, %q",
		fault.Clip(p.Owner), keyActor("PREFIX"), fault.Clip(by.Actor))
}

// actsHere says whether an actor may do something in a context: a key of the context that has not expired, a member of
// it, an admin of system, or, where no credentials are wanted, the developer.
func (a *API) actsHere(ctx context.Context, contextID int32, actor string) (bool, error) {
	if a.Auth == "none" && actor == a.developer().actor {
		return true, nil
	}
	if prefix, ok := strings.CutPrefix(actor, keyActor("")); ok {
		k, err := a.Store.Actors.UseKey(ctx, prefix)
		return k != nil && (k.ContextID == contextID || k.ContextID == a.system() && k.Role == pg.Admin), err
	}
	roles, err := a.Store.RolesOf(ctx, actor)
	return roles[contextID] != "" || roles[a.system()] == pg.Admin, err
}
