package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
)

func newJournalCommand() *cobra.Command {
	var a asker
	var query client.JournalQuery
	var all bool
	cmd := &cobra.Command{
		Use:   "journal LIMIT SUBJECT",
		Short: "List the ledger entries of a subject on a limit",
		Args:  wantArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			query.Limit, query.Subject = args[0], args[1]
			return a.journal(cmd, query, all)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&query.Reversed, "reversed", false, "newest entries first")
	cmd.Flags().StringVar(&query.Cursor, "cursor", "", "go on at the `cursor` of the page before")
	cmd.Flags().BoolVar(&all, "all", false, "all pages; as JSON, each is a line of its own")
	return cmd
}

// journal prints a page, or one after the other to the last.
func (a *asker) journal(cmd *cobra.Command, query client.JournalQuery, all bool) error {
	weir, err := a.client()
	if err != nil {
		return err
	}
	heading := "AT\tKIND\tSIDE\tAMOUNT\tEXPIRES\tTRANSFER"
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

func entryRow(e wire.Entry) string {
	expires := "-"
	if e.ExpiresAt != nil {
		expires = e.ExpiresAt.Format(time.RFC3339)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%v\t%s\t%s", e.At.Format(time.RFC3339Nano), e.Kind, e.Side,
		e.Amount, expires, e.Transfer)
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
		notes = append(notes, fmt.Sprintf("closes at %v", closeAt))
	}
	if shadow {
		notes = append(notes, "shadow")
	}
	return firstOf(strings.Join(notes, ", "), "-")
}
