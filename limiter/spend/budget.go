package spend

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
)

// Bounds of a plan.
const (
	// MaxTokens is the most tokens of one kind that one call may have.
	MaxTokens = 1<<28 - 1
	// MaxPrice is the highest price, in millionths of USD for a million tokens: 10,000 USD.
	MaxPrice = 10_000_000_000
	// MaxModelNumber is the highest number of a model.
	MaxModelNumber = math.MaxUint16
	// MaxHold is the longest time that a call may take.
	MaxHold = math.MaxUint16 * time.Second
	// MaxBudget is the most tokens, and the most millionths of USD, of a budget.
	MaxBudget = accounts.MaxQuota

	defaultHold    = 10 * time.Minute
	defaultCloseAt = 900_000
	// maxBudgetName leaves room for what the names of its limits end in.
	maxBudgetName = 57
	maxModelName  = 128
)

// Decimals is how many digits USD have behind the point: money is counted in millionths.
const Decimals = 6

// perMillion is what prices are for.
const perMillion = 1_000_000

// Budget is what each subject may spend.
type Budget struct {
	// Name is as a limit's, at most 57 characters. Its limits have the names name:tokens and name:usd.
	Name string
	// Tokens and USD, in millionths, are what a subject may spend in a period or a window; 0 counts it
	// and sets no bound, which one of them has to.
	Tokens, USD uint64
	// Window, Align and Timezone are as a [limiter.Limit]'s; without any, Align is day.
	Window          time.Duration
	Align, Timezone string
	// CloseAt is the part of the budget past which no call is authorized, in millionths; 0 means
	// 900,000. The rest absorbs what calls really take.
	CloseAt uint32
	// Hold is how long a call may take, whole seconds up to [MaxHold]; 0 means 10 minutes. What it
	// reserved then comes back by itself.
	Hold time.Duration
	// Deadline is how long a call waits for the ledger; 0 means 250 ms.
	Deadline time.Duration
}

// Model is a row of the price table.
type Model struct {
	// Name is the one that calls use, 1 to 128 bytes without control characters.
	Name string
	// Number stands for the model in the ledger, 1 to [MaxModelNumber]. It is never given to another.
	Number uint16
	// Input, Output and Cached are what a million tokens cost in millionths of USD, at most
	// [MaxPrice]. Cached is for the part of the input that the provider had in its cache. With all of
	// them 0 the model's calls count tokens only.
	Input, Output, Cached uint64
}

// cost returns what a call costs in millionths of USD, rounded up once.
func (m Model) cost(input, output, cached uint64) uint64 {
	sum := (input-cached)*m.Input + output*m.Output + cached*m.Cached
	return (sum + perMillion - 1) / perMillion
}

// free reports whether the model's calls cost nothing.
func (m Model) free() bool { return m.Input == 0 && m.Output == 0 && m.Cached == 0 }

// Plan is a checked set of budgets and prices. It never changes; a [Breaker] is given another one
// instead.
type Plan struct {
	budgets map[string]Budget
	byLimit map[string]string // budgets by the names of their limits
	order   []string
	models  map[string]Model
	numbers map[uint16]string
}

// NewPlan checks budgets and models. An error is a [limiter.LimitError], with the list in which the
// value stands.
func NewPlan(budgets []Budget, models []Model) (*Plan, error) {
	p := &Plan{
		budgets: make(map[string]Budget), byLimit: make(map[string]string),
		models: make(map[string]Model), numbers: make(map[uint16]string),
	}
	for i, b := range budgets {
		err := p.addBudget(b.complete())
		if err != nil {
			err.List, err.Index = "spend.budgets", i
			return nil, err
		}
	}
	for i, m := range models {
		err := p.addModel(m)
		if err != nil {
			err.List, err.Index = "spend.models", i
			return nil, err
		}
	}
	return p, nil
}

// complete fills in what a budget leaves out.
func (b Budget) complete() Budget {
	if b.Window == 0 && b.Align == "" {
		b.Align = "day"
	}
	if b.CloseAt == 0 {
		b.CloseAt = defaultCloseAt
	}
	if b.Hold == 0 {
		b.Hold = defaultHold
	}
	return b
}

func refuse(key, format string, args ...any) *limiter.LimitError {
	return &limiter.LimitError{Key: key, Reason: fmt.Sprintf(format, args...)}
}

func (p *Plan) addBudget(b Budget) *limiter.LimitError {
	_, twice := p.budgets[b.Name]
	switch {
	case b.Name == "" || len(b.Name) > maxBudgetName:
		return refuse("name", "%q: want 1 to %d characters", b.Name, maxBudgetName)
	case twice:
		return refuse("name", "%q is that of another budget", b.Name)
	case b.Tokens == 0 && b.USD == 0:
		return refuse("tokens", "want tokens or usd above 0, or both")
	case b.Tokens > MaxBudget:
		return refuse("tokens", "%d: want at most %d", b.Tokens, uint64(MaxBudget))
	case b.USD > MaxBudget:
		return refuse("usd", "want at most %d millionths", uint64(MaxBudget))
	case b.Hold < time.Second || b.Hold > MaxHold || b.Hold%time.Second != 0:
		return refuse("hold", "%v: want 1 to %d whole seconds", b.Hold, MaxHold/time.Second)
	}
	for _, l := range b.limits() { // the rules of limits say the rest
		_, err := limiter.NewRules(limiter.Rules{
			Limits: []limiter.Limit{l}, Assets: []limiter.Asset{usd()},
		})
		refused, ok := errors.AsType[*limiter.LimitError](err)
		switch {
		case ok:
			return refused
		case err != nil: // the ledger numbers that follow from the name
			return refuse("name", "%v", err)
		}
		p.byLimit[l.Name] = b.Name
	}
	p.budgets[b.Name] = b
	p.order = append(p.order, b.Name)
	return nil
}

func (p *Plan) addModel(m Model) *limiter.LimitError {
	_, twice := p.models[m.Name]
	other, taken := p.numbers[m.Number]
	switch {
	case m.Name == "" || len(m.Name) > maxModelName || !utf8.ValidString(m.Name) ||
		strings.ContainsFunc(m.Name, unicode.IsControl):
		return refuse("name", "%q: want 1 to %d bytes without control characters", m.Name, maxModelName)
	case twice:
		return refuse("name", "%q is that of another model", m.Name)
	case m.Number == 0:
		return refuse("number", "0: want 1 to %d", MaxModelNumber)
	case taken:
		return refuse("number", "%d is that of %q", m.Number, other)
	}
	for i, price := range []uint64{m.Input, m.Output, m.Cached} {
		if price > MaxPrice {
			return refuse([]string{"input", "output", "cached"}[i],
				"want at most %d USD for a million tokens", MaxPrice/perMillion)
		}
	}
	p.models[m.Name], p.numbers[m.Number] = m, m.Name
	return nil
}

// usd is what money is counted in.
func usd() limiter.Asset { return limiter.Asset{Code: "spend:USD", Scale: Decimals} }

// tokenSuffix and moneySuffix are what the names of a budget's limits end in.
const (
	tokenSuffix = ":tokens"
	moneySuffix = ":usd"
)

func (b Budget) tokenLimit() string { return b.Name + tokenSuffix }
func (b Budget) moneyLimit() string { return b.Name + moneySuffix }

// limits returns the two limits of a budget.
func (b Budget) limits() []limiter.Limit {
	tokens := limiter.Limit{
		Name: b.tokenLimit(), Kind: limiter.Budget, Quota: b.Tokens, Window: b.Window, Align: b.Align,
		Timezone: b.Timezone, CloseAt: b.CloseAt, Deadline: b.Deadline, Spend: true,
	}
	money := tokens
	money.Name, money.Quota, money.Asset = b.moneyLimit(), b.USD, usd().Code
	for _, l := range []*limiter.Limit{&tokens, &money} {
		if l.Quota == 0 { // only counted
			l.Quota, l.CloseAt = MaxBudget, 0
		}
	}
	return []limiter.Limit{tokens, money}
}

// Rules adds to rules what the plan's budgets are on the ledger.
func (p *Plan) Rules(rules limiter.Rules) limiter.Rules {
	if len(p.order) == 0 {
		return rules
	}
	rules.Assets = append(rules.Assets, usd())
	for _, name := range p.order {
		rules.Limits = append(rules.Limits, p.budgets[name].limits()...)
	}
	return rules
}

// Budgets returns the budgets in the order they were given, complete.
func (p *Plan) Budgets() []Budget {
	list := make([]Budget, len(p.order))
	for i, name := range p.order {
		list[i] = p.budgets[name]
	}
	return list
}

// budget finds a budget. The error is CodeUnknownLimit.
func (p *Plan) budget(name string) (Budget, error) {
	b, ok := p.budgets[name]
	if !ok {
		return Budget{}, &limiter.Error{
			Code: limiter.CodeUnknownLimit, Limit: name,
			Detail: fmt.Sprintf("there is no spend budget %q", name),
		}
	}
	return b, nil
}

// modelName returns the name of a model by its number, or the number.
func (p *Plan) modelName(number uint16) string {
	name, ok := p.numbers[number]
	if !ok {
		return fmt.Sprintf("model %d", number)
	}
	return name
}

// USD writes millionths of USD as a decimal number.
func USD(millionths uint64) string { return usd().Format(ledgers.AmountOf(millionths)) }
