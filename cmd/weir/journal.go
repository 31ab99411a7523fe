package main

import (
	"fmt"
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
