package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
)

func newGrantCommand() *cobra.Command {
	cmd := newChangeCommand("grant", (*client.Client).Grant)
	cmd.Short = "Raise one subject's quota for good"
	cmd.Long = `Raise one subject's quota for good: it is not used up and does not come back by itself.
The same id sent again is answered the same and granted once, for ever.`
	return cmd
}

func newRevokeCommand() *cobra.Command {
	cmd := newChangeCommand("revoke", (*client.Client).Revoke)
	cmd.Short = "Lower one subject's quota for good"
	cmd.Long = `Lower one subject's quota for good, by no more than is free now.
The same id sent again is answered the same and revoked once, for ever.`
	return cmd
}

// newChangeCommand makes the command for a grant or a revocation.
func newChangeCommand(name string,
	change func(*client.Client, context.Context, wire.ChangeRequest) (wire.Change, error),
) *cobra.Command {
	var a asker
	var id string
	cmd := &cobra.Command{
		Use:  name + " LIMIT SUBJECT AMOUNT",
		Args: wantArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := parseAmount("amount", args[2])
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			id, err = idOr(cmd, id)
			if err != nil {
				return err
			}
			c, err := change(weir, cmd.Context(), wire.ChangeRequest{
				Limit: args[0], Subject: args[1], Amount: amount, ID: id,
			})
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), c,
				"LIMIT\tSUBJECT\tAMOUNT\tQUOTA\tREMAINING\tREPLAYED\tTRANSFER",
				fmt.Sprintf("%s\t%s\t%v\t%v\t%v\t%t\t%s", c.Limit, c.Subject, c.Amount, c.Quota,
					c.Remaining, c.Replayed, c.Transfer))
		},
	}
	a.addFlags(cmd)
	addIDFlag(cmd, &id)
	return cmd
}

func newQuotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Give one subject a quota of its own, in place of the config's",
		Args:  wantArgs(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newQuotaSetCommand(), newQuotaClearCommand())
	return cmd
}

func newQuotaSetCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "set LIMIT SUBJECT QUOTA",
		Short: "Set one subject's quota, whatever the config says",
		Long: `Set one subject's quota, whatever the config says; 0 admits nothing. What the subject has
used stays used, and its grants stay on top. Set again to the same it changes nothing.`,
		Args: wantArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseAmount("quota", args[2])
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			quota, err := weir.Override(cmd.Context(), wire.QuotaRequest{
				Limit: args[0], Subject: args[1], Quota: wanted,
			})
			return a.overridden(cmd, quota, err)
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newQuotaClearCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "clear LIMIT SUBJECT",
		Short: "Let the config's quota count for a subject again",
		Args:  wantArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			weir, err := a.client()
			if err != nil {
				return err
			}
			quota, err := weir.ClearOverride(cmd.Context(), args[0], args[1])
			return a.overridden(cmd, quota, err)
		},
	}
	a.addFlags(cmd)
	return cmd
}

// overridden prints the quota that a subject has now, or what went wrong.
func (a *asker) overridden(cmd *cobra.Command, q wire.SubjectQuota, err error) error {
	if err != nil {
		return a.failure(err)
	}
	return a.print(cmd.OutOrStdout(), q, "LIMIT\tSUBJECT\tQUOTA\tREMAINING\tOVERRIDDEN\tREPLAYED",
		fmt.Sprintf("%s\t%s\t%v\t%v\t%t\t%t", q.Limit, q.Subject, q.Quota, q.Remaining, q.Overridden,
			q.Replayed))
}
