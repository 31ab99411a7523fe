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
			weir, err := a.client()
			if err != nil {
				return err
			}
			request.ID, err = idOr(cmd, id)
			if err != nil {
				return err
			}
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
			weir, err := a.client()
			if err != nil {
				return err
			}
			id, err = idOr(cmd, id)
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
