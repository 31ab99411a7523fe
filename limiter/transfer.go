package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/accounts"
	"weir/ledgers"
)

// beyond is the cost on a limit of an amount that no limit can have as its quota: the ledger is
// sure to refuse it.
const beyond = 1 << 62

// Transfer is money that one subject gives to another within a transfer-amount limit.
type Transfer struct {
	// Limit is the transfer-amount limit that the payer is held to; the money is its asset's.
	Limit string
	// From pays and To is paid: two subjects that were given money of the asset before.
	From, To string
	// Amount is the asset's decimal text, above 0; see [Asset.Parse].
	Amount string
	// ID names the transfer, required, and is scoped to the asset and From: sent again it is
	// answered the same, for ever, and made once.
	ID string
	// Members are further limits that are charged with the transfer, all or nothing. An empty
	// Subject is From. On a transfer-amount limit, which must be of the same asset, the cost is
	// the amount, and Cost is DefaultCost; on others it is as for a check.
	Members []Member
}

// transfer is a checked Transfer.
type transfer struct {
	accounts.Payment
	asked
	asset Asset
	// gone is why the transfer cannot be made, only recalled: one of its further limits is not
	// configured.
	gone error
}

// Transfer moves money, and charges the limits for it, in one step: both or neither. The decision
// is as of [Limiter.Check], its Transfer the receipt of the money. A denial has charged nothing and
// moved nothing, and its id stays denied.
//
// Errors, all with nothing moved: CodeAccountUnknown where a subject was never given money of the
// asset (the id may be sent again), CodeInsufficientFunds where the payer has too little,
// CodeCostExceedsQuota, CodeIDConflict where the id named another transfer, CodeQuotaTooLarge where
// the one that is paid would hold more than accounts.MaxMoney.
//
// What was transferred is replayed for ever, also where further limits have left the config since;
// the answer then leaves them out. Without the transfer-amount limit itself nobody knows of which
// asset the transfer was: that is CodeUnknownLimit, as is a further limit that is not configured
// where the id has named no transfer.
//
// Money fails closed, whatever the limits' policies are. CodeLedgerUnavailable says that the
// outcome is unknown: the transfer may have been made or be made later, it is never taken back, and
// the same id will tell.
func (l *Limiter) Transfer(ctx context.Context, t Transfer) (Decision, error) {
	p, err := l.resolveTransfer(t)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	ctx, cancel := detached(ctx, deadline(p.asked))
	defer cancel()
	decide := l.transfer
	if p.gone != nil {
		decide = l.transferred
	}
	decision, err := decide(ctx, p)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	l.metrics.decided(p.charges, decision)
	l.tryOut(ctx, p.asked, &decision)
	return decision, nil
}

// resolveTransfer checks a transfer and finds its asset and limits.
func (l *Limiter) resolveTransfer(t Transfer) (transfer, error) {
	err := checkID(t.ID, true)
	if err != nil {
		return transfer{}, err
	}
	err = checkParties(t)
	if err != nil {
		return transfer{}, err
	}
	if len(t.Members) >= MaxMembers {
		return transfer{}, badRequest("a transfer names 1 to %d limits, not %d",
			MaxMembers, 1+len(t.Members))
	}
	set := l.limits.Load()
	limit, _, err := set.find(t.Limit)
	if err != nil {
		return transfer{}, err
	}
	if limit.Kind != TransferAmount {
		return transfer{}, badRequest("limit %q is of kind %s: a transfer wants one of kind %s",
			limit.Name, limit.Kind, TransferAmount)
	}
	asset := set.assets[limit.Asset]
	amount, err := asset.parsePositive(t.Amount)
	if err != nil {
		return transfer{}, err
	}
	charges, gone, err := l.transferCharges(set, asset, amount, t)
	if err != nil {
		return transfer{}, err
	}
	known := slices.DeleteFunc(slices.Clone(charges), func(c charge) bool { return c.limit == nil })
	return transfer{
		Payment: accounts.Payment{
			Asset: asset.book(), From: t.From, To: t.To, Amount: amount, Charges: booked(charges),
		},
		asset: asset, asked: askedOf(t.ID, known), gone: gone,
	}, nil
}

// transferCharges returns what a transfer takes from limits, one charge for each account. Those of
// further limits that are not configured have none, and the first of them is why it is gone.
func (l *Limiter) transferCharges(set *Limits, asset Asset, amount ledgers.Amount, t Transfer,
) (charges []charge, gone, err error) {
	members := append([]Member{{Limit: t.Limit, Cost: DefaultCost}}, t.Members...)
	for _, m := range members {
		if m.Subject == "" {
			m.Subject = t.From
		}
		err = CheckSubject(m.Subject)
		if err != nil {
			return nil, nil, err
		}
		limit, book, missing := set.find(m.Limit)
		if missing != nil {
			gone = cmp.Or(gone, missing)
			lost := accounts.Limit{Name: m.Limit}
			charges = addGone(charges, l.book.NewCharge(lost, m.Subject, m.Cost))
			continue
		}
		cost, err := transferCost(limit, asset, amount, m.Cost)
		if err != nil {
			return nil, nil, err
		}
		charges, err = merge(charges, l.newCharge(limit, book, m.Subject, cost))
		if err != nil {
			return nil, nil, err
		}
	}
	return charges, gone, nil
}

// addGone adds a charge on a limit that is not configured. A cost that was not named is the amount
// or one call: its DefaultCost is accounts.Untold.
func addGone(charges []charge, c accounts.Charge) []charge {
	for i := range charges {
		if charges[i].Account() == c.Account() {
			charges[i].Amount = accounts.Untold // the sum was taken
			return charges
		}
	}
	return append(charges, charge{Charge: c})
}

// transferCost returns what a transfer takes from one limit.
func transferCost(limit *Limit, asset Asset, amount ledgers.Amount, cost uint64) (uint64, error) {
	if limit.Kind != TransferAmount {
		err := serves(limit, false, false) // slots would never come back
		if err != nil {
			return 0, err
		}
		return costOn(limit, cost)
	}
	switch {
	case limit.Asset != asset.Code:
		return 0, badRequest("limit %q is of asset %s: the transfer is of %s",
			limit.Name, limit.Asset, asset.Code)
	case cost != DefaultCost:
		return 0, badRequest("cost: on limit %q it is the transfer's amount", limit.Name)
	case amount.Cmp64(MaxCost) > 0:
		return beyond, nil
	default:
		return amount.Lo, nil
	}
}

func checkParties(t Transfer) error {
	if t.From == t.To {
		return badRequest("from and to are the same")
	}
	for _, party := range []struct{ field, subject string }{{"from", t.From}, {"to", t.To}} {
		err := CheckSubject(party.subject)
		e, bad := errors.AsType[*Error](err)
		if bad {
			return badRequest("%s: %s", party.field, e.Detail)
		}
	}
	return nil
}

// transferred answers a transfer that was made while all its limits were configured.
func (l *Limiter) transferred(ctx context.Context, p transfer) (Decision, error) {
	result, made, err := l.book.Paid(ctx, p.id, p.Payment)
	switch {
	case err != nil:
		return Decision{}, undecided(err, p.id)
	case !made:
		return Decision{}, p.gone
	case result.Outcome == accounts.Conflict:
		return Decision{}, spent(result.Outcome, p.id)
	default:
		return l.allowed(ctx, p.charges, result), nil
	}
}

// transfer makes a transfer. It bypasses the exhaustion memory: a denial from memory records no id,
// and of money every answer is to be the ledger's own. Nor does a policy have a say, and what the
// ledger does after its deadline stands: the same id tells.
func (l *Limiter) transfer(ctx context.Context, p transfer) (Decision, error) {
	result, err := l.book.Pay(ctx, p.id, p.Payment)
	if err != nil {
		return Decision{}, undecided(err, p.id)
	}
	switch result.Outcome {
	case accounts.Accepted:
		for _, c := range p.charges { // what is remembered of a greater cost has changed
			l.memory.forget(c.Account())
		}
		return l.allowed(ctx, p.charges, result), nil
	case accounts.Replayed:
		return l.allowed(ctx, p.charges, result), nil
	case accounts.Refused:
		return l.overLimit(ctx, p, result)
	default:
		return Decision{}, p.failed(result.Outcome).again(result, p.id)
	}
}

// again makes the error of an id that was refused before say so, and no more: what it lacked then
// need not be what is lacking today.
func (e *Error) again(result accounts.Result, id string) *Error {
	if result.Burnt {
		e.Detail = fmt.Sprintf("id %q was refused before and stays refused", id)
		e.NewIDRequired = true
	}
	return e
}

// overLimit answers a transfer that the ledger refused at one of its limits. Whatever the reading
// of the balances brings: a denial is never swallowed.
func (l *Limiter) overLimit(ctx context.Context, p transfer, result accounts.Result,
) (Decision, error) {
	read, err := l.read(ctx, p.charges, trueWaits)
	if err != nil {
		l.metrics.unread.Inc()
		d := deny(p.charges, make([]figures, len(p.charges)), result, result.Timestamp, 0)
		d.NewIDRequired = true
		return d, nil //nolint:nilerr // the ledger has decided; only the figures are missing
	}
	e := exceedsQuota(p.charges, read, true)
	if e != nil {
		e.Detail = fmt.Sprintf("the transfer of %s %s: %s",
			p.asset.Format(p.Amount), p.asset.Code, e.Detail)
		return Decision{}, e
	}
	// Of an id denied before only the denial is kept: what is said of it is as of today.
	if result.Burnt && !lacking(p.charges, read) {
		funds, _, err := l.book.Funds(ctx, p.Asset, p.From)
		if err == nil && funds.Cmp(p.Amount) < 0 {
			return Decision{}, p.failed(accounts.Insufficient)
		}
	}
	d := deny(p.charges, read, result, l.book.Now(), l.options.Lag)
	d.NewIDRequired = true
	return d, nil
}

// lacking reports whether any charge could not be made today.
func lacking(charges []charge, read []figures) bool {
	return slices.ContainsFunc(read, func(f figures) bool { return f.Quota == 0 }) ||
		firstLacking(charges, read, -1) >= 0
}

// failed is the error for a transfer that was not made, and not because of a limit.
func (p transfer) failed(outcome accounts.Outcome) *Error {
	switch outcome {
	case accounts.Insufficient:
		return &Error{
			Code: CodeInsufficientFunds, NewIDRequired: true,
			Detail: fmt.Sprintf("%q has less than %s %s",
				p.From, p.asset.Format(p.Amount), p.asset.Code),
		}
	case accounts.FromUnknown:
		return p.asset.unknown(p.From)
	case accounts.ToUnknown:
		return p.asset.unknown(p.To)
	case accounts.TooLarge:
		return p.asset.tooLarge(p.To)
	default:
		return spent(outcome, p.id)
	}
}
