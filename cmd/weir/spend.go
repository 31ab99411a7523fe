package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/spend"
)

func newSpendCommand() *cobra.Command {
	return newParentCommand("spend", "Look at what calls to paid models took of a spend budget",
		newSpendTodayCommand())
}

func newSpendTodayCommand() *cobra.Command {
	var a asker
	var query client.SpendQuery
	cmd := &cobra.Command{
		Use:   "today BUDGET SUBJECT",
		Short: "Sum what a subject spent of a budget today",
		Long: `Sum what a subject spent of a budget in one day, as weir journal --budget lists it.

What is booked is what was settled in the day, by the route that the call took, with corrections in
place of what they correct. A correction of what was settled on another day is only counted. Carried
over is the part of what is booked that is for calls authorized on the day before, whose budget they
took it of. What is held is for calls that were authorized in the day and not settled yet; those
whose time is over are expired.`,
		Args: wantArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			query.Budget, query.Subject = args[0], args[1]
			day := newSpendDay()
			err := a.spendPages(cmd, query, func(page wire.SpendJournal) error {
				day.From, day.To = page.From, page.To
				for _, e := range page.Events {
					day.add(e)
				}
				return nil
			})
			if err != nil {
				return err
			}
			day.Budget, day.Subject = query.Budget, query.Subject
			day.close(time.Now())
			return a.printSpendDay(cmd.OutOrStdout(), day)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&query.Day, "day", "", "another `day`, as 2026-10-16")
	return cmd
}

// spendPages reads the pages of a budget's day, one after the other to the last.
func (a *asker) spendPages(cmd *cobra.Command, query client.SpendQuery,
	take func(wire.SpendJournal) error,
) error {
	weir, err := a.client()
	if err != nil {
		return err
	}
	for {
		page, err := weir.SpendJournal(cmd.Context(), query)
		if err != nil {
			return a.failure(err)
		}
		err = take(page)
		if err != nil || page.Cursor == "" {
			return err
		}
		query.Cursor = page.Cursor
	}
}

// figures are what some calls come to.
type figures struct {
	Calls        uint64      `json:"calls"`
	InputTokens  uint64      `json:"input_tokens"`
	OutputTokens uint64      `json:"output_tokens"`
	CachedTokens uint64      `json:"cached_tokens"`
	USD          wire.Amount `json:"usd"`
}

// add counts a call.
func (f *figures) add(e wire.SpendEvent) {
	f.Calls++
	f.InputTokens += e.InputTokens
	f.OutputTokens += e.OutputTokens
	f.CachedTokens += e.CachedTokens
	millionths, _ := e.USD.In(spend.Decimals) // it is written so
	f.USD = wire.Money(f.USD.Units+millionths, spend.Decimals)
}

// row writes figures as a row of a table.
func (f *figures) row(name string) string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%v", name, f.Calls, f.InputTokens, f.OutputTokens,
		f.CachedTokens, f.USD)
}

// spendDay is what the events of a budget's day come to.
type spendDay struct {
	Budget  string    `json:"budget"`
	Subject string    `json:"subject"`
	From    wire.Time `json:"from"`
	To      wire.Time `json:"to"`
	// Booked is the sum of Routes, which has each of the three.
	Booked figures             `json:"booked"`
	Routes map[string]*figures `json:"routes"`
	// Carried is the part of Booked that is for calls that were authorized on an earlier day: what is
	// taken of the day's budget is Booked without it, and Held.
	Carried figures `json:"carried"`
	Held    figures `json:"held"`
	// Authorized counts calls that passed, TurnedAway those that did not, and Expired those that
	// passed and were not settled in time, or not in the day.
	Authorized uint64 `json:"authorized"`
	TurnedAway uint64 `json:"turned_away"`
	Expired    uint64 `json:"expired"`
	// Late and Estimated count settlements.
	Late        uint64 `json:"late"`
	Estimated   uint64 `json:"estimated"`
	Corrections uint64 `json:"corrections"`

	authorized, booked map[string]wire.SpendEvent // by receipt
}

// routes are the routes that calls take.
var routes = []string{wire.RouteModel, wire.RouteFallback, wire.RouteError}

func newSpendDay() *spendDay {
	none := figures{USD: wire.Money(0, spend.Decimals)}
	day := &spendDay{
		Booked: none, Carried: none, Held: none, Routes: make(map[string]*figures),
		authorized: make(map[string]wire.SpendEvent), booked: make(map[string]wire.SpendEvent),
	}
	for _, route := range routes {
		day.Routes[route] = new(none)
	}
	return day
}

// add takes the next event of the day.
func (d *spendDay) add(e wire.SpendEvent) {
	switch e.Event {
	case wire.EventAuthorize:
		d.authorized[e.Transfer] = e
	case wire.EventSettle:
		d.booked[e.Transfer] = e
	case wire.EventClosed:
		d.TurnedAway += e.Count
	case wire.EventCorrection:
		d.Corrections++
		settled, ok := d.booked[e.Transfer]
		if ok {
			e.Late = settled.Late
			d.booked[e.Transfer] = e
		}
	}
}

// close sums the day up after its last event.
func (d *spendDay) close(now time.Time) {
	d.Authorized = uint64(len(d.authorized))
	for transfer, e := range d.booked {
		d.Booked.add(e)
		_, today := d.authorized[transfer]
		if !today {
			d.Carried.add(e)
		}
		route := d.Routes[e.Route]
		if route != nil {
			route.add(e)
		}
		if e.Late {
			d.Late++
		}
		if e.Estimated {
			d.Estimated++
		}
	}
	for transfer, e := range d.authorized {
		_, settled := d.booked[transfer]
		switch {
		case settled:
		case e.ExpiresAt != nil && e.ExpiresAt.After(now):
			d.Held.add(e)
		default:
			d.Expired++
		}
	}
}

func (a *asker) printSpendDay(out io.Writer, d *spendDay) error {
	if a.json {
		return json.NewEncoder(out).Encode(d)
	}
	_, err := fmt.Fprintf(out, "%s from %s to %s\n", d.Budget, d.From.Format(time.RFC3339),
		d.To.Format(time.RFC3339))
	if err != nil {
		return err
	}
	var rows []string
	for _, route := range routes {
		rows = append(rows, d.Routes[route].row(route))
	}
	rows = append(rows, d.Booked.row("booked"), d.Carried.row("carried over"),
		d.Held.row("held now"))
	err = printTable(out, "ROUTE\tCALLS\tINPUT\tOUTPUT\tCACHED\tUSD", rows...)
	if err != nil {
		return err
	}
	return printTable(out, "AUTHORIZED\tTURNED AWAY\tEXPIRED\tLATE\tESTIMATED\tCORRECTIONS",
		fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d", d.Authorized, d.TurnedAway, d.Expired, d.Late,
			d.Estimated, d.Corrections))
}

// dayFlags choose the day of a spend budget in place of a limit's journal.
type dayFlags struct {
	query client.SpendQuery
	lines bool
}

func (f *dayFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Budget, "budget", "", "`name` of a spend budget: its day is listed")
	flags.StringVar(&f.query.Subject, "subject", "", "`name` of the subject, with --budget")
	flags.StringVar(&f.query.Day, "day", "", "`day`, with --budget, as 2026-10-16 (default today)")
	flags.BoolVar(&f.lines, "jsonl", false, "with --budget, print each event as a line of JSON")
}

// check refuses what does not go together.
func (f *dayFlags) check(cmd *cobra.Command, args []string) error {
	given := func(names ...string) string {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return name
			}
		}
		return ""
	}
	if given("budget") == "" {
		flag := given("subject", "day", "jsonl")
		if flag != "" {
			return fmt.Errorf("journal: --%s is of use only with --budget", flag)
		}
		return wantArgs(2)(cmd, args)
	}
	flag := given("reversed", "cursor", "all")
	switch {
	case flag != "":
		return fmt.Errorf("journal: --%s is of no use with --budget, which lists all of a day", flag)
	case len(args) > 0 || f.query.Budget == "" || f.query.Subject == "":
		return fmt.Errorf("journal: with --budget NAME, want --subject NAME and no arguments")
	case f.lines && given("json") != "":
		return fmt.Errorf("journal: want --json, of which each page is a line, or --jsonl")
	}
	return nil
}

// spendJournal prints all events of a budget's day: for people a table, else JSON, of which each
// page is a line, or each event.
func (a *asker) spendJournal(cmd *cobra.Command, query client.SpendQuery, lines bool) error {
	out := cmd.OutOrStdout()
	return a.spendPages(cmd, query, func(page wire.SpendJournal) error {
		if lines {
			events := json.NewEncoder(out)
			for _, e := range page.Events {
				err := events.Encode(e)
				if err != nil {
					return err
				}
			}
			return nil
		}
		rows := make([]string, len(page.Events))
		for i, e := range page.Events {
			rows[i] = eventRow(e)
		}
		return a.print(out, page,
			"AT\tEVENT\tROUTE\tREASON\tMODEL\tINPUT\tOUTPUT\tCACHED\tUSD\tNOTES\tTRANSFER", rows...)
	})
}

func eventRow(e wire.SpendEvent) string {
	var notes []string
	if e.Estimated {
		notes = append(notes, "estimated")
	}
	if e.Late {
		notes = append(notes, "late")
	}
	if e.Count > 0 {
		notes = append(notes, fmt.Sprintf("%d turned away", e.Count))
	}
	if e.ExpiresAt != nil {
		notes = append(notes, "held until "+e.ExpiresAt.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%v\t%s\t%s", e.At.Format(nanoseconds),
		e.Event, e.Route, firstOf(e.Reason, "-"), firstOf(e.Model, "-"), e.InputTokens, e.OutputTokens,
		e.CachedTokens, e.USD, firstOf(strings.Join(notes, ", "), "-"), firstOf(e.Transfer, "-"))
}

func newCorrectCommand() *cobra.Command {
	var a asker
	var r wire.CorrectionRequest
	var input, output, cached, money string
	cmd := &cobra.Command{
		Use:   "correct TRANSFER",
		Short: "Book what a settled call really took, in place of what was booked",
		Long: `Book what a settled call really took, in place of what was booked for it. The entries that
were made stay in the ledger; others take their place. What is left out is estimated, as it is when
a call is settled. The same id sent again is answered the same and corrects once.`,
		Example: `  weir correct 0d4ac4b86a0b4f4c8a530f6f3e1a2b4c --input 1200 --output 340 --id bill-7`,
		Args:    wantArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Transfer = args[0]
			for _, flag := range []struct {
				name, text string
				amount     **wire.Amount
			}{
				{"input", input, &r.InputTokens}, {"output", output, &r.OutputTokens},
				{"cached", cached, &r.CachedTokens}, {"usd", money, &r.USD},
			} {
				if !cmd.Flags().Changed(flag.name) {
					continue
				}
				amount, err := parseAmount("--"+flag.name, flag.text)
				if err != nil {
					return err
				}
				*flag.amount = amount
			}
			if r.Route == wire.RouteModel && input+output+money == "" {
				return fmt.Errorf("correct: want --input, --output or --usd")
			}
			weir, id, err := a.named(cmd, r.ID)
			if err != nil {
				return err
			}
			r.ID = id
			s, err := weir.Correct(cmd.Context(), r)
			if err != nil {
				return a.failure(err)
			}
			return a.print(cmd.OutOrStdout(), s,
				"ROUTE\tTOKENS\tUSD\tOVERAGE\tOVERAGE USD\tESTIMATED\tREPLAYED\tTRANSFER",
				fmt.Sprintf("%s\t%v\t%v\t%v\t%v\t%t\t%t\t%s", s.Route, s.Booked.Tokens, s.Booked.USD,
					s.Overage.Tokens, s.Overage.USD, s.Estimated, s.Replayed, s.Transfer))
		},
	}
	a.addFlags(cmd)
	addIDFlag(cmd, &r.ID)
	flags := cmd.Flags()
	flags.StringVar(&r.Route, "route", wire.RouteModel, "how the call ended: model, fallback or error")
	flags.StringVar(&input, "input", "", "`tokens` that went in")
	flags.StringVar(&output, "output", "", "`tokens` that came out")
	flags.StringVar(&cached, "cached", "", "`tokens` of the input that the provider had in its cache")
	flags.StringVar(&money, "usd", "", "`USD` that the provider charged (default by the price table)")
	flags.StringVar(&r.Error, "error", "", "why the call failed, with --route error")
	return cmd
}
