package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

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
