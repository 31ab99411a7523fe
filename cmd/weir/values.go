package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	"weir/accounts"
	"weir/limiter"
)

// number is a number of a YAML file, as it is written there. YAML reads 010 as 8, and 0x10 and
// 1_000 as numbers too: nobody can tell whether that was meant.
type number string

// written is a value of a YAML file, in which numbers keep their digits.
type written struct{ value any }

// UnmarshalYAML reads a value and all that is in it. That aliases come to an end has to be known
// before.
func (w *written) UnmarshalYAML(node *yaml.Node) error {
	switch node.Kind {
	case yaml.MappingNode:
		values := map[string]written{}
		err := node.Decode(&values)
		w.value = plainMap(values)
		return err
	case yaml.SequenceNode:
		var list []written
		err := node.Decode(&list)
		plain := make([]any, len(list))
		for i, item := range list {
			plain[i] = item.value
		}
		w.value = plain
		return err
	default:
		tag := node.ShortTag()
		if tag == "!!int" || tag == "!!float" {
			w.value = number(node.Value)
			return nil
		}
		return node.Decode(&w.value)
	}
}

func plainMap(values map[string]written) map[string]any {
	plain := make(map[string]any, len(values))
	for key, item := range values {
		plain[key] = item.value
	}
	return plain
}

// parseYAML returns the keys and values of a YAML document.
func parseYAML(text []byte) (map[string]any, error) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	err := documents.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = documents.Decode(&another)
	if !errors.Is(err, io.EOF) { // what follows would be passed over
		return nil, fmt.Errorf("want one YAML document, not several")
	}
	// The first pass finds what YAML does not allow, aliases without end among it.
	err = document.Decode(&map[string]any{})
	if err != nil {
		return nil, err
	}
	var values map[string]written
	err = document.Decode(&values)
	if err != nil {
		return nil, err
	}
	return plainMap(values), nil
}

// asText reads a text.
func asText(value any) (string, error) {
	text, ok := value.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("%v: want text: put it in quotes", value)
	case text == "":
		return "", fmt.Errorf("is empty")
	}
	return text, nil
}

// asSwitch reads on or off.
func asSwitch(value any) (bool, error) {
	switch value {
	case "on", true:
		return true, nil
	case "off", false:
		return false, nil
	}
	return false, fmt.Errorf("%v: want on or off", value)
}

// digits are how a whole number is written: a leading 0 is an octal number to some.
var digits = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// asDigits returns the digits of a whole number, which a file or a text may hold, or nothing.
func asDigits(value any) string {
	text := ""
	switch v := value.(type) {
	case number:
		text = string(v)
	case string:
		text = v
	}
	if !digits.MatchString(text) {
		return ""
	}
	return text
}

// asWhole reads a whole number.
func asWhole(value any, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(asDigits(value), 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%v: want a whole number from 0 to %d, in digits only", value, most)
	}
	return n, nil
}

// asDuration reads a duration such as 60s, 1h30m or 30d. A number without a unit is refused, but
// for 0: nobody can tell whether 60 means seconds.
func asDuration(value any) (time.Duration, error) {
	text, ok := value.(string)
	if !ok {
		text = fmt.Sprint(value)
	}
	_, err := strconv.ParseFloat(text, 64)
	if err == nil && text != "0" {
		return 0, fmt.Errorf("%s: has no unit: write %ss for seconds", text, text)
	}
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	if rest == "" {
		rest = "0"
	}
	const mostDays = 1<<63/uint64(day) - 1
	n, err := strconv.ParseUint(days, 10, 64)
	d, err2 := time.ParseDuration(rest)
	sum := time.Duration(n)*day + d
	if err != nil || err2 != nil || n > mostDays || sum < d || hasDays && d < 0 {
		return 0, fmt.Errorf("%q: want a duration, as in 60s, 24h or 30d", text)
	}
	return sum, nil
}

// asQuota reads a number of units; where they are bytes, a size such as 10MB (10^7) or 1GiB (2^30)
// will do, if it comes to whole bytes.
func asQuota(value any, kind limiter.Kind) (uint64, error) {
	text, ok := value.(string)
	unit := strings.TrimLeft(text, "0123456789.")
	if !ok || unit == "" && !strings.Contains(text, ".") {
		return asWhole(value, accounts.MaxQuota)
	}
	if kind != limiter.Bandwidth && unit == "" {
		return 0, fmt.Errorf("%q: want a whole number, or an asset whose amount it is", text)
	}
	if kind != limiter.Bandwidth {
		return 0, fmt.Errorf("%q: want a whole number; only %s has sizes", text, limiter.Bandwidth)
	}
	number, isNumber := new(big.Rat).SetString(strings.TrimSuffix(text, unit))
	scale, err := humanize.ParseBigBytes("1" + unit)
	if !isNumber || err != nil || strings.HasPrefix(unit, ",") {
		return 0, fmt.Errorf("%q: want a number of bytes, or a size as in 10MB or 1GiB", text)
	}
	number.Mul(number, new(big.Rat).SetInt(scale))
	if !number.IsInt() {
		return 0, fmt.Errorf("%q: does not come to whole bytes", text)
	}
	if !number.Num().IsUint64() || number.Num().Uint64() > accounts.MaxQuota {
		return 0, fmt.Errorf("%q: want at most %d bytes", text, uint64(accounts.MaxQuota))
	}
	return number.Num().Uint64(), nil
}
