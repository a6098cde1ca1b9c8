package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/twin"
)

// rule is what an operation wants of who calls it.
type rule struct {
	least level
	where place
	own   bool // an executor may do it to what it posted itself
	post  bool // to a key that is narrowed it is a post; else a GET is a read, and the rest is to operate
	self  bool // it is about the actor {id}, who may do it (S5.2), as system admins may; to others there is none
	opens bool // with open registration: one that registers itself may do it, and an actor for what is not there yet
}

// place says which context an operation is about.
type place int

const (
	byHeader place = iota // Postern-Context, or what it means where that is missing
	byPath                // the context that {name} names
	atSystem              // the context system
	nowhere               // none
)

// access says for each operation which callers may use it. A test compares its operations with the contract. A caller
// without a role in a context gets 404 for everything in it.
var access = map[string]rule{
	"get-livez":     {least: nobody, where: nowhere},
	"get-readyz":    {least: nobody, where: nowhere},
	"list-machines": {least: anyone, where: nowhere},
	"get-machine":   {least: anyone, where: nowhere},
	"get-limits":    {least: anyone, where: nowhere},
	"get-now":       {least: readers},

	"get-machine-states": {least: readers},

	"move-clock": {least: systemAdmins}, // in dev, or with --debug-clock; the heights are of domains of the context

	"list-transactions":          {least: readers},
	"get-transaction":            {least: readers},
	"get-transaction-by-uid":     {least: readers},
	"get-transaction-history":    {least: readers},
	"get-transaction-attempts":   {least: readers},
	"get-transaction-why":        {least: readers},
	"get-transaction-why-by-uid": {least: readers},
	"stream-transactions":        {least: readers},
	"post-transaction":           {least: executors, post: true},
	"post-transactions":          {least: executors, post: true},
	"cancel-transaction":         {least: executors, own: true},
	"retry-transaction":          {least: executors, own: true},
	"redrive-transaction":        {least: executors, own: true},
	"suspend-transaction":        {least: admins},
	"resume-transaction":         {least: admins},
	"move-transaction":           {least: admins},
	"abandon-transaction":        {least: admins},
	"was-done-transaction":       {least: admins},
	"was-not-done-transaction":   {least: admins},
	"cancel-transactions":        {least: admins},
	"retry-transactions":         {least: admins},
	"redrive-transactions":       {least: admins},
	"suspend-transactions":       {least: admins},
	"resume-transactions":        {least: admins},
	"move-transactions":          {least: admins},
	"was-done-transactions":      {least: admins},
	"was-not-done-transactions":  {least: admins},

	"list-queues":    {least: readers},
	"get-queue":      {least: readers},
	"get-queue-line": {least: readers},
	"get-queue-why":  {least: readers},
	"put-queue":      {least: admins},
	"patch-queue":    {least: admins},
	"delete-queue":   {least: admins},
	"pause-queue":    {least: admins},
	"resume-queue":   {least: admins},
	"drain-queue":    {least: admins},
	"purge-queue":    {least: admins},

	"list-pools":  {least: readers},
	"get-pool":    {least: readers},
	"put-pool":    {least: admins},
	"patch-pool":  {least: admins},
	"delete-pool": {least: admins},
	"pause-pool":  {least: admins},
	"resume-pool": {least: admins},

	"list-senders":   {least: readers},
	"get-sender":     {least: readers},
	"put-sender":     {least: admins},
	"patch-sender":   {least: admins},
	"delete-sender":  {least: admins},
	"pause-sender":   {least: admins},
	"drain-sender":   {least: admins},
	"resume-sender":  {least: admins},
	"purge-sender":   {least: admins},
	"block-sender":   {least: admins},
	"unblock-sender": {least: admins},

	"list-dispatchers":  {least: readers},
	"get-dispatcher":    {least: readers},
	"put-dispatcher":    {least: admins},
	"patch-dispatcher":  {least: admins},
	"delete-dispatcher": {least: admins},
	"pause-dispatcher":  {least: admins},
	"resume-dispatcher": {least: admins},
	"check-dispatcher":  {least: admins},
	"drain-dispatcher":  {least: admins},
	"purge-dispatcher":  {least: admins},

	"list-subscriptions":     {least: readers},
	"get-subscription":       {least: readers},
	"feed-subscription":      {least: readers},
	"stream-subscription":    {least: readers},
	"ack-subscription":       {least: executors},
	"put-subscription":       {least: admins},
	"patch-subscription":     {least: admins},
	"delete-subscription":    {least: admins},
	"enable-subscription":    {least: admins},
	"disable-subscription":   {least: admins},
	"test-subscription":      {least: admins},
	"rotate-secret":          {least: admins},
	"redeliver-subscription": {least: admins},
	"list-deliveries":        {least: readers},
	"get-delivery":           {least: readers},
	"retry-delivery":         {least: admins},

	"list-domains":       {least: readers},
	"get-domain":         {least: readers},
	"put-domain":         {least: admins},
	"patch-domain":       {least: admins},
	"delete-domain":      {least: admins},
	"put-domain-height":  {least: admins},
	"pause-domain":       {least: admins},
	"resume-domain":      {least: admins},
	"release-domain":     {least: admins},
	"post-intent":        {least: executors, post: true},
	"post-intents":       {least: executors, post: true},
	"list-intents":       {least: readers},
	"list-works":         {least: readers},
	"get-intent":         {least: readers},
	"get-intent-history": {least: readers},
	"get-intent-why":     {least: readers},
	"get-domain-why":     {least: readers},
	"resume-intent":      {least: executors, own: true},
	"cancel-intent":      {least: executors, own: true},
	"release-intent":     {least: admins},

	"list-processors":   {least: readers},
	"get-processor":     {least: readers},
	"put-processor":     {least: admins},
	"patch-processor":   {least: admins},
	"delete-processor":  {least: admins},
	"put-height":        {least: admins},
	"tick-processor":    {least: readers}, // by anyone (S4.4)
	"retry-execution":   {least: readers}, // by anyone (S4.14)
	"list-batches":      {least: readers},
	"get-batch":         {least: readers},
	"get-batch-history": {least: readers},
	"get-batch-why":     {least: readers},
	"pause-processor":   {least: executors}, // of these, the one who owns the processor (S4.9)
	"resume-processor":  {least: executors},
	"enqueue-batch":     {least: executors, post: true},
	"insert-batch":      {least: executors, post: true},
	"evict-batch":       {least: executors},
	"post-callback":     {least: executors, post: true}, // whom the function names (S4.8)
	"put-peer":          {least: admins},
	"delete-peer":       {least: admins},
	"deliver-batch":     {least: nobody, where: nowhere}, // the peer signs this call and ask-batch (S4.14)
	"ask-batch":         {least: nobody, where: nowhere},
	"get-peer-health":   {least: nobody, where: nowhere},

	"list-authorizations":   {least: readers},
	"get-authorization":     {least: readers},
	"post-authorization":    {least: admins},
	"put-authorization":     {least: admins},
	"patch-authorization":   {least: admins},
	"list-executions":       {least: readers},
	"put-grant":             {least: admins},
	"delete-authorization":  {least: admins},
	"enable-authorization":  {least: admins},
	"disable-authorization": {least: admins},
	"send-batch":            {least: executors, post: true}, // whom its mode names (S4.11)

	"list-sources":   {least: readers},
	"get-source":     {least: readers},
	"get-source-why": {least: readers},
	"put-source":     {least: admins},
	"patch-source":   {least: admins},
	"delete-source":  {least: admins},
	"pause-source":   {least: admins},
	"resume-source":  {least: admins},
	"rewind-source":  {least: admins},
	"list-events":    {least: readers},
	"get-event":      {least: readers},
	"push-events":    {least: executors, post: true},
	"list-tools":     {least: readers},
	"get-tool":       {least: readers},
	"put-tool":       {least: admins},
	"patch-tool":     {least: admins},
	"delete-tool":    {least: admins},
	"refresh-tool":   {least: admins},
	"check-tool":     {least: admins},
	"invoke-tool":    {least: admins},
	"validate-walk":  {least: anyone, where: nowhere},

	"get-event-history":       {least: readers},
	"get-event-why":           {least: readers},
	"redrive-event":           {least: admins},
	"redrive-events":          {least: admins},
	"list-channels":           {least: readers},
	"get-channel":             {least: readers},
	"put-channel":             {least: admins},
	"patch-channel":           {least: admins},
	"delete-channel":          {least: admins},
	"block-channel":           {least: admins},
	"unblock-channel":         {least: admins},
	"list-channel-messages":   {least: readers},
	"send-channel-message":    {least: executors, post: true},
	"receive-channel-message": {least: executors},
	"ack-channel-message":     {least: executors},
	"nack-channel-message":    {least: executors},

	"post-flow":        {least: admins, post: true},
	"validate-flow":    {least: admins},
	"list-flows":       {least: readers},
	"get-flow":         {least: readers},
	"get-flow-history": {least: readers},
	"get-flow-dag":     {least: readers},
	"get-flow-why":     {least: readers},
	"patch-flow":       {least: admins}, // of these, the one who made it
	"start-flow":       {least: admins},
	"post-flow-jobs":   {least: admins, post: true},
	"delete-flow-job":  {least: admins},
	"cancel-flow":      {least: admins},
	"redrive-flow":     {least: admins, post: true},

	"meet-prerequisites": {least: executors},

	"post-job":        {least: admins, post: true},
	"list-jobs":       {least: readers},
	"get-job":         {least: readers},
	"get-job-history": {least: readers},
	"get-job-tries":   {least: readers},
	"get-job-why":     {least: readers},
	"get-job-inputs":  {least: readers},
	"get-job-logs":    {least: readers},
	"cancel-job":      {least: admins},
	"replay-job":      {least: executors}, // it shows secrets, as to a runner
	"list-runners":    {least: readers},
	"get-runner":      {least: readers},
	"put-runner":      {least: admins},
	"patch-runner":    {least: admins},
	"delete-runner":   {least: admins},
	"pause-runner":    {least: admins},
	"resume-runner":   {least: admins},
	"register-runner": {least: executors},
	"claim-jobs":      {least: executors},
	"renew-runner":    {least: executors},
	"log-try":         {least: executors},
	"finish-try":      {least: executors},
	"fail-try":        {least: executors},

	"post-message":        {least: admins, post: true}, // and in the context that it is for, a role there
	"list-messages":       {least: readers},
	"get-message":         {least: readers},
	"get-message-history": {least: readers},
	"get-message-why":     {least: readers},
	"get-message-logs":    {least: readers},
	"cancel-message":      {least: admins},
	"receive-messages":    {least: executors},
	"ack-message":         {least: executors},
	"processed-message":   {least: executors},
	"reply-message":       {least: executors},
	"reject-message":      {least: executors},
	"list-context-peers":  {least: readers},
	"get-context-peer":    {least: readers},
	"put-context-peer":    {least: admins},
	"patch-context-peer":  {least: admins},
	"delete-context-peer": {least: admins},
	"rotate-peer-secret":  {least: admins},
	"check-context-peer":  {least: admins},
	"get-door-health":     {least: nobody, where: nowhere},
	"greet-peer":          {least: nobody, where: nowhere}, // the peer signs this call, and those below
	"deliver-message":     {least: nobody, where: nowhere},
	"follow-messages":     {least: nobody, where: nowhere},
	"coordinate-domains":  {least: nobody, where: nowhere},

	"apply": {least: admins}, // and of each document what its PUT wants, in its context

	"list-contexts":  {least: anyone, where: nowhere}, // those in which one has a role
	"get-context":    {least: readers, where: byPath},
	"put-context":    {least: admins, where: byPath, opens: true}, // a new one: a system admin
	"patch-context":  {least: admins, where: byPath},
	"delete-context": {least: systemAdmins, where: byPath},
	"pause-context":  {least: admins, where: byPath},
	"resume-context": {least: admins, where: byPath},
	"drain-context":  {least: admins, where: byPath},
	"purge-context":  {least: admins, where: byPath},
	"put-member":     {least: admins, where: byPath},
	"delete-member":  {least: admins, where: byPath},

	"list-actors":  {least: systemAdmins, where: atSystem},
	"get-actor":    {least: anyone, where: atSystem, self: true},
	"post-actor":   {least: systemAdmins, where: atSystem, opens: true},
	"patch-actor":  {least: anyone, where: atSystem, self: true}, // its oidc: system admins
	"delete-actor": {least: systemAdmins, where: atSystem},

	"post-actor-key":   {least: anyone, where: atSystem, self: true},
	"delete-actor-key": {least: anyone, where: atSystem, self: true},

	"get-identity": {least: anyone, where: nowhere},

	"list-nodes":  {least: systemAdmins, where: atSystem},
	"get-node":    {least: systemAdmins, where: atSystem},
	"drain-node":  {least: systemAdmins, where: atSystem},
	"resume-node": {least: systemAdmins, where: atSystem},
	"bury-node":   {least: systemAdmins, where: atSystem},

	"get-quarantine":       {least: systemAdmins, where: atSystem},
	"enter-quarantine":     {least: systemAdmins, where: atSystem},
	"reconcile-quarantine": {least: systemAdmins, where: atSystem},
	"release-quarantine":   {least: systemAdmins, where: atSystem},
	"announce-identity":    {least: systemAdmins, where: atSystem},

	"list-api-keys":  {least: admins},
	"get-api-key":    {least: admins},
	"post-api-key":   {least: admins},
	"delete-api-key": {least: admins},
	"rotate-api-key": {least: admins},
	"list-audit":     {least: admins},
}

// authorise finds the context of a request, and refuses what the table does not allow.
func (a *API) authorise(ctx huma.Context, next func(huma.Context)) {
	scopeOf(ctx.Context()).op = ctx.Operation()
	if access[ctx.Operation().OperationID].where == byHeader && ctx.Header("Postern-Context") == everyContext {
		a.everywhere(ctx, next)
		return
	}
	if err := a.allowed(ctx); err != nil {
		r, w := humachi.Unwrap(ctx)
		a.refuse(w, r, err)
		return
	}
	if visitOf(ctx.Context()).Ask {
		ctx.SetStatus(http.StatusNoContent)
		return
	}
	next(ctx)
}

func (a *API) allowed(ctx huma.Context) error {
	op := ctx.Operation()
	r, known := access[op.OperationID]
	if !known { // a test keeps it from happening; if it does, every caller is refused
		return fault.New(fault.Internal, "internal", "operation %s is missing from the table of access", op.OperationID)
	}
	if r.least == nobody {
		return nil
	}
	s := scopeOf(ctx.Context())
	if err := a.place(s, r, ctx); err != nil {
		return err
	}
	if err := a.permitted(s, r); err != nil {
		return err
	}
	has := s.who.in(s.Context, a.system())
	if err := s.who.narrowed(r, op.Method); err != nil {
		return err
	}
	if id := ctx.Param("id"); r.self && id != s.Actor && has < systemAdmins {
		return fault.New(fault.NotFound, "not_found", "no actor %q", fault.Clip(id))
	}
	if r.own && has < admins {
		return a.owns(ctx, s)
	}
	return nil
}

// permitted refuses a caller whom a rule does not let in, in the context that the request is about. A caller without a
// role there is told that there is no such context.
func (a *API) permitted(s *scope, r rule) error {
	has := s.who.in(s.Context, a.system())
	switch {
	case s.opened:
		return nil
	case has <= anyone && r.where == byHeader, has <= anyone && r.where == byPath:
		return noContext(s.named)
	case has < r.least:
		return fault.New(fault.Forbidden, "forbidden", "%s may not do this: it is for %s", has, orMore(r.least))
	}
	return nil
}

// stillMay says why a request that has waited, or a stream, may not go on, nil if it may: its credential is revoked or
// over, or its actor has lost in this context the role that the operation wants. Who wants to hand something out behind
// a wait asks before. It reads nothing that this process has read within a second.
func (a *API) stillMay(ctx context.Context) error {
	s := scopeOf(ctx)
	if s.anew == nil { // no credential was needed
		return nil
	}
	who, err := s.anew()
	if err != nil {
		return err
	}
	if s.Context != nil && a.Store.ContextByID(s.Context.ID) == nil {
		return noContext(s.named)
	}
	r := access[s.op.OperationID]
	now := *s
	now.who = who
	if err := a.permitted(&now, r); err != nil {
		return err
	}
	return who.narrowed(r, s.op.Method)
}

// narrowed refuses what an API key is not for.
func (who *principal) narrowed(r rule, method string) error {
	what := r.verb(method)
	if len(who.only) == 0 || slices.Contains(who.only, what) {
		return nil
	}
	return fault.New(fault.Forbidden, "forbidden", "this API key may only %s: this call needs one that may %s",
		strings.Join(who.only, " and "), what)
}

func orMore(l level) string {
	if l == systemAdmins {
		return "an admin of the context system"
	}
	return "the role " + l.String() + " or higher"
}

// verb is what a key's only must contain.
func (r rule) verb(method string) string {
	switch {
	case method == http.MethodGet:
		return "read"
	case r.post:
		return "post"
	}
	return "operate"
}

// place finds the context that the request is about.
func (a *API) place(s *scope, r rule, ctx huma.Context) error {
	where := r.where
	switch where {
	case nowhere:
		return nil
	case atSystem:
		s.named = pg.System
	case byPath:
		s.named = ctx.Param("name")
	case byHeader:
		s.named = ctx.Header("Postern-Context")
		if s.named == "" || twin.Planted("context_not_heeded") {
			s.named = a.home(s.who)
		}
	}
	s.Context = a.Store.Context(s.named)
	switch {
	case s.who.in(nil, a.system()) == systemAdmins && (s.Context != nil || where == byPath):
	case r.opens && a.Registration == "open" && s.who.itself() && (s.Context == nil || where == atSystem):
		s.opened = true
	case s.Context == nil:
		return noContext(s.named)
	}
	return nil
}

// home is the context of who names none: that of a key, the only one of an actor, else default.
func (a *API) home(who *principal) string {
	id := who.home
	if len(who.roles) == 1 && who.in(nil, a.system()) < systemAdmins {
		for only := range who.roles {
			id = only
		}
	}
	if c := a.Store.ContextByID(id); c != nil {
		return c.Name
	}
	return "default"
}

func noContext(name string) error {
	return fault.New(fault.NotFound, "not_found", "no context %q", fault.Clip(name))
}

// owns refuses an executor what others have posted. What names nothing is left to the handler.
func (a *API) owns(ctx huma.Context, s *scope) error {
	what, actor, err := a.postedBy(ctx, s)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	case actor != s.Actor:
		return fault.New(fault.Forbidden, "forbidden", "%s was posted by %q: an executor may do this to what it "+
			"posted itself, others need the role admin", what, fault.Clip(actor))
	}
	return nil
}

// postedBy returns which actor posted the transaction or the intent that a request is about.
func (a *API) postedBy(ctx huma.Context, s *scope) (what, actor string, err error) {
	if strings.HasPrefix(ctx.Operation().Path, "/domains/") {
		i, err := a.Store.Domains.Intent(ctx.Context(), s.Context.ID, ctx.Param("name"), ctx.Param("id"))
		if err != nil {
			return "", "", err
		}
		return "intent " + i.ID, i.Actor, nil
	}
	id, err := outbox.ParseID(ctx.Param("id"))
	if err != nil {
		return "", "", fault.New(fault.NotFound, "not_found", "no transaction %q", fault.Clip(ctx.Param("id")))
	}
	actor, err = a.Store.PostedBy(ctx.Context(), s.Context.ID, id)
	return "transaction " + id.String(), actor, err
}
