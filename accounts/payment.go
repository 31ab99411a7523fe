package accounts

import (
	"context"
	"fmt"
	"math"
	"slices"

	"weir/ledgers"
)

// MaxMoney is the most that one subject may hold of an asset, and the most that one movement may
// name, in the asset's smallest units: 2^96-1. It is compared with balances read before the money
// moves, so that movements at the same time may pass it together; what a ledger can sum is 2^32
// times as much.
var MaxMoney = ledgers.Amount{Hi: math.MaxUint32, Lo: math.MaxUint64}

// Payment is money that one subject gives to another, and what that takes from limits.
type Payment struct {
	Asset Asset
	// From and To are the subjects, not the same.
	From, To string
	// Amount in the asset's smallest units, 1 to [MaxMoney].
	Amount ledgers.Amount
	// Charges are taken with the payment, all or nothing, but for those that are put aside. An account
	// may be named once.
	Charges []Charge
}

// Pay makes a payment: the charges and the movement of the money are one chain in the ledger, both
// or neither. The id is required, and scoped to the asset and the subject that pays. The same
// payment sent again is answered Replayed, for ever, whatever became of its charges, and another
// one under its id Conflict.
//
// Refused names the charge that lacked units, Insufficient says that the money lacked; where both
// lack it is Refused. FromUnknown, ToUnknown and TooLarge leave nothing behind, and the id may be
// sent again. After an error the payment may have been made or not; the same id tells.
func (b *Book) Pay(ctx context.Context, id string, p Payment) (Result, error) {
	a := b.payment(id, p)
	outcome, err := b.payable(ctx, p)
	if err != nil {
		return Result{}, err
	}
	if outcome == Accepted {
		return b.Charge(ctx, a)
	}
	result, found, err := b.Recall(ctx, a)
	if err != nil || found {
		return result, err
	}
	return Result{Outcome: outcome, Timestamp: b.Now()}, nil
}

// Untold as the amount of a payment's charge says that nobody can tell it any more; see
// [Book.Paid].
const Untold = math.MaxUint64

// Paid tells whether a payment was made under its id, without making it: Replayed, or Conflict
// where the id named another, and false where it named none. It is for payments of which a limit is
// not known any more: a charge may be [Untold], and is then what was taken of its account.
func (b *Book) Paid(ctx context.Context, id string, p Payment) (Result, bool, error) {
	first := b.namespace.MoneyTransfer(p.Asset.Code, p.From, id)
	ids := []ledgers.ID{first}
	for k := range p.Charges {
		ids = append(ids, b.namespace.MemberTransfer(first, k+1))
	}
	found, err := b.lookup(ctx, ids)
	if err != nil {
		return Result{}, false, err
	}
	made, ok := found[first]
	if !ok {
		return Result{}, false, nil
	}
	taken := make(map[ledgers.ID]uint64, len(found))
	for _, t := range found {
		if t.Code == CodeCharge {
			taken[t.DebitAccountID] = t.Amount.Lo
		}
	}
	p.Charges = slices.Clone(p.Charges)
	for i, c := range p.Charges {
		if c.Amount == Untold { // what is put aside is in no chain, and is one call unless it is told
			p.Charges[i].Amount = max(1, taken[c.account])
		}
	}
	result := Result{Outcome: Replayed, Transfer: first, Timestamp: made.Timestamp}
	if b.payment(id, p).fingerprint != made.UserData128 {
		result.Outcome = Conflict
	}
	return result, true, nil
}

// payment is the attempt to make a payment.
func (b *Book) payment(id string, p Payment) Attempt {
	sorted := inOrder(p.Charges)
	first := b.namespace.MoneyTransfer(p.Asset.Code, p.From, id)
	a := Attempt{
		First: first, keyed: true, charges: p.Charges, sorted: sorted,
		fingerprint: b.namespace.moneyFingerprint(
			"payment", p.Asset.Code, []string{p.From, p.To}, p.Amount, sorted),
		money: &ledgers.Transfer{
			ID:              first,
			DebitAccountID:  b.namespace.MoneyAccount(p.Asset.Code, p.From),
			CreditAccountID: b.namespace.MoneyAccount(p.Asset.Code, p.To),
			Amount:          p.Amount,
			Ledger:          p.Asset.Ledger,
			Code:            CodePayment,
		},
	}
	return a.taking()
}

// payable looks the accounts of a payment up before it is sent: a transfer that finds no account
// would burn its id. An account that exists does so for ever.
func (b *Book) payable(ctx context.Context, p Payment) (Outcome, error) {
	from := b.namespace.MoneyAccount(p.Asset.Code, p.From)
	to := b.namespace.MoneyAccount(p.Asset.Code, p.To)
	found, err := b.driver.LookupAccounts(ctx, []ledgers.ID{from, to})
	if err != nil {
		return 0, fmt.Errorf("look up accounts %s and %s: %w", from, to, err)
	}
	switch {
	case len(found) == 0 || found[0].ID != from:
		return FromUnknown, nil
	case len(found) == 1:
		return ToUnknown, nil
	case !fits(money(found[1]), p.Amount):
		return TooLarge, nil
	default:
		return Accepted, nil
	}
}

// money returns what a money account holds.
func money(a ledgers.Account) ledgers.Amount {
	return ledgers.SubtractFloor(a.CreditsPosted, a.DebitsPosted)
}

// fits reports whether an account that holds some money may be given more.
func fits(held, more ledgers.Amount) bool {
	sum, ok := ledgers.Sum(held, more)
	return ok && sum.Cmp(MaxMoney) <= 0
}

// Funds returns how much a subject has of an asset, in its smallest units; false if it was never
// given any.
func (b *Book) Funds(ctx context.Context, asset Asset, subject string,
) (ledgers.Amount, bool, error) {
	id := b.namespace.MoneyAccount(asset.Code, subject)
	found, err := b.driver.LookupAccounts(ctx, []ledgers.ID{id})
	if err != nil {
		return ledgers.Amount{}, false, fmt.Errorf("look up account %s: %w", id, err)
	}
	if len(found) == 0 {
		return ledgers.Amount{}, false, nil
	}
	return money(found[0]), true, nil
}

// Deposit gives a subject money from the asset's treasury; its first deposit opens its account. The
// id is required: the same deposit sent again is answered Replayed, for ever, and another one under
// its id Conflict. It is TooLarge where the subject would hold more than [MaxMoney].
func (b *Book) Deposit(ctx context.Context, id string, asset Asset, subject string,
	amount ledgers.Amount,
) (Result, error) {
	t := b.depositTransfer(CodeDeposit, id, asset, subject, amount)
	held, known, err := b.Funds(ctx, asset, subject)
	if err != nil {
		return Result{}, err
	}
	if !known {
		err = b.openMoney(ctx, asset, t)
		if err != nil {
			return Result{}, err
		}
	}
	if fits(held, amount) {
		return b.move(ctx, t)
	}
	result, found, err := b.sent(ctx, t)
	if err != nil || found {
		return result, err
	}
	return Result{Outcome: TooLarge, Timestamp: b.Now()}, nil
}

// Withdraw takes money from a subject into the asset's treasury. The id is as for [Book.Deposit],
// and shares its name space. It is Insufficient where the subject has less, and FromUnknown where
// it was never given any.
func (b *Book) Withdraw(ctx context.Context, id string, asset Asset, subject string,
	amount ledgers.Amount,
) (Result, error) {
	_, known, err := b.Funds(ctx, asset, subject)
	if err != nil {
		return Result{}, err
	}
	if !known { // so there never was a change that the id could name
		return Result{Outcome: FromUnknown, Timestamp: b.Now()}, nil
	}
	return b.move(ctx, b.depositTransfer(CodeWithdrawal, id, asset, subject, amount))
}

func (b *Book) depositTransfer(code uint16, id string, asset Asset, subject string,
	amount ledgers.Amount,
) ledgers.Transfer {
	t := ledgers.Transfer{
		ID:              b.namespace.DepositTransfer(asset.Code, subject, id),
		DebitAccountID:  b.namespace.TreasuryAccount(asset.Code),
		CreditAccountID: b.namespace.MoneyAccount(asset.Code, subject),
		Amount:          amount,
		UserData128: b.namespace.moneyFingerprint(
			codeNames[code], asset.Code, []string{subject}, amount, nil),
		Ledger: asset.Ledger,
		Code:   code,
	}
	if code == CodeWithdrawal {
		t.DebitAccountID, t.CreditAccountID = t.CreditAccountID, t.DebitAccountID
	}
	return t
}

// CheckAssets returns an [ErrAsset] where there is money of an asset on the ledger that is not on
// the same number or has another scale: all amounts would mean something else. It is to be called
// before assets are put in force. Treasuries that were opened before scales were written down have
// any. Errors are the ledger's besides.
func (b *Book) CheckAssets(ctx context.Context, assets []Asset) error {
	if len(assets) == 0 {
		return nil
	}
	_, err := b.treasuries(ctx, assets)
	return err
}

// treasuries returns those treasuries of assets that exist, all of which are as they should be.
func (b *Book) treasuries(ctx context.Context, assets []Asset) ([]ledgers.Account, error) {
	ids := make([]ledgers.ID, len(assets))
	byID := make(map[ledgers.ID]Asset, len(assets))
	for i, a := range assets {
		ids[i] = b.namespace.TreasuryAccount(a.Code)
		byID[ids[i]] = a
	}
	found, err := b.driver.LookupAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look up the treasuries of %d assets: %w", len(assets), err)
	}
	for _, treasury := range found {
		a, mark := byID[treasury.ID], treasury.UserData32
		switch {
		case treasury.Ledger != a.Ledger:
			return nil, fmt.Errorf("asset %q has ledger %d: %w, which is on ledger %d",
				a.Code, a.Ledger, ErrAsset, treasury.Ledger)
		case mark != 0 && mark != a.scaleMark():
			return nil, fmt.Errorf("asset %q has scale %d: %w, whose amounts have scale %d",
				a.Code, a.Scale, ErrAsset, mark-1)
		}
	}
	return found, nil
}

// openMoney creates the accounts of a deposit.
func (b *Book) openMoney(ctx context.Context, asset Asset, deposit ledgers.Transfer) error {
	batch := []ledgers.Account{{
		ID: deposit.CreditAccountID, Ledger: asset.Ledger, Code: AccountMoney,
		Flags: ledgers.DebitsMustNotExceedCredits,
	}}
	treasuries, err := b.treasuries(ctx, []Asset{asset})
	if err != nil {
		return err
	}
	if len(treasuries) == 0 {
		batch = append(batch, ledgers.Account{
			ID: deposit.DebitAccountID, Ledger: asset.Ledger, Code: AccountTreasury,
			UserData32: asset.scaleMark(),
		})
	}
	_, err = b.createAccounts(ctx, batch)
	return err
}

// move sends a deposit or a withdrawal.
func (b *Book) move(ctx context.Context, t ledgers.Transfer) (Result, error) {
	results, err := b.createTransfers(ctx, []ledgers.Transfer{t})
	if err != nil {
		return Result{}, err
	}
	switch r := results[0]; {
	case r.Status == ledgers.TransferCreated:
		return Result{Transfer: t.ID, Timestamp: r.Timestamp}, nil
	case r.Status == ledgers.TransferExceedsCredits, r.Status == ledgers.TransferIDAlreadyFailed:
		return Result{
			Outcome: Insufficient, Timestamp: r.Timestamp,
			Burnt: r.Status == ledgers.TransferIDAlreadyFailed,
		}, nil
	case r.Status.Exists():
		result, found, err := b.sent(ctx, t)
		if err != nil || found {
			return result, err
		}
	}
	return Result{}, fmt.Errorf("%w: %s for transfer %s", ErrStatus, results[0].Status, t.ID)
}
