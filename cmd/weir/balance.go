package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

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
				fmt.Sprintf("%s\t%s\t%v\t%v\t%v\t%v\t%d\t%d", b.Limit, b.Subject, b.Quota, b.Used,
					b.Remaining, b.Overage, b.WindowSeconds, b.ResetSeconds))
		},
	}
	a.addFlags(cmd)
	return cmd
}
