package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
)

func newTransferCommand() *cobra.Command {
	var a asker
	var id string
	var limits []string
	cmd := &cobra.Command{
		Use:   "transfer LIMIT FROM TO AMOUNT",
		Short: "Move money within a transfer-amount limit",
		Long: `Move money from one subject to another within a transfer-amount limit: exit with 0 if it is
moved, 1 if a limit denies it. The money moves and the limits are charged, or neither; the same id
sent again is answered the same and moves it once, for ever.`,
		Example: `  weir transfer payouts alice bob 999.99
  weir transfer payouts alice bob 25.00 --limit payout-requests --id order-1234`,
		Args: wantArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := wire.TransferRequest{
				Limit: args[0], From: args[1], To: args[2], Amount: args[3],
			}
			var err error
			request.Limits, err = parseMembers(limits)
			if err != nil {
				return err
			}
			weir, id, err := a.named(cmd, id)
			if err != nil {
				return err
			}
			request.ID = id
			decision, err := weir.Transfer(cmd.Context(), request)
			return a.decided(cmd, decision, err)
		},
	}
	a.addFlags(cmd)
	addIDFlag(cmd, &id)
	cmd.Flags().StringArrayVar(&limits, "limit", nil,
		"a further limit to charge, perhaps with a subject and a cost, `NAME[/SUBJECT][=COST]`")
	return cmd
}

func newAccountsCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "accounts ASSET SUBJECT",
		Short: "Show what a subject has of an asset",
		Args:  wantArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			weir, err := a.client()
			if err != nil {
				return err
			}
			account, err := weir.Account(cmd.Context(), args[0], args[1])
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), account, "ASSET\tSUBJECT\tBALANCE",
				fmt.Sprintf("%s\t%s\t%s", account.Asset, account.Subject, account.Balance))
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newDepositCommand() *cobra.Command {
	cmd := newMovementCommand("deposit", (*client.Client).Deposit)
	cmd.Short = "Give money to a subject"
	cmd.Long = `Give money to a subject, which opens its account. The same id sent again is answered
the same and gives it once, for ever.`
	return cmd
}

func newWithdrawCommand() *cobra.Command {
	cmd := newMovementCommand("withdraw", (*client.Client).Withdraw)
	cmd.Short = "Take money from a subject"
	cmd.Long = `Take money from a subject, no more than it has. The same id sent again is answered the
same and takes it once, for ever.`
	return cmd
}

// newMovementCommand makes the command for a deposit or a withdrawal.
func newMovementCommand(name string,
	move func(*client.Client, context.Context, wire.MovementRequest) (wire.Movement, error),
) *cobra.Command {
	var a asker
	var id string
	cmd := &cobra.Command{
		Use:  name + " ASSET SUBJECT AMOUNT",
		Args: wantArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			weir, id, err := a.named(cmd, id)
			if err != nil {
				return err
			}
			m, err := move(weir, cmd.Context(), wire.MovementRequest{
				Asset: args[0], Subject: args[1], Amount: args[2], ID: id,
			})
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), m,
				"ASSET\tSUBJECT\tAMOUNT\tBALANCE\tREPLAYED\tTRANSFER",
				fmt.Sprintf("%s\t%s\t%s\t%s\t%t\t%s", m.Asset, m.Subject, m.Amount, m.Balance,
					m.Replayed, m.Transfer))
		},
	}
	a.addFlags(cmd)
	addIDFlag(cmd, &id)
	return cmd
}

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
			weir, id, err := a.named(cmd, id)
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
	return newParentCommand("quota", "Give one subject a quota of its own, in place of the config's",
		newQuotaSetCommand(), newQuotaClearCommand())
}

func newQuotaSetCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "set LIMIT SUBJECT QUOTA",
		Short: "Set one subject's quota, whatever the config says",
		Long: `Set one subject's quota, whatever the config says; 0 admits nothing but what was
granted. What the subject has used stays used, and its grants stay on top. Set again to the same it
changes nothing.`,
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
