package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
)

func newReserveCommand() *cobra.Command {
	var a asker
	var r checkFlags
	var hold string
	cmd := &cobra.Command{
		Use: "reserve {LIMIT | --limit NAME[/SUBJECT][=COST]...} SUBJECT" +
			" | --group NAME --field KEY=VALUE...",
		Short: "Hold units of a limit until they are settled, released or renewed",
		Long: `Hold what a check would charge: exit with 0 if it is held, 1 if it is denied.

The transfer that is printed is the receipt for settle, release and renew. Unless one of those
comes before, what is held comes back when the time of --hold is over. Where no answer tells
whether it is held, the id is printed that will, sent again by --id.`,
		Example: `  weir reserve llm-tokens alice --cost 5000 --hold 60s
  weir reserve exports alice --hold 5m
  weir reserve --limit llm-tokens=5000 --limit exports alice --hold 60s`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := r.request("reserve", args)
			if err != nil {
				return err
			}
			seconds, err := parseHold(hold)
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			made := request.ID == ""
			if made {
				request.ID = rand.Text()
			}
			decision, err := weir.Reserve(cmd.Context(), wire.ReservationRequest{
				CheckRequest: request, HoldSeconds: seconds,
			})
			if made {
				decision.NewIDRequired = false // nobody would send it again
				tellID(cmd, request.ID, err)
			}
			return a.decided(cmd, decision, err)
		},
	}
	a.addFlags(cmd)
	r.addFlags(cmd)
	addHoldFlag(cmd, &hold)
	return cmd
}

// tellID says on the error stream the id that a reservation was given here, where it may be held
// and the answer that has its receipt is lost: the same id tells.
func tellID(cmd *cobra.Command, id string, err error) {
	answer, answered := errors.AsType[*client.Error](err)
	if err == nil || answered && answer.Status < http.StatusInternalServerError {
		return
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "id: %s\n", id) // what failed is said in any case
}

func newSettleCommand() *cobra.Command {
	var a asker
	var limits []string
	cmd := &cobra.Command{
		Use:   "settle RECEIPT {COST | --limit NAME[/SUBJECT]=COST...}",
		Short: "Book what a reservation really took, and give the rest back",
		Long: `Book what a reservation really took, and give the rest back. Settled again with the same
costs it is answered the same. Slots of concurrency limits are given back; they are not named. A
subject is wanted only where the reservation has several on one limit.`,
		Example: `  weir settle 01a22af6735076bf964d6a7bb5cb6fa4 3120
  weir settle 01a22af6735076bf964d6a7bb5cb6fa4 --limit llm-tokens=3120 --limit egress=52000
  weir settle 01a22af6735076bf964d6a7bb5cb6fa4 --limit tokens/alice=3 --limit tokens/bob=4`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := settleRequest(args[1:], limits)
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			settlement, err := weir.Settle(cmd.Context(), args[0], request)
			return a.settled(cmd, "settled", settlement, err)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().StringArrayVar(&limits, "limit", nil,
		"a limit and what it took, `NAME[/SUBJECT]=COST`")
	return cmd
}

// settleRequest makes a request of what the command line says beside the receipt.
func settleRequest(args, limits []string) (wire.SettleRequest, error) {
	if (len(args) == 0) == (len(limits) == 0) {
		return wire.SettleRequest{}, fmt.Errorf("settle: want either COST, or --limit NAME=COST")
	}
	if len(args) == 1 {
		cost, err := parseAmount("cost", args[0])
		return wire.SettleRequest{Cost: cost}, err
	}
	members, err := parseMembers(limits)
	for _, m := range members {
		if err == nil && m.Cost == nil {
			err = fmt.Errorf("--limit %s: want NAME[/SUBJECT]=COST", m.Limit)
		}
	}
	return wire.SettleRequest{Limits: members}, err
}

func newReleaseCommand() *cobra.Command {
	var a asker
	cmd := &cobra.Command{
		Use:   "release RECEIPT",
		Short: "Give back what a reservation holds, or what a check took",
		Args:  wantArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			weir, err := a.client()
			if err != nil {
				return err
			}
			settlement, err := weir.Release(cmd.Context(), args[0])
			return a.settled(cmd, "released", settlement, err)
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newRenewCommand() *cobra.Command {
	var a asker
	var hold string
	cmd := &cobra.Command{
		Use:   "renew RECEIPT",
		Short: "Hold what a reservation holds for longer",
		Long: `Hold what a reservation holds for the time of --hold from now on. The transfer that is
printed is the new receipt; the old one leads to it.`,
		Args: wantArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := parseHold(hold)
			if err != nil {
				return err
			}
			weir, err := a.client()
			if err != nil {
				return err
			}
			decision, err := weir.Renew(cmd.Context(), args[0], wire.RenewRequest{HoldSeconds: seconds})
			return a.decided(cmd, decision, err)
		},
	}
	a.addFlags(cmd)
	addHoldFlag(cmd, &hold)
	return cmd
}

// settled prints what became of a reservation, or what went wrong.
func (a *asker) settled(cmd *cobra.Command, verdict string, s wire.Settlement, err error) error {
	if err != nil {
		return a.failure(err)
	}
	if s.Late {
		verdict += " late, when what was held had come back"
	}
	if s.Replayed {
		verdict += ", replayed"
	}
	if !a.json {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, transfer %s\n", verdict, s.Transfer)
		if err != nil {
			return err
		}
	}
	rows := make([]string, len(s.Limits))
	for i, l := range s.Limits {
		rows[i] = fmt.Sprintf("%s\t%s\t%v\t%v\t%v\t%s", l.Limit, firstOf(l.Subject, "-"), l.Held,
			l.Booked, l.Overage, orDash(l.Remaining))
	}
	return a.print(cmd.OutOrStdout(), s, "LIMIT\tSUBJECT\tHELD\tBOOKED\tOVERAGE\tREMAINING", rows...)
}

func newTrackCommand() *cobra.Command {
	var a asker
	var id string
	cmd := &cobra.Command{
		Use:   "track LIMIT SUBJECT AMOUNT",
		Short: "Book what was used already, also past the balance",
		Long: `Book what was used already, also past the balance. The same id sent again books it once.
While the ledger is away the usage is spooled, and booked later.`,
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
			t, err := weir.Track(cmd.Context(), wire.TrackRequest{
				Limit: args[0], Subject: args[1], Amount: amount, ID: id,
			})
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), t,
				"LIMIT\tSUBJECT\tAMOUNT\tBOOKED\tOVERAGE\tSTATE\tTRANSFER",
				fmt.Sprintf("%s\t%s\t%v\t%v\t%v\t%s\t%s", t.Limit, t.Subject, t.Amount, t.Booked,
					t.Overage, trackedCell(t), t.Transfer))
		},
	}
	a.addFlags(cmd)
	addIDFlag(cmd, &id)
	return cmd
}

// trackedCell says what became of usage.
func trackedCell(t wire.Tracked) string {
	switch {
	case t.Spooled:
		return "spooled"
	case t.Dropped:
		return "dropped"
	default:
		return "booked"
	}
}

func addHoldFlag(cmd *cobra.Command, hold *string) {
	cmd.Flags().StringVar(hold, "hold", "60s", "how long to hold, a `duration` up to 30d")
}

// parseHold reads how long to hold; the server bounds it.
func parseHold(text string) (seconds int64, err error) {
	hold, err := asDuration(text)
	if err == nil && hold%time.Second != 0 {
		err = fmt.Errorf("%v: want whole seconds", hold)
	}
	if err != nil {
		return 0, fmt.Errorf("--hold: %w", err)
	}
	return int64(hold / time.Second), nil
}
