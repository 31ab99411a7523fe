package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
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
			var rows []string
			for _, l := range c.Limits.All() {
				rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%v\t%d",
					l.Name, l.Kind, l.Quota, l.Window, l.Ledger))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "config %s is sound\n", c.Path)
			if err != nil {
				return err
			}
			return printTable(cmd.OutOrStdout(), "LIMIT\tKIND\tQUOTA\tWINDOW\tLEDGER", rows...)
		},
	}
	addConfigFlag(cmd)
	return cmd
}
