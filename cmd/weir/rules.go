package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/accounts"
	"weir/limiter"
	"weir/limiter/spend"
)

// The keys of a limit, of an asset, of a group and of a member of one.
var (
	limitKeys = []string{
		"name", "kind", "quota", "window", "align", "timezone", "close_at", "asset", "shadow",
		"on_failure", "deadline", "ledger", "remaining",
	}
	assetKeys  = []string{"code", "scale", "ledger"}
	groupKeys  = []string{"name", "limits"}
	memberKeys = []string{"limit", "fields"}
)

// parseRules reads the lists of limits, of assets and of groups, and adds the limits of the spend
// budgets.
func parseRules(file map[string]any, revision uint32, plan *spend.Plan) (*limiter.Limits, error) {
	rules := limiter.Rules{Revision: revision}
	var err error
	rules.Assets, err = parseList("assets", file["assets"], assetKeys, parseAsset)
	if err != nil {
		return nil, err
	}
	rules.Limits, err = parseList("limits", file["limits"], limitKeys,
		func(r *valueReader) limiter.Limit { return parseLimit(r, rules.Assets) })
	if err != nil {
		return nil, err
	}
	if len(rules.Limits) == 0 && len(plan.Budgets()) == 0 {
		return nil, fmt.Errorf("limits: there are none, so there is nothing to decide")
	}
	rules.Groups, err = parseList("groups", file["groups"], groupKeys, parseGroup)
	if err != nil {
		return nil, err
	}
	set, err := limiter.NewRules(plan.Rules(rules))
	return set, inWords(err, file)
}

// inWords says what is wrong with rules in terms of the file.
func inWords(err error, file map[string]any) error {
	if errors.Is(err, accounts.ErrLedgerNumber) {
		return fmt.Errorf("%w: set another by the key ledger, or another name", err)
	}
	refused, ok := errors.AsType[*limiter.LimitError](err)
	if !ok {
		return err
	}
	assets, _ := file["assets"].([]any)
	list, _ := file["limits"].([]any)
	switch beyond := refused.Index - len(list); {
	case refused.List == "assets" && refused.Index == len(assets): // what budgets count comes last
		return fmt.Errorf("assets: %s: spend budgets count one of this name", refused.Reason)
	case refused.List != "":
		return err
	case beyond >= 0: // so do their limits, of which each has two
		return &limiter.LimitError{
			List: "spend.budgets", Index: beyond / 2, Key: refused.Key, Reason: refused.Reason,
		}
	}
	values, _ := list[refused.Index].(map[string]any)
	if values[refused.Key] == nil { // its zero cannot be
		return &limiter.LimitError{Index: refused.Index, Key: refused.Key, Reason: "is missing"}
	}
	return err
}

// parseList reads a list of things that have keys and values.
func parseList[T any](name string, value any, keys []string, parse func(*valueReader) T,
) ([]T, error) {
	list, ok := value.([]any)
	if value != nil && !ok {
		return nil, fmt.Errorf("%s: want a list, each item with %s", name, strings.Join(keys, ", "))
	}
	parsed := make([]T, len(list))
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", name, i)
		values, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: want keys and values: %s", at, strings.Join(keys, ", "))
		}
		err := checkKeys(at+".", values, keys)
		if err != nil {
			return nil, err
		}
		r := &valueReader{at: at, values: values}
		parsed[i] = parse(r)
		if r.err != nil {
			return nil, r.err
		}
	}
	return parsed, nil
}

// valueReader reads the values of one thing in a list. It remembers the first error.
type valueReader struct {
	at     string // the path of the thing
	values map[string]any
	err    error
}

// need notes the first of these keys that has no value.
func (r *valueReader) need(keys ...string) {
	for _, key := range keys {
		if r.values[key] == nil {
			r.note(key, fmt.Errorf("is missing"))
		}
	}
}

func (r *valueReader) note(key string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s.%s: %w", r.at, key, err)
	}
}

// read reads the value of a key, if there is one, as something.
func read[T any](r *valueReader, key string, as func(any) (T, error)) T {
	var none T
	if r.values[key] == nil {
		return none
	}
	value, err := as(r.values[key])
	r.note(key, err)
	return value
}

func parseAsset(r *valueReader) limiter.Asset {
	r.need("code", "scale")
	return limiter.Asset{
		Code:   read(r, "code", asText),
		Scale:  int(read(r, "scale", asScale)),
		Ledger: read(r, "ledger", asLedger),
	}
}

// parseLimit reads a limit that may count one of these assets.
func parseLimit(r *valueReader, assets []limiter.Asset) limiter.Limit {
	r.need("name", "kind", "quota")
	l := limiter.Limit{
		Name:  read(r, "name", asText),
		Kind:  limiter.Kind(read(r, "kind", asText)),
		Asset: read(r, "asset", asText),
	}
	if l.Kind == limiter.TransferAmount {
		r.need("asset")
	}
	counted := slices.IndexFunc(assets, func(a limiter.Asset) bool { return a.Code == l.Asset })
	if l.Asset != "" && counted < 0 { // which says what the quota is
		r.note("asset", fmt.Errorf("there is no asset %q", l.Asset))
	}
	l.Quota = read(r, "quota", func(value any) (uint64, error) {
		if counted >= 0 {
			return asMoney(value, assets[counted])
		}
		return asQuota(value, l.Kind)
	})
	l.Window = read(r, "window", asWindow)
	l.Align = read(r, "align", asText)
	l.Timezone = read(r, "timezone", asTimezone)
	l.CloseAt = read(r, "close_at", asMillionths)
	l.Shadow = read(r, "shadow", asSwitch)
	l.OnFailure = limiter.Policy(read(r, "on_failure", asText))
	l.Deadline = read(r, "deadline", asDeadline)
	l.Ledger = read(r, "ledger", asLedger)
	l.RemainingOff = r.values["remaining"] != nil && !read(r, "remaining", asSwitch)
	return l
}

func parseGroup(r *valueReader) limiter.Group {
	r.need("name", "limits")
	g := limiter.Group{Name: read(r, "name", asText)}
	members, err := parseList(r.at+".limits", r.values["limits"], memberKeys,
		func(r *valueReader) limiter.GroupMember {
			r.need("limit", "fields")
			return limiter.GroupMember{Limit: read(r, "limit", asText), Fields: read(r, "fields", asTexts)}
		})
	if r.err == nil {
		r.err = err // it has its path
	}
	g.Limits = members
	return g
}

// asTexts reads a list of texts.
func asTexts(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%v: want a list, as in [user]", value)
	}
	texts := make([]string, len(list))
	for i, item := range list {
		text, err := asText(item)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	return texts, nil
}

// asMoney reads an amount of an asset in its smallest units. It has to be text: nobody can tell
// whether a number without a point means those.
func asMoney(value any, asset limiter.Asset) (uint64, error) {
	text, ok := value.(string)
	if !ok {
		return 0, fmt.Errorf("%v: want an amount of %s in quotes, as in %q", value, asset.Code, "10")
	}
	units, err := asset.Parse(text)
	if refused, ok := errors.AsType[*limiter.Error](err); ok {
		return 0, fmt.Errorf("%s", refused.Detail)
	}
	if units.Cmp64(accounts.MaxQuota) > 0 {
		return 0, fmt.Errorf("%s: want at most %d of the asset's smallest units", text,
			uint64(accounts.MaxQuota))
	}
	return units.Lo, nil
}

// asScale reads how many digits an asset has behind the point. The limiter bounds it.
func asScale(value any) (uint64, error) { return asWhole(value, limiter.MaxScale) }

// asLedger reads the number of a ledger.
func asLedger(value any) (uint32, error) {
	number, err := asWhole(value, 1<<32-1)
	if err == nil && number == 0 {
		err = fmt.Errorf("0: want 1 to 4294967295, or leave it out")
	}
	return uint32(number), err
}

// asWindow reads a window, which is not 0 where there is one.
func asWindow(value any) (time.Duration, error) {
	window, err := asDuration(value)
	if err == nil && window == 0 {
		err = fmt.Errorf("0s: want 1 s to 4,294,967,295 s")
	}
	return window, err
}

func asDeadline(value any) (time.Duration, error) {
	deadline, err := asDuration(value)
	if err == nil && deadline < time.Millisecond {
		err = fmt.Errorf("%v: want at least 1ms", deadline)
	}
	return deadline, err
}

// asTimezone reads the name of a time zone that this program knows.
func asTimezone(value any) (string, error) {
	name, err := asText(value)
	if err != nil {
		return "", err
	}
	_, err = accounts.NewCalendar("day", name)
	if err != nil {
		return "", fmt.Errorf("%q: there is none: want a name such as Europe/Berlin", name)
	}
	return name, nil
}

// wholeBudget is 1 in millionths.
const wholeBudget = 1_000_000

// fraction is how a part of 1 is written, to six places.
var fraction = regexp.MustCompile(`^(0|1)(?:\.([0-9]{1,6}))?$`)

// asMillionths reads a part of 1, above 0, in millionths.
func asMillionths(value any) (uint32, error) {
	text := fmt.Sprint(value)
	parts := fraction.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%s: want a part of 1 with at most 6 places, as in 0.95", text)
	}
	millionths, err := strconv.ParseUint(parts[1]+(parts[2] + "000000")[:6], 10, 32)
	if err != nil || millionths == 0 || millionths > wholeBudget {
		return 0, fmt.Errorf("%s: want more than 0, at most 1", text)
	}
	return uint32(millionths), nil
}
