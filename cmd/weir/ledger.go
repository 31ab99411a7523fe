package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"lukechampine.com/uint128"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/tigerbeetle"
)

// The drivers, as a config names them.
const (
	driverEmbedded    = "embedded"    // the ledger in this process
	driverTigerBeetle = "tigerbeetle" // a cluster, which other nodes may share
)

// tigerbeetleLag is how much later than its time-out TigerBeetle gives units back while it has a
// primary. Without one nothing is given back until the replicas have agreed on another.
const tigerbeetleLag = 50 * time.Millisecond

// driver is a kind of ledger, as this process runs it.
type driver struct {
	// open opens the ledger that a config names.
	open func(*config, *slog.Logger, prometheus.Registerer) (ledgers.Driver, error)
	// describe says which ledger it is, for people.
	describe func(*config) string
	// gone reports whether an error says that the ledger will not answer again unless this process
	// opens it anew.
	gone func(error) bool
	// shared says that other processes may write to the ledger.
	shared bool
	// keepsAll says that the ledger deletes nothing, so that no retention means anything to it.
	keepsAll bool
	// lag is how much later than its time-out the ledger gives units back.
	lag time.Duration
}

// drivers are all there are. This is the only choice between them.
var drivers = map[string]driver{
	driverEmbedded: {
		open: openEmbedded, describe: describeEmbedded, gone: goneEmbedded,
	},
	driverTigerBeetle: {
		open: openTigerBeetle, describe: describeTigerBeetle,
		gone:   func(error) bool { return false }, // sessions are opened again
		shared: true, keepsAll: true, lag: tigerbeetleLag,
	},
}

// cluster is where a TigerBeetle is found.
type cluster struct {
	ID        ledgers.Amount
	Addresses []string // of each replica, in their order
}

// missing says of each setting that a shared ledger cannot do without why that is.
var missing = []struct{ key, why string }{
	{"ledger.cluster", "the cluster's id, a whole number"},
	{"ledger.addresses", "IP:PORT of each replica, in the replicas' order"},
	{"namespace", "the ids on a shared ledger are made from it, so a deployment has its own: " +
		"a UUID, the same on all its nodes and for ever"},
	{"revision", "of nodes with different configs the highest revision counts, so raise it " +
		"with every change of a quota"},
}

// readLedger reads which ledger it is. Settings that mean nothing to its driver are refused.
func (c *config) readLedger(s *settingReader) {
	name := s.text("ledger.driver")
	known := false
	c.Driver, known = drivers[name]
	switch {
	case !known:
		s.note("ledger.driver",
			fmt.Errorf("%q: want %s or %s", name, driverEmbedded, driverTigerBeetle))
	case name == driverEmbedded:
		for _, key := range []string{"ledger.cluster", "ledger.addresses"} {
			if s.given(key) {
				s.note(key, fmt.Errorf("means nothing to the driver %s: set ledger.driver to %s, or "+
					"leave it out", driverEmbedded, driverTigerBeetle))
			}
		}
	default:
		for _, m := range missing {
			if !s.given(m.key) {
				s.note(m.key, fmt.Errorf("is missing, and the driver %s needs it: %s", name, m.why))
			}
		}
		if s.given("retention") && s.duration("retention") != 0 {
			s.note("retention", fmt.Errorf("means nothing to the driver %s, which keeps every "+
				"transfer: leave it out", name))
		}
		if s.err == nil {
			c.Cluster = s.cluster()
		}
	}
}

// cluster reads the settings of a TigerBeetle.
func (s *settingReader) cluster() cluster {
	id, err := asClusterID(s.get("ledger.cluster"))
	s.note("ledger.cluster", err)
	addresses, err := asAddresses(s.get("ledger.addresses"))
	s.note("ledger.addresses", err)
	return cluster{ID: id, Addresses: addresses}
}

// asClusterID reads a whole number of 128 bits.
func asClusterID(value any) (ledgers.Amount, error) {
	text := asDigits(value)
	id, ok := new(big.Int).SetString(text, 10)
	if !ok || id.Cmp(ledgers.MaxAmount.Big()) > 0 {
		return ledgers.Amount{}, fmt.Errorf("%v: want a whole number from 0 to 2^128-1, in digits only",
			value)
	}
	return uint128.FromBig(id), nil
}

// asAddresses reads the addresses of replicas: a list, or a text in which commas part them.
func asAddresses(value any) ([]string, error) {
	list, isList := value.([]any)
	if !isList {
		text, err := asText(value)
		if err != nil {
			return nil, err
		}
		for address := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(address))
		}
	}
	var addresses []string
	for _, item := range list {
		address, _ := item.(string)
		at, err := netip.ParseAddrPort(address)
		if err != nil || at.Port() == 0 {
			return nil, fmt.Errorf("%v: want an IP address and a port, as in 127.0.0.1:3001; names are "+
				"not looked up", item)
		}
		if slices.Contains(addresses, address) {
			return nil, fmt.Errorf("%s: is there twice", address)
		}
		addresses = append(addresses, address)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("there are none")
	}
	return addresses, nil
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

func openTigerBeetle(c *config, logger *slog.Logger, registerer prometheus.Registerer,
) (ledgers.Driver, error) {
	ledger, err := tigerbeetle.Open(c.Cluster.Addresses, c.Cluster.ID,
		&tigerbeetle.Options{Logger: logger, Registerer: registerer})
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", describeTigerBeetle(c), err)
	}
	return ledger, nil
}

func describeTigerBeetle(c *config) string {
	return fmt.Sprintf("%s cluster %v at %s", driverTigerBeetle, c.Cluster.ID,
		strings.Join(c.Cluster.Addresses, ","))
}
