// Command weir is a quota and rate-limit service in which every decision is a ledger entry, and the
// tools that go with it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"text/tabwriter"
	_ "time/tzdata" // time zones are the same on any machine

	"github.com/spf13/cobra"

	"weir/api/client"
	"weir/api/wire"
)

// What the process says with its exit status: 0 is yes, and a program that asks can tell a no from
// a failure.
const (
	exitNo    = 1 // the check was denied, the config or the ledger is not sound
	exitError = 2
)

// defaultServer is where client commands look for a weir.
const defaultServer = "http://" + defaultListen

// statusError ends a command that has said all there is to say, with a status of its own.
type statusError int

// Error is for those who do not know the type.
func (s statusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(runCommand(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// runCommand runs a command line and returns the exit status.
func runCommand(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	var status statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		_, _ = fmt.Fprintf(errOut, "weir: %v\n", err)
		return exitError
	}
}

// sayNo ends a command whose answer is no with the reason on the error stream.
func sayNo(cmd *cobra.Command, reason error) error {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %v\n", reason) // the exit status says it all
	return statusError(exitNo)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Quotas and rate limits whose every decision is a ledger entry",
		Long: `Quotas and rate limits whose every decision is a ledger entry.

Commands exit with 0 for yes or done, 1 for no (denied, not sound) and 2 for an error.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newServeCommand(), newCheckCommand(), newBalanceCommand(), newLimitsCommand(),
		newReserveCommand(), newSettleCommand(), newReleaseCommand(), newRenewCommand(),
		newTrackCommand(), newSpendCommand(), newCorrectCommand(),
		newTransferCommand(), newAccountsCommand(), newDepositCommand(), newWithdrawCommand(),
		newGrantCommand(), newRevokeCommand(), newQuotaCommand(), newJournalCommand(),
		newConfigCommand(), newVerifyCommand(), newReplayCommand(), newVersionCommand(),
	)
	return root
}

// newParentCommand makes a command that stands for those below it.
func newParentCommand(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  wantArgs(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// addConfigFlag lets a command be told which config to read.
func addConfigFlag(cmd *cobra.Command) {
	cmd.Flags().String("config", "", "config `file` (default $"+envConfig+" or "+defaultConfig+")")
}

// configOf loads the config that the command line names.
func configOf(cmd *cobra.Command) (*config, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	return loadConfig(firstOf(path, os.Getenv(envConfig), defaultConfig), cmd.Flags())
}

// firstOf returns the first text that is not empty.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// asker is what commands that ask a running weir have in common.
type asker struct {
	server string
	json   bool
}

func (a *asker) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.server, "server", "",
		"`URL` of the weir to ask (default $"+envServer+" or "+defaultServer+")")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// client returns a client with the tokens of the environment.
func (a *asker) client() (*client.Client, error) {
	a.server = firstOf(a.server, os.Getenv(envServer), defaultServer)
	return client.New(a.server, &client.Options{
		Token: os.Getenv(envToken), AdminToken: os.Getenv(envAdminToken),
		UsageQueue: -1, // a command ends and would lose it: that weir is away is an error
	})
}

// failure says in one line what went wrong with a call, and what to do about it.
func (a *asker) failure(err error) error {
	var answer *client.Error
	var unanswered *url.Error
	switch {
	case errors.As(err, &unanswered) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("no answer from %s (%w): start one by `weir serve`, or name another by "+
			"--server or %s", a.server, unanswered.Err, envServer)
	case !errors.As(err, &answer):
		return err
	case answer.Code == "":
		return fmt.Errorf("%s: status %d, which is not how weir answers: is it one?",
			a.server, answer.Status)
	case answer.Code == wire.CodeUnauthorized:
		return fmt.Errorf("%s: %s: set %s, or %s for an admin's commands, to the server's",
			answer.Code, answer.Detail, envToken, envAdminToken)
	case answer.Code == wire.CodeAdminDisabled:
		return fmt.Errorf("%s: %s: start it with %s set", answer.Code, answer.Detail, envAdminToken)
	default:
		return fmt.Errorf("%s: %s", answer.Code, answer.Detail)
	}
}

// print writes an answer as JSON or, for people, as a table with a heading and rows.
func (a *asker) print(out io.Writer, answer any, heading string, rows ...string) error {
	if a.json {
		return json.NewEncoder(out).Encode(answer)
	}
	return printTable(out, heading, rows...)
}

// printTable writes rows under a heading; tabs part the columns.
func printTable(out io.Writer, heading string, rows ...string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, heading) // errors come with Flush
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, row)
	}
	return table.Flush()
}

// idOr returns the id given, or makes one and says so on the error stream: who gets no answer needs
// it to ask again.
func idOr(cmd *cobra.Command, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	id = rand.Text()
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "id: %s\n", id)
	return id, err
}

// named returns a client for a change, and the change's id as of [idOr].
func (a *asker) named(cmd *cobra.Command, id string) (*client.Client, string, error) {
	weir, err := a.client()
	if err != nil {
		return nil, "", err
	}
	id, err = idOr(cmd, id)
	return weir, id, err
}

// addIDFlag lets a change that needs an id be given one.
func addIDFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "id", "",
		"`name` of this "+cmd.Name()+" (default one that is made and printed)")
}

// wantArgs refuses any other number of arguments than those of the command's Use.
func wantArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("want: %s", cmd.UseLine())
		}
		return nil
	}
}

// parseAmount reads a number of units from the command line.
func parseAmount(name, text string) (*wire.Amount, error) {
	amount, ok := wire.ParseAmount(text)
	if !ok {
		return nil, fmt.Errorf("%s: %s: want a whole number from 0 to %d, in digits only, "+
			"or money as in 9.99", name, text, uint64(wire.MaxAmount))
	}
	return &amount, nil
}

// orDash prints a number that may not have been read.
func orDash[N wire.Amount | int64](n *N) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which weir this is",
		Args:  wantArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), describeBuild(info))
			return err
		},
	}
}

// describeBuild says what a program was built from, as far as the build noted it: `go run` notes no
// revision.
func describeBuild(info *debug.BuildInfo) string {
	settings := make(map[string]string, len(info.Settings))
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := firstOf(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		revision += " with changes"
	}
	return fmt.Sprintf("weir %s, revision %s, %s", firstOf(info.Main.Version, "(devel)"), revision,
		firstOf(info.GoVersion, "go unknown"))
}
