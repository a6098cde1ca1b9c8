// Package domain is a kit to write the service of a domain with. Several installations of Postern agree on who orders
// the intents of a domain, so that each is carried out once. The service knows the rules. Postern calls it over HTTP.
//
// Its functions have no effects outside: each may be called again under the same key, and the same key has to get the
// same answer. The public transaction that Prepare makes is the effect.
//
//	service := domain.Service[Payment]{
//		Assemble: func(ctx context.Context, a domain.Assembly[Payment]) (domain.Assembled, error) {
//			if a.Data.Cents > 100 {
//				return domain.Assembled{}, domain.Revert("more than a dollar")
//			}
//			return domain.Assembled{Assembled: a.Data, Plan: []domain.Attestation{
//				{Name: "owner", Type: domain.Sign, Parties: []string{a.Intent.Party}},
//			}}, nil
//		},
//		Sign:    func(_ context.Context, t domain.Ticket) (any, error) { return mine.Sign(t.Hash), nil },
//		Endorse: func(_ context.Context, t domain.Ticket) (any, error) { return "yes", nil },
//		Prepare: func(_ context.Context, p domain.Preparation) (domain.Public, error) {
//			return domain.Public{Type: "PAY", Data: p.Assembled}, nil
//		},
//	}
//	http.ListenAndServe("127.0.0.1:9000", service.Handler())
package domain
