package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/limiter"
)

func newJournalCommand() *cobra.Command {
	var a asker
	var query client.JournalQuery
	var all bool
	var day dayFlags
	cmd := &cobra.Command{
		Use:   "journal {LIMIT SUBJECT | --budget NAME --subject NAME}",
		Short: "List the ledger entries of a subject on a limit, or its calls on a spend budget",
		Long: `List the ledger entries of a subject on a limit, or with --budget all that became of its
calls on a spend budget in one day.`,
		Example: `  weir journal api-requests alice
  weir journal --budget assistant --subject alice --day 2026-10-16 --jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := day.check(cmd, args)
			if err != nil {
				return err
			}
			if day.query.Budget != "" {
				return a.spendJournal(cmd, day.query, day.lines)
			}
			query.Limit, query.Subject = args[0], args[1]
			return a.journal(cmd, query, all)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&query.Reversed, "reversed", false, "newest entries first")
	cmd.Flags().StringVar(&query.Cursor, "cursor", "", "go on at the `cursor` of the page before")
	cmd.Flags().BoolVar(&all, "all", false, "all pages; as JSON, each is a line of its own")
	day.addFlags(cmd)
	return cmd
}

// journal prints a page, or one after the other to the last.
func (a *asker) journal(cmd *cobra.Command, query client.JournalQuery, all bool) error {
	weir, err := a.client()
	if err != nil {
		return err
	}
	heading := "AT\tKIND\tSIDE\tAMOUNT\tEXPIRES\tTRANSFER\tNOTES"
	for {
		page, err := weir.Journal(cmd.Context(), query)
		if err != nil {
			return a.failure(err)
		}
		rows := make([]string, len(page.Entries))
		for i, e := range page.Entries {
			rows[i] = entryRow(e)
		}
		err = a.print(cmd.OutOrStdout(), page, heading, rows...)
		if err != nil || page.Cursor == "" {
			return err
		}
		query.Cursor = page.Cursor
		if !all {
			break
		}
	}
	if a.json {
		return nil // the page holds the cursor
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "there are more: add --cursor %s, or --all\n",
		query.Cursor)
	return err
}

// nanoseconds is RFC 3339 with all its digits, so that instants stand below each other.
const nanoseconds = "2006-01-02T15:04:05.000000000Z07:00"

// entryRow says of an entry what is in the ledger, and in its notes what it did besides: used more
// than the quota had, or gave a pending transfer back.
func entryRow(e wire.Entry) string {
	expires := "-"
	if e.ExpiresAt != nil {
		expires = e.ExpiresAt.Format(time.RFC3339)
	}
	notes := "-"
	switch {
	case e.Overage != nil:
		notes = fmt.Sprintf("overage %v", *e.Overage)
	case e.Ends != "":
		notes = "ends " + e.Ends
	}
	return fmt.Sprintf("%s\t%s\t%s\t%v\t%s\t%s\t%s", e.At.Format(nanoseconds), e.Kind, e.Side,
		e.Amount, expires, e.Transfer, notes)
}

func newBalanceCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "balance LIMIT SUBJECT",
		Short: "Show what a subject has on a limit, charging nothing",
		Args:  wantArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			weir, err := a.client()
			if err != nil {
				return err
			}
			b, err := weir.Balance(cmd.Context(), args[0], args[1])
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), b,
				"LIMIT\tSUBJECT\tQUOTA\tUSED\tREMAINING\tOVERAGE\tWINDOW S\tRESET S",
				fmt.Sprintf("%s\t%s\t%s\t%v\t%v\t%v\t%d\t%s", b.Limit, b.Subject, quotaCell(b), b.Used,
					b.Remaining, b.Overage, b.WindowSeconds, resetCell(&b.ResetSeconds, b.ResetsAt)))
		},
	}
	a.addFlags(cmd)
	return cmd
}

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
				rows[i] = limitRow(l)
			}
			return a.print(cmd.OutOrStdout(), wire.Limits{Limits: limits},
				"LIMIT\tKIND\tQUOTA\tWINDOW\tON FAILURE\tNOTES", rows...)
		},
	}
	a.addFlags(cmd)
	return cmd
}

// quotaCell says how much a subject may hold, and whether that is its own quota.
func quotaCell(b wire.Balance) string {
	if b.Overridden {
		return b.Quota.String() + " (own)"
	}
	return b.Quota.String()
}

func limitRow(l wire.Limit) string {
	closeAt := 0.0
	if l.CloseAt != nil {
		closeAt = *l.CloseAt
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", l.Name, l.Kind,
		strings.TrimSpace(l.Quota.String()+" "+l.Asset),
		windowCell(time.Duration(l.WindowSeconds)*time.Second, l.Align, l.Timezone), l.OnFailure,
		notesCell(closeAt, l.Shadow))
}

// windowCell says when units come back.
func windowCell(window time.Duration, align, timezone string) string {
	switch {
	case align != "":
		return align + " in " + firstOf(timezone, "UTC")
	case window == 0:
		return "-"
	default:
		return window.String()
	}
}

// notesCell says what few limits have.
func notesCell(closeAt float64, shadow bool) string {
	var notes []string
	if closeAt > 0 && closeAt < 1 {
		notes = append(notes, "closes at "+strconv.FormatFloat(closeAt, 'f', -1, 64))
	}
	if shadow {
		notes = append(notes, "shadow")
	}
	return firstOf(strings.Join(notes, ", "), "-")
}

func newConfigCommand() *cobra.Command {
	return newParentCommand("config", "Look at the config",
		newConfigCheckCommand())
}

func newConfigCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the config is sound, and what limits it makes",
		Long: `Say whether the config is sound, and what limits it makes: exit with 0 if it is sound,
1 if it is not, 2 if that cannot be told, as when there is none.`,
		Args: wantArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := configOf(cmd)
			if _, unsound := errors.AsType[*unsoundError](err); unsound {
				return sayNo(cmd, err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "config %s is sound\n", c.Path)
			if err != nil {
				return err
			}
			err = printRules(cmd.OutOrStdout(), c.Limits)
			if err != nil {
				return err
			}
			err = printGates(cmd.OutOrStdout(), c.Gates)
			if err != nil {
				return err
			}
			return printSpend(cmd.OutOrStdout(), c.Spend, c.Models)
		},
	}
	addConfigFlag(cmd)
	return cmd
}

// printRules shows the limits and the groups of a config.
func printRules(out io.Writer, rules *limiter.Limits) error {
	var rows []string
	for _, l := range rules.All() {
		quota := fmt.Sprint(l.Quota)
		asset, _ := rules.AssetOf(l.Name)
		if asset != nil {
			quota = asset.Format(ledgers.AmountOf(l.Quota)) + " " + asset.Code
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s", l.Name, l.Kind, quota,
			windowCell(l.Window, l.Align, l.Timezone), l.OnFailure, l.Ledger,
			notesCell(float64(l.CloseAt)/wholeBudget, l.Shadow)))
	}
	err := printTable(out, "LIMIT\tKIND\tQUOTA\tWINDOW\tON FAILURE\tLEDGER\tNOTES", rows...)
	if err != nil || len(rules.Groups()) == 0 {
		return err
	}
	rows = nil
	for _, g := range rules.Groups() {
		for _, m := range g.Limits {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s", g.Name, m.Limit, strings.Join(m.Fields, "/")))
		}
	}
	return printTable(out, "GROUP\tLIMIT\tFIELDS", rows...)
}

func newVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Check every sum and index of an embedded ledger that is not in use",
		Long: `Check every sum and index of an embedded ledger that is not in use, changing nothing: exit
with 0 if it is sound, 1 if it is not, 2 if that cannot be told.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return verify(cmd, args[0])
			}
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			return verify(cmd, c.Data)
		},
	}
	addConfigFlag(cmd)
	cmd.Flags().String("data", "", "`directory` of the ledger (default as in the config)")
	return cmd
}

func verify(cmd *cobra.Command, dir string) error {
	report, err := embedded.Verify(dir)
	if errors.Is(err, embedded.ErrCorrupt) {
		return sayNo(cmd, err)
	}
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	err = printTable(out, fmt.Sprintf("accounts\t%d", report.Accounts),
		fmt.Sprintf("transfers\t%d", report.Transfers),
		fmt.Sprintf("live\t%d", report.Live),
		fmt.Sprintf("refused ids\t%d", report.Burnt))
	if err != nil {
		return err
	}
	problems := len(report.Problems) + report.More
	if problems == 0 {
		_, err = fmt.Fprintf(out, "%s is sound\n", dir)
		return err
	}
	for _, problem := range report.Problems {
		_, _ = fmt.Fprintln(out, problem) // the exit status says it all
	}
	_, _ = fmt.Fprintf(out, "%s is NOT sound: %d problems\n", dir, problems)
	return statusError(exitNo)
}
