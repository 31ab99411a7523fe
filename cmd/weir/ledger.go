package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
)

// driverEmbedded is the ledger in this process.
const driverEmbedded = "embedded"

// driver is a kind of ledger, as this process runs it.
type driver struct {
	// open opens the ledger that a config names.
	open func(*config, *slog.Logger, prometheus.Registerer) (ledgers.Driver, error)
	// describe says which ledger it is, for people.
	describe func(*config) string
	// gone reports whether an error says that the ledger will not answer again unless this process
	// opens it anew.
	gone func(error) bool
}

// driverNamed returns the driver that a config names. This is the only choice between them.
func driverNamed(name string) (driver, error) {
	switch name {
	case driverEmbedded:
		return driver{openEmbedded, describeEmbedded, goneEmbedded}, nil
	case "tigerbeetle":
		return driver{}, fmt.Errorf("%q: this build has no such driver: use %s", name, driverEmbedded)
	default:
		return driver{}, fmt.Errorf("%q: want %s", name, driverEmbedded)
	}
}

func openEmbedded(c *config, logger *slog.Logger, registerer prometheus.Registerer,
) (ledgers.Driver, error) {
	return embedded.Open(c.Data, &embedded.Options{
		Retention:  c.Retention,
		KeepCodes:  accounts.QuotaCodes(),
		Logger:     logger,
		Registerer: registerer,
	})
}

func goneEmbedded(err error) bool {
	return errors.Is(err, embedded.ErrFailed) || errors.Is(err, embedded.ErrCorrupt)
}

func describeEmbedded(c *config) string { return "embedded in " + c.Data }
