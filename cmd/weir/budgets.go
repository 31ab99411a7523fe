package main

import (
	"fmt"
	"io"
	"time"

	"weir/accounts"
	"weir/limiter"
	"weir/limiter/spend"
)

// The keys of the spend budgets, of one of them, and of a row of the price table.
var (
	spendKeys  = []string{"budgets", "models"}
	budgetKeys = []string{
		"name", "tokens", "usd", "window", "align", "timezone", "close_at", "hold", "deadline",
	}
	modelKeys = []string{"name", "number", "input", "output", "cached"}
)

// usd is what spend budgets and prices are in.
var usd = limiter.Asset{Code: "USD", Scale: spend.Decimals}

// parseSpend reads the spend budgets and the price table.
func parseSpend(value any) (*spend.Plan, []spend.Model, error) {
	values, ok := value.(map[string]any)
	if value != nil && !ok {
		return nil, nil, fmt.Errorf("spend: want keys below it: budgets, models")
	}
	err := checkKeys("spend.", values, spendKeys)
	if err != nil {
		return nil, nil, err
	}
	budgets, err := parseList("spend.budgets", values["budgets"], budgetKeys, parseBudget)
	if err != nil {
		return nil, nil, err
	}
	models, err := parseList("spend.models", values["models"], modelKeys, parseModel)
	if err != nil {
		return nil, nil, err
	}
	plan, err := spend.NewPlan(budgets, models)
	switch {
	case err != nil:
		return nil, nil, err
	case len(budgets) > 0 && len(models) == 0:
		return nil, nil, fmt.Errorf("spend.models: there are none, so no call has a price")
	case len(budgets) == 0 && value != nil:
		return nil, nil, fmt.Errorf("spend.budgets: there are none, so there is nothing to spend")
	}
	return plan, models, nil
}

func parseBudget(r *valueReader) spend.Budget {
	r.need("name")
	return spend.Budget{
		Name:     read(r, "name", asText),
		Tokens:   read(r, "tokens", asTokens),
		USD:      read(r, "usd", asUSD),
		Window:   read(r, "window", asWindow),
		Align:    read(r, "align", asText),
		Timezone: read(r, "timezone", asTimezone),
		CloseAt:  read(r, "close_at", asMillionths),
		Hold:     read(r, "hold", asHold),
		Deadline: read(r, "deadline", asDeadline),
	}
}

func parseModel(r *valueReader) spend.Model {
	r.need("name", "number", "input", "output")
	m := spend.Model{
		Name:   read(r, "name", asText),
		Number: read(r, "number", asModelNumber),
		Input:  read(r, "input", asPrice),
		Output: read(r, "output", asPrice),
		Cached: read(r, "cached", asPrice),
	}
	if r.values["cached"] == nil { // a price that is not known is not taken for none
		m.Cached = m.Input
	}
	return m
}

// asTokens reads how many tokens a budget has.
func asTokens(value any) (uint64, error) {
	tokens, err := asWhole(value, accounts.MaxQuota)
	return tokens, aboveZero(tokens, err)
}

// asUSD reads how much money a budget has, in millionths.
func asUSD(value any) (uint64, error) {
	millionths, err := asMoney(value, usd)
	return millionths, aboveZero(millionths, err)
}

// aboveZero refuses 0, which could be taken for a ban and means no bound.
func aboveZero(amount uint64, err error) error {
	if err == nil && amount == 0 {
		return fmt.Errorf("0: leave it out to count it without a bound")
	}
	return err
}

func asModelNumber(value any) (uint16, error) {
	number, err := asWhole(value, spend.MaxModelNumber)
	return uint16(number), err
}

// asHold reads how long a call may take, which is not 0 where it is said. The plan bounds it.
func asHold(value any) (time.Duration, error) {
	hold, err := asDuration(value)
	if err == nil && hold < time.Second {
		err = fmt.Errorf("%v: want 1 to %d whole seconds", hold, spend.MaxHold/time.Second)
	}
	return hold, err
}

// asPrice reads what a million tokens cost, in millionths of USD. A number will do as well as text:
// its digits are kept as they are written.
func asPrice(value any) (uint64, error) {
	text, ok := value.(string)
	if digits, is := value.(number); is {
		text, ok = string(digits), true
	}
	millionths, err := usd.Parse(text)
	if !ok || err != nil {
		return 0, fmt.Errorf("%v: want USD for a million tokens, with at most %d digits behind the "+
			"point, as in 0.25", value, spend.Decimals)
	}
	if millionths.Cmp64(spend.MaxPrice) > 0 {
		return 0, fmt.Errorf("%s: want at most %s USD", text, spend.USD(spend.MaxPrice))
	}
	return millionths.Lo, nil
}

// printSpend shows the spend budgets and the price table of a config.
func printSpend(out io.Writer, plan *spend.Plan, models []spend.Model) error {
	var rows []string
	for _, b := range plan.Budgets() {
		tokens, money := "-", "-"
		if b.Tokens > 0 {
			tokens = fmt.Sprint(b.Tokens)
		}
		if b.USD > 0 {
			money = spend.USD(b.USD)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%v\t%v", b.Name, tokens, money,
			windowCell(b.Window, b.Align, b.Timezone), float64(b.CloseAt)/wholeBudget, b.Hold))
	}
	if len(rows) == 0 {
		return nil
	}
	err := printTable(out, "BUDGET\tTOKENS\tUSD\tWINDOW\tCLOSES AT\tHOLD", rows...)
	if err != nil {
		return err
	}
	rows = nil
	for _, m := range models {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%s\t%s\t%s", m.Name, m.Number, spend.USD(m.Input),
			spend.USD(m.Output), spend.USD(m.Cached)))
	}
	return printTable(out, "MODEL\tNUMBER\tINPUT\tOUTPUT\tCACHED", rows...)
}
