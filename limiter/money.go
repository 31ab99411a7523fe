package limiter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"
	"lukechampine.com/uint128"

	"weir/accounts"
	"weir/ledgers"
)

// MaxScale is the most digits that an asset may have behind the point.
const MaxScale = 18

// maxAmountText bounds the text of an amount: 2^96-1 has 29 digits, besides a point.
const maxAmountText = 29 + 1 + MaxScale

// maxAmountBits is the size of accounts.MaxMoney.
const maxAmountBits = 96

// Asset is a kind of money. Subjects hold it in accounts of their own, and transfer-amount limits
// say how much of it a subject may pass on.
type Asset struct {
	// Code identifies the asset: 1 to 64 of A-Z a-z 0-9 . _ : -
	Code string
	// Scale is how many digits an amount may have behind the point, 0 to [MaxScale]: with 2, the
	// unit is a hundredth. It never changes once there is money; see [Limiter.CheckAssets].
	Scale int
	// Ledger is the number of the asset's ledger; 0 derives it from the code.
	Ledger uint32
}

// check returns what is wrong with an asset, or empty texts.
func (a Asset) check() (key, reason string) {
	switch {
	case !validName(a.Code):
		return "code", fmt.Sprintf("%q: want 1 to %d of A-Z a-z 0-9 . _ : -", a.Code, maxName)
	case a.Scale < 0 || a.Scale > MaxScale:
		return "scale", fmt.Sprintf("%d: want 0 to %d", a.Scale, MaxScale)
	}
	return "", ""
}

// addAssets checks assets and adds them to a set.
func (s *Limits) addAssets(assets []Asset) error {
	s.assets = make(map[string]Asset, len(assets))
	for i, a := range assets {
		key, reason := a.check()
		_, twice := s.assets[a.Code]
		if key == "" && twice {
			key, reason = "code", fmt.Sprintf("%q is that of another asset", a.Code)
		}
		if key != "" {
			return &LimitError{List: "assets", Index: i, Key: key, Reason: reason}
		}
		if a.Ledger == 0 {
			a.Ledger = accounts.AssetLedger(a.Code)
		}
		s.assets[a.Code] = a
		s.money = append(s.money, a)
	}
	return nil
}

// moneyBooks returns what the books know of a set's assets.
func (s *Limits) moneyBooks() []accounts.Asset {
	books := make([]accounts.Asset, len(s.money))
	for i, a := range s.money {
		books[i] = a.book()
	}
	return books
}

// AssetOf returns the asset that a limit counts, nil where its units are not money, and whether
// there is such a limit.
func (s *Limits) AssetOf(limit string) (*Asset, bool) {
	i, ok := s.byName[limit]
	if !ok {
		return nil, false
	}
	return s.list[i].asset, true
}

// Assets returns the assets in the order they were given. The slice is the caller's.
func (s *Limits) Assets() []Asset { return append([]Asset(nil), s.money...) }

// book returns what the books know of an asset.
func (a Asset) book() accounts.Asset {
	return accounts.Asset{Code: a.Code, Ledger: a.Ledger, Scale: a.Scale}
}

// CheckAssets returns an accounts.ErrAsset where the ledger has money of one of the limits' assets,
// and with another scale or on another ledger; or the ledger's error. It is to be called before the
// limits are put in force.
func (l *Limiter) CheckAssets(ctx context.Context, limits *Limits) error {
	return l.book.CheckAssets(ctx, limits.moneyBooks())
}

// Parse reads an amount of the asset, such as "999.99", in its smallest units. It is exact: digits,
// and where the asset has any, a point and at most as many digits as its scale. No sign, exponent,
// blank or leading zero, and at most accounts.MaxMoney. Errors: CodeBadRequest.
func (a Asset) Parse(text string) (ledgers.Amount, error) {
	whole, fraction, point := strings.Cut(text, ".")
	switch {
	case len(text) > maxAmountText:
		return ledgers.Amount{}, badRequest("amount has %d characters: want at most %d",
			len(text), maxAmountText)
	case !digits(whole), point && !digits(fraction), len(whole) > 1 && whole[0] == '0':
		return ledgers.Amount{}, badRequest("amount %q: want a decimal number such as %q",
			text, a.Format(ledgers.AmountOf(1)))
	case len(fraction) > a.Scale:
		return ledgers.Amount{}, badRequest("amount %q: %s has at most %d digits behind the point",
			text, a.Code, a.Scale)
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		return ledgers.Amount{}, badRequest("amount %q: want a decimal number", text)
	}
	units := d.Shift(int32(a.Scale)).BigInt()
	if units.BitLen() > maxAmountBits {
		return ledgers.Amount{}, badRequest("amount %s: want at most %s",
			text, a.Format(accounts.MaxMoney))
	}
	return uint128.FromBig(units), nil
}

// Format writes an amount in the asset's smallest units as [Asset.Parse] reads it, with all digits
// of the scale.
func (a Asset) Format(units ledgers.Amount) string {
	scale := int32(a.Scale)
	return decimal.NewFromBigInt(units.Big(), -scale).StringFixed(scale)
}

// parsePositive reads an amount that is not 0.
func (a Asset) parsePositive(text string) (ledgers.Amount, error) {
	amount, err := a.Parse(text)
	if err != nil {
		return ledgers.Amount{}, err
	}
	if amount.IsZero() {
		return ledgers.Amount{}, badRequest("amount: want more than 0")
	}
	return amount, nil
}

// text writes units as the limit counts them, an asset's as its decimal text.
func (l Limit) text(units uint64) string {
	if l.asset == nil {
		return strconv.FormatUint(units, 10)
	}
	return l.asset.Format(ledgers.AmountOf(units))
}

// digits reports whether a text is one digit or more, and nothing else.
func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

func (a Asset) unknown(subject string) *Error {
	return &Error{
		Code:   CodeAccountUnknown,
		Detail: fmt.Sprintf("%q was never given any %s", subject, a.Code),
	}
}

func (a Asset) tooLarge(subject string) *Error {
	return &Error{
		Code: CodeQuotaTooLarge,
		Detail: fmt.Sprintf("%q would hold more than %s %s",
			subject, a.Format(accounts.MaxMoney), a.Code),
	}
}

// Movement is money that an admin gives to a subject or takes from it.
type Movement struct {
	Asset   string
	Subject string
	// Amount is the asset's decimal text, above 0; see [Asset.Parse].
	Amount string
	// ID names the movement, required, and is scoped to the asset and the subject; deposits and
	// withdrawals share it. Sent again it is answered the same, for ever, and made once.
	ID string
}

// Moved is the answer to a [Movement] that was made.
type Moved struct {
	Transfer ledgers.ID
	Replayed bool
	// At is the ledger's time at which the movement was made.
	At time.Time
	// Balance is today's, after the movement, as the asset's decimal text.
	Balance string
}

// Deposit gives money to a subject; the first deposit opens its account. Errors: CodeIDConflict,
// CodeQuotaTooLarge where the subject would hold more than accounts.MaxMoney.
// CodeLedgerUnavailable is as for [Limiter.Transfer].
func (l *Limiter) Deposit(ctx context.Context, m Movement) (Moved, error) {
	return l.move(ctx, m, l.book.Deposit, func(asset Asset, outcome accounts.Outcome) *Error {
		switch outcome {
		case accounts.TooLarge:
			return asset.tooLarge(m.Subject)
		case accounts.Insufficient: // a withdrawal was refused under the id
			return spent(accounts.Conflict, m.ID)
		default:
			return spent(outcome, m.ID)
		}
	})
}

// Withdraw takes money from a subject. Errors: CodeIDConflict, CodeAccountUnknown,
// CodeInsufficientFunds where the subject has less, with nothing taken. CodeLedgerUnavailable is as
// for [Limiter.Transfer].
func (l *Limiter) Withdraw(ctx context.Context, m Movement) (Moved, error) {
	return l.move(ctx, m, l.book.Withdraw, func(asset Asset, outcome accounts.Outcome) *Error {
		switch outcome {
		case accounts.FromUnknown:
			return asset.unknown(m.Subject)
		case accounts.Insufficient:
			return &Error{
				Code: CodeInsufficientFunds, NewIDRequired: true,
				Detail: fmt.Sprintf("%q has less than %s %s", m.Subject, m.Amount, asset.Code),
			}
		default:
			return spent(outcome, m.ID)
		}
	})
}

func (l *Limiter) move(ctx context.Context, m Movement,
	move func(context.Context, string, accounts.Asset, string, ledgers.Amount,
	) (accounts.Result, error),
	failed func(Asset, accounts.Outcome) *Error,
) (Moved, error) {
	err := checkID(m.ID, true)
	if err != nil {
		return Moved{}, err
	}
	asset, err := l.asset(m.Asset, m.Subject)
	if err != nil {
		return Moved{}, err
	}
	amount, err := asset.parsePositive(m.Amount)
	if err != nil {
		return Moved{}, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	result, err := move(ctx, m.ID, asset.book(), m.Subject, amount)
	if err != nil {
		return Moved{}, undecided(err, m.ID)
	}
	if result.Outcome != accounts.Accepted && result.Outcome != accounts.Replayed {
		return Moved{}, failed(asset, result.Outcome).again(result, m.ID)
	}
	funds, _, err := l.book.Funds(ctx, asset.book(), m.Subject)
	if err != nil {
		return Moved{}, undecided(err, m.ID)
	}
	return Moved{
		Transfer: result.Transfer, Replayed: result.Outcome == accounts.Replayed,
		At: instant(result.Timestamp), Balance: asset.Format(funds),
	}, nil
}

// Funds is what a subject has of an asset.
type Funds struct {
	Asset   string
	Subject string
	// Balance is the asset's decimal text.
	Balance string
}

// Funds reads what a subject has of an asset. CodeAccountUnknown: it was never given any.
func (l *Limiter) Funds(ctx context.Context, asset, subject string) (Funds, error) {
	a, err := l.asset(asset, subject)
	if err != nil {
		return Funds{}, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	units, known, err := l.book.Funds(ctx, a.book(), subject)
	if err != nil {
		return Funds{}, failure(err)
	}
	if !known {
		return Funds{}, a.unknown(subject)
	}
	return Funds{Asset: asset, Subject: subject, Balance: a.Format(units)}, nil
}

// asset finds an asset for a subject.
func (l *Limiter) asset(code, subject string) (Asset, error) {
	asset, ok := l.limits.Load().assets[code]
	if !ok {
		return Asset{}, badRequest("there is no asset %q", code)
	}
	return asset, CheckSubject(subject)
}
