package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/api/wire"
)

func newCheckCommand() *cobra.Command {
	var a asker
	var r checkFlags
	cmd := &cobra.Command{
		Use: "check {LIMIT | --limit NAME[/SUBJECT][=COST]...} SUBJECT" +
			" | --group NAME --field KEY=VALUE...",
		Short: "Decide one request and charge it",
		Long: `Decide one request and charge it: exit with 0 if it is allowed, 1 if it is denied.

With --limit or --group, several limits are decided as one: all are charged or none. A limit may
have a subject of its own, behind a slash.`,
		Example: `  weir check api-requests alice
  weir check egress alice --cost 52000 --id upload-7
  weir check --limit api-requests --limit egress=52000 alice
  weir check --limit user --limit tenant/acme alice
  weir check --group api --field user=alice --field tenant=acme`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := r.request("check", args)
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			decision, err := weir.Check(cmd.Context(), request)
			return a.decided(cmd, decision, err)
		},
	}
	a.addFlags(cmd)
	r.addFlags(cmd)
	return cmd
}

// checkFlags are what a check and a reservation can say, beside their arguments.
type checkFlags struct {
	cost, id, group string
	limits, fields  []string
}

func (f *checkFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.cost, "cost", "",
		"`units` to take (default 1 on request-rate and concurrency limits)")
	cmd.Flags().StringVar(&f.id, "id", "",
		"`name` of this attempt: sent again it is charged once and answered the same")
	cmd.Flags().StringArrayVar(&f.limits, "limit", nil,
		"a limit, perhaps with a subject of its own and a cost, `NAME[/SUBJECT][=COST]`")
	cmd.Flags().StringVar(&f.group, "group", "", "`name` of a group of limits")
	cmd.Flags().StringArrayVar(&f.fields, "field", nil,
		"what the group's limits take a subject from, `KEY=VALUE`")
}

// request makes a request of what the command line says.
func (f *checkFlags) request(command string, args []string) (wire.CheckRequest, error) {
	request := wire.CheckRequest{ID: f.id, Group: f.group}
	var err error
	if f.cost != "" {
		request.Cost, err = parseAmount("--cost", f.cost)
	}
	switch {
	case err != nil:
		return request, err
	case f.group != "" && (len(args) > 0 || len(f.limits) > 0):
		return request, fmt.Errorf("%s: with --group, want only --field KEY=VALUE", command)
	case f.group != "":
		request.Fields, err = parseFields(f.fields)
		return request, err
	case len(f.fields) > 0:
		return request, fmt.Errorf("%s: --field is of use only with --group", command)
	case len(f.limits) == 0 && len(args) != 2:
		return request, fmt.Errorf("%s: want LIMIT SUBJECT, or --limit NAME and SUBJECT, or --group",
			command)
	case len(f.limits) > 0 && len(args) != 1:
		return request, fmt.Errorf("%s: with --limit, want only SUBJECT", command)
	case len(f.limits) > 0 && f.cost != "":
		return request, fmt.Errorf("%s: with --limit, the cost goes there: --limit NAME=COST", command)
	}
	request.Subject = args[len(args)-1]
	if len(f.limits) == 0 {
		request.Limit = args[0]
		return request, nil
	}
	request.Limits, err = parseMembers(f.limits)
	return request, err
}

// member is how a limit is named, perhaps with a subject and a cost: NAME[/SUBJECT][=COST]. No name
// has a slash or an equals sign. A subject may have both, so that one with an equals sign wants a
// cost behind it.
var member = regexp.MustCompile(`^([^/=]*)(/.*?)?(=[^=]*)?$`)

// parseMembers reads limits, each perhaps with a subject and a cost.
func parseMembers(texts []string) ([]wire.Member, error) {
	var members []wire.Member
	for _, text := range texts {
		parts := member.FindStringSubmatch(text)
		if parts == nil || parts[2] == "/" {
			return nil, fmt.Errorf("--limit %s: want NAME[/SUBJECT][=COST]", text)
		}
		m := wire.Member{Limit: parts[1], Subject: strings.TrimPrefix(parts[2], "/")}
		if parts[3] != "" {
			amount, err := parseAmount("--limit "+parts[1]+parts[2], parts[3][1:])
			if err != nil {
				return nil, err
			}
			m.Cost = amount
		}
		members = append(members, m)
	}
	return members, nil
}

// parseFields reads the fields of a group, KEY=VALUE.
func parseFields(texts []string) (map[string]string, error) {
	fields := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, given := strings.Cut(text, "=")
		_, twice := fields[key]
		switch {
		case !given:
			return nil, fmt.Errorf("--field %s: want KEY=VALUE", text)
		case twice:
			return nil, fmt.Errorf("--field %s: is there twice", key)
		}
		fields[key] = value
	}
	return fields, nil
}

// decided prints a decision, or what went wrong. A denial ends the command with its own status.
func (a *asker) decided(cmd *cobra.Command, decision wire.Decision, err error) error {
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
		rows[i] = fmt.Sprintf("%s\t%s\t%v\t%s\t%s\t%s", limitCell(s), s.Subject, s.Cost,
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
	if d.ExpiresAt != nil {
		words = append(words, "held until "+d.ExpiresAt.Format(time.RFC3339))
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

// resetCell says when units come back, and of a calendar when all that was charged does. What is
// held may come back before that, or after.
func resetCell(seconds *int64, at *time.Time) string {
	if at == nil {
		return orDash(seconds)
	}
	return orDash(seconds) + ", period ends " + at.Format(time.RFC3339)
}

// limitCell names the limit of a decision, and says of one that is only tried out what it thought.
func limitCell(s wire.State) string {
	switch {
	case s.WouldDeny:
		return s.Limit + " (shadow: would deny)"
	case s.Shadow:
		return s.Limit + " (shadow)"
	default:
		return s.Limit
	}
}
