package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/accounts"
	"weir/api/wire"
	"weir/limiter"
)

func newLimitsCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "List the limits in force",
		Args:  wantArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			weir, err := a.client()
			if err != nil {
				return err
			}
			limits, err := weir.Limits(cmd.Context())
			if err != nil {
				return a.failure(err)
			}
			rows := make([]string, len(limits))
			for i, l := range limits {
				rows[i] = fmt.Sprintf("%s\t%s\t%v\t%d", l.Name, l.Kind, l.Quota, l.WindowSeconds)
			}
			return a.print(cmd.OutOrStdout(), wire.Limits{Limits: limits},
				"LIMIT\tKIND\tQUOTA\tWINDOW S", rows...)
		},
	}
	a.addFlags(cmd)
	return cmd
}

// parseLimits reads the list of limits.
func parseLimits(value any, revision uint32) (*limiter.Limits, error) {
	list, ok := value.([]any)
	if value != nil && !ok {
		return nil, fmt.Errorf("limits: want a list, each limit with %s", strings.Join(limitKeys, ", "))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("limits: there are none, so there is nothing to decide")
	}
	limits := make([]limiter.Limit, len(list))
	for i, item := range list {
		at := fmt.Sprintf("limits[%d]", i)
		values, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: want keys and values: %s", at, strings.Join(limitKeys, ", "))
		}
		err := checkKeys(at+".", values, limitKeys)
		if err != nil {
			return nil, err
		}
		key := ""
		limits[i], key, err = parseLimit(values)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", at, key, err)
		}
	}
	set, err := limiter.NewLimits(revision, limits)
	if errors.Is(err, accounts.ErrLedgerNumber) {
		return nil, fmt.Errorf("limits: %w: set another by the key ledger", err)
	}
	return set, err
}

// parseLimit reads one limit. With an error comes the key that it is about.
func parseLimit(values map[string]any) (l limiter.Limit, key string, err error) {
	for _, key = range []string{"name", "kind", "quota", "window"} {
		if values[key] == nil {
			return l, key, fmt.Errorf("is missing")
		}
	}
	l.Name, err = asText(values["name"])
	if err != nil {
		return l, "name", err
	}
	kind, err := asText(values["kind"])
	if err != nil {
		return l, "kind", err
	}
	l.Kind = limiter.Kind(kind)
	l.Quota, err = asQuota(values["quota"], l.Kind)
	if err != nil {
		return l, "quota", err
	}
	l.Window, err = asDuration(values["window"])
	if err != nil {
		return l, "window", err
	}
	if values["ledger"] != nil {
		number, err := asWhole(values["ledger"], 1<<32-1)
		if err == nil && number == 0 {
			err = fmt.Errorf("0: want 1 to 4294967295, or leave it out")
		}
		if err != nil {
			return l, "ledger", err
		}
		l.Ledger = uint32(number)
	}
	if values["on_failure"] != nil {
		policy, err := asText(values["on_failure"])
		if err != nil {
			return l, "on_failure", err
		}
		l.OnFailure = limiter.Policy(policy)
	}
	if values["deadline"] != nil {
		l.Deadline, err = asDuration(values["deadline"])
		if err == nil && l.Deadline < time.Millisecond {
			err = fmt.Errorf("%v: want at least 1ms", l.Deadline)
		}
		if err != nil {
			return l, "deadline", err
		}
	}
	if values["remaining"] != nil {
		on, err := asSwitch(values["remaining"])
		if err != nil {
			return l, "remaining", err
		}
		l.RemainingOff = !on
	}
	return l, "", nil
}
