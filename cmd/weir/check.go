package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/api/wire"
)

func newCheckCommand() *cobra.Command {
	var a asker
	var cost, id string
	var limits []string
	cmd := &cobra.Command{
		Use:   "check {LIMIT | --limit NAME[=COST]...} SUBJECT",
		Short: "Decide one request and charge it",
		Long: `Decide one request and charge it: exit with 0 if it is allowed, 1 if it is denied.

With --limit, several limits are decided as one: all are charged or none.`,
		Example: `  weir check api-requests alice
  weir check egress alice --cost 52000 --id upload-7
  weir check --limit api-requests --limit egress=52000 alice`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := checkRequest(args, limits, cost, id)
			if err != nil {
				return err
			}
			return a.check(cmd, request)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&cost, "cost", "", "`units` to take (default 1 on request-rate limits)")
	cmd.Flags().StringVar(&id, "id", "",
		"`name` of this attempt: sent again it is charged once and answered the same")
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "a limit and perhaps a cost, `NAME[=COST]`")
	return cmd
}

// checkRequest makes a request of what the command line says.
func checkRequest(args, limits []string, cost, id string) (wire.CheckRequest, error) {
	request := wire.CheckRequest{Subject: args[len(args)-1], ID: id}
	switch {
	case len(limits) == 0 && len(args) != 2:
		return request, fmt.Errorf("check: want LIMIT SUBJECT, or --limit NAME and SUBJECT")
	case len(limits) > 0 && len(args) != 1:
		return request, fmt.Errorf("check: with --limit, want only SUBJECT")
	case len(limits) > 0 && cost != "":
		return request, fmt.Errorf("check: with --limit, the cost goes there: --limit NAME=COST")
	}
	var err error
	if len(limits) == 0 {
		request.Limit = args[0]
		if cost != "" {
			request.Cost, err = parseAmount("--cost", cost)
		}
		return request, err
	}
	for _, limit := range limits {
		name, cost, given := strings.Cut(limit, "=")
		member := wire.Member{Limit: name}
		if given {
			member.Cost, err = parseAmount("--limit "+name, cost)
		}
		if err != nil {
			return request, err
		}
		request.Limits = append(request.Limits, member)
	}
	return request, nil
}

func (a *asker) check(cmd *cobra.Command, request wire.CheckRequest) error {
	weir, err := a.client()
	if err != nil {
		return err
	}
	decision, err := weir.Check(cmd.Context(), request)
	if err != nil {
		return a.failure(err)
	}
	if !a.json {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), verdict(&decision))
		if err != nil {
			return err
		}
	}
	rows := make([]string, len(decision.Limits))
	for i, s := range decision.Limits {
		rows[i] = fmt.Sprintf("%s\t%s\t%v\t%s\t%s\t%s", s.Limit, s.Subject, s.Cost,
			orDash(s.Quota), orDash(s.Remaining), resetCell(s.ResetSeconds, s.ResetsAt))
	}
	err = a.print(cmd.OutOrStdout(), decision,
		"LIMIT\tSUBJECT\tCOST\tQUOTA\tREMAINING\tRESET S", rows...)
	if err == nil && !decision.Allowed {
		return statusError(exitNo)
	}
	return err
}

// verdict says a decision in one line.
func verdict(d *wire.Decision) string {
	words := []string{"denied"}
	if d.Allowed {
		words[0] = "allowed"
	}
	if d.Transfer != "" {
		words = append(words, "transfer "+d.Transfer)
	}
	if d.Replayed {
		words = append(words, "replayed")
	}
	if d.Degraded {
		words = append(words, "degraded: the ledger did not answer")
	}
	if d.RetryAfterMS > 0 {
		words = append(words, fmt.Sprintf("retry after %v",
			time.Duration(d.RetryAfterMS)*time.Millisecond))
	}
	if d.NewIDRequired {
		words = append(words, "with a new id")
	}
	return strings.Join(words, ", ")
}

// resetCell says when units come back, of a calendar also as a time.
func resetCell(seconds *int64, at *time.Time) string {
	if at == nil {
		return orDash(seconds)
	}
	return orDash(seconds) + ", at " + at.Format(time.RFC3339)
}
