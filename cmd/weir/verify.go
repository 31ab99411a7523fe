package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/limiter"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at the config",
		Args:  wantArgs(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand())
	return cmd
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
			return printRules(cmd.OutOrStdout(), c.Limits)
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
