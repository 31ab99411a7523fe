package httpsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/limiter/credit"
)

// Fields says where in an answer the figures are: each a path of names with dots between them, such
// as balance.remaining. A part that is a number is the index where there is a list. An empty path
// is a figure that the provider does not tell.
//
// Amounts are numbers, or strings with a number in them; the gate counts whole units, and rounds up
// what remains: what has a fraction left is not exhausted. Flags are booleans; one that is missing
// or null is not unlimited, and says nothing about enforcement.
type Fields struct {
	// Granted and Usage are for show, and may be missing from an answer, if there is a Remaining.
	// Otherwise what remains is their difference.
	Granted   string
	Usage     string
	Remaining string
	// Unlimited says that nothing else matters; then no amount need be there.
	Unlimited string
	// Enforced is the enforcement flag of the subject.
	Enforced string
}

// paths are fields, parsed.
type paths struct{ granted, usage, remaining, unlimited, enforced []string }

func (f Fields) paths() (paths, error) {
	if f.Remaining == "" && (f.Granted == "" || f.Usage == "") {
		return paths{}, ErrFields
	}
	var p paths
	for _, field := range []struct {
		name, text string
		path       *[]string
	}{
		{"granted", f.Granted, &p.granted},
		{"usage", f.Usage, &p.usage},
		{"remaining", f.Remaining, &p.remaining},
		{"unlimited", f.Unlimited, &p.unlimited},
		{"enforced", f.Enforced, &p.enforced},
	} {
		if field.text == "" {
			continue
		}
		*field.path = strings.Split(field.text, ".")
		if slices.Contains(*field.path, "") {
			return paths{}, fmt.Errorf("%s %q: %w", field.name, field.text, ErrPath)
		}
	}
	return p, nil
}

// answer reads the body of an answer.
func (p paths) answer(body []byte) (credit.Answer, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var document any
	err := decoder.Decode(&document)
	if err != nil {
		return credit.Answer{}, fmt.Errorf("%w: not JSON", ErrAnswer)
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return credit.Answer{}, fmt.Errorf("%w: something follows the JSON", ErrAnswer)
	}
	a := credit.Answer{Balance: credit.Balance{Known: true}}
	unlimited, _, err := flag(document, p.unlimited)
	if err != nil {
		return credit.Answer{}, err
	}
	a.Balance.Unlimited = unlimited
	enforced, told, err := flag(document, p.enforced)
	switch {
	case err != nil:
		return credit.Answer{}, err
	case told && enforced:
		a.Flag = credit.FlagOn
	case told:
		a.Flag = credit.FlagOff
	}
	err = p.amounts(document, &a.Balance)
	if err != nil {
		return credit.Answer{}, err
	}
	return a, nil
}

// amounts reads the figures of a balance, of which what remains has to be there unless it is
// unlimited.
func (p paths) amounts(document any, b *credit.Balance) error {
	granted, hasGranted, err := amount(document, p.granted)
	if err != nil {
		return err
	}
	usage, hasUsage, err := amount(document, p.usage)
	if err != nil {
		return err
	}
	remaining, hasRemaining, err := amount(document, p.remaining)
	if err != nil {
		return err
	}
	if p.remaining == nil && hasGranted && hasUsage {
		remaining, hasRemaining = granted.minus(usage), true
	}
	if !hasRemaining && !b.Unlimited {
		return fmt.Errorf("%w: it does not say what remains", ErrAnswer)
	}
	b.Granted, b.Usage, b.Remaining = granted.units(), usage.units(), remaining.units()
	return nil
}

// number is an amount as the provider wrote it: whole where it can be, so that no digit is lost.
type number struct {
	whole    int64
	fraction float64 // the amount, if isFloat
	isFloat  bool
}

func (n number) float() float64 {
	if n.isFloat {
		return n.fraction
	}
	return float64(n.whole)
}

// minus returns n less m.
func (n number) minus(m number) number {
	difference := n.whole - m.whole
	overflows := (n.whole < 0) != (m.whole < 0) && (difference < 0) != (n.whole < 0)
	if n.isFloat || m.isFloat || overflows {
		return number{fraction: n.float() - m.float(), isFloat: true}
	}
	return number{whole: difference}
}

// units rounds up, so that what is above 0 stays so, and what is too large for an int64 becomes the
// largest: some say so that there is no limit.
func (n number) units() int64 {
	if !n.isFloat {
		return n.whole
	}
	up := math.Ceil(n.fraction)
	switch {
	case up >= math.MaxInt64:
		return math.MaxInt64
	case up <= math.MinInt64:
		return math.MinInt64
	}
	return int64(up)
}

// amount reads the number at a path; false if there is none.
func amount(document any, path []string) (number, bool, error) {
	value := at(document, path)
	var text string
	switch v := value.(type) {
	case nil:
		return number{}, false, nil
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		return number{}, false, fmt.Errorf("%w: %s is no number", ErrAnswer, strings.Join(path, "."))
	}
	whole, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return number{whole: whole}, true, nil
	}
	fraction, err := strconv.ParseFloat(text, 64)
	tooLarge := errors.Is(err, strconv.ErrRange) && math.IsInf(fraction, 0)
	if err != nil && !tooLarge || err == nil && (math.IsInf(fraction, 0) || math.IsNaN(fraction)) {
		return number{}, false, fmt.Errorf("%w: %s is no number", ErrAnswer, strings.Join(path, "."))
	}
	return number{fraction: fraction, isFloat: true}, true, nil
}

// flag reads the boolean at a path, and says whether there is one.
func flag(document any, path []string) (bool, bool, error) {
	switch v := at(document, path).(type) {
	case nil:
		return false, false, nil
	case bool:
		return v, true, nil
	default:
		return false, false, fmt.Errorf("%w: %s is no boolean", ErrAnswer, strings.Join(path, "."))
	}
}

// at returns what is at a path of a document, nil if there is nothing.
func at(document any, path []string) any {
	if path == nil {
		return nil
	}
	value := document
	for _, part := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}
