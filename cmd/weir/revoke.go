package main

import (
	"github.com/spf13/cobra"

	"weir/api/client"
)

func newRevokeCommand() *cobra.Command {
	cmd := newChangeCommand("revoke", (*client.Client).Revoke)
	cmd.Short = "Lower one subject's quota for good"
	cmd.Long = `Lower one subject's quota for good, by no more than is free now.
The same id sent again is answered the same and revoked once, for ever.`
	return cmd
}
