// Command weir is a quota and rate-limit service in which every decision is a ledger entry, and the
// tools that go with it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // time zones are the same on any machine

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(runCommand(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
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
