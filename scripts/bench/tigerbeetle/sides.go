package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	client "github.com/tigerbeetle/tigerbeetle-go"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

const (
	limitName = "bench"
	// quota is what nobody uses up.
	quota = 1 << 40
	// patience is what a call may take: nothing is to be given up.
	patience = 30 * time.Second
)

// weirSide checks through the limiter, on all that stands below it in service.
type weirSide struct {
	ledger   *guard.Guard
	limiter  *limiter.Limiter
	subjects []string
}

// openWeir builds a limiter on the cluster as `weir serve` does.
func openWeir(cluster *tbtest.Cluster, s settings) (*weirSide, error) {
	registry := prometheus.NewRegistry()
	session, err := tigerbeetle.Open(cluster.Addresses(), cluster.ID(),
		&tigerbeetle.Options{Registerer: registry})
	if err != nil {
		return nil, err
	}
	guarded, err := guard.New(session, &guard.Options{Deadline: patience, Registerer: registry})
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	w := &weirSide{ledger: guarded}
	err = w.build(registry, s)
	if err != nil {
		return nil, errors.Join(err, guarded.Close())
	}
	return w, nil
}

func (w *weirSide) build(registry *prometheus.Registry, s settings) error {
	err := w.ledger.Probe(context.Background())
	if err != nil {
		return err
	}
	book, err := accounts.NewBook(w.ledger, accounts.Namespace{9}, &accounts.Options{Shared: true})
	if err != nil {
		return err
	}
	limits, err := limiter.NewLimits(1, []limiter.Limit{{
		Name: limitName, Kind: limiter.RequestRate, Quota: quota, Window: s.window,
		Deadline: patience,
	}})
	if err != nil {
		return err
	}
	w.limiter, err = limiter.New(book, limits, &limiter.Options{
		Shared: true, Lag: 50 * time.Millisecond, Registerer: registry,
	})
	for i := range s.subjects {
		w.subjects = append(w.subjects, fmt.Sprint("subject ", i))
	}
	return err
}

func (*weirSide) name() string { return "limiter" }

func (w *weirSide) check(ctx context.Context, subject int) error {
	d, err := w.limiter.Check(ctx, limiter.Request{Members: []limiter.Member{
		{Limit: limitName, Subject: w.subjects[subject], Cost: 1},
	}})
	if err != nil {
		return err
	}
	if !d.Allowed || !d.Limits[0].Known {
		return fmt.Errorf("%w: %+v", errAnswer, d)
	}
	return nil
}

// bareSide makes the calls of a check by itself.
type bareSide struct {
	client   client.Client
	operator client.Uint128
	users    []client.Uint128
	ledger   uint32
	seconds  uint32
}

// openBare opens a session of its own, for the accounts that the limiter has opened.
func openBare(cluster *tbtest.Cluster, s settings) (*bareSide, error) {
	bare, err := client.NewClient(client.ToUint128(cluster.ID().Lo), cluster.Addresses())
	if err != nil {
		return nil, err
	}
	b := &bareSide{
		client: bare, ledger: accounts.LedgerNumber(limitName), seconds: uint32(s.window.Seconds()),
	}
	names := accounts.Namespace{9}
	b.operator = number(names.OperatorAccount(limitName))
	for i := range s.subjects {
		b.users = append(b.users, number(names.UserAccount(limitName, fmt.Sprint("subject ", i))))
	}
	return b, nil
}

// number is an id in the client's words.
func number(id ledgers.ID) client.Uint128 {
	var bytes [16]byte
	binary.LittleEndian.PutUint64(bytes[:8], id.Lo)
	binary.LittleEndian.PutUint64(bytes[8:], id.Hi)
	return client.BytesToUint128(bytes)
}

func (*bareSide) name() string { return "bare client" }

func (b *bareSide) check(_ context.Context, subject int) error {
	results, err := b.client.CreateTransfers([]client.Transfer{{
		ID:              client.ID(),
		DebitAccountID:  b.users[subject],
		CreditAccountID: b.operator,
		Amount:          client.ToUint128(1),
		Ledger:          b.ledger,
		Code:            accounts.CodeCharge,
		Timeout:         b.seconds,
		Flags:           client.TransferFlags{Pending: true}.ToUint16(),
	}})
	if err != nil {
		return err
	}
	if results[0].Status != client.TransferCreated {
		return fmt.Errorf("%w: %v", errAnswer, results[0].Status)
	}
	found, err := b.client.LookupAccounts([]client.Uint128{b.users[subject]})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%w: %d accounts", errAnswer, len(found))
	}
	return nil
}

// driverSide makes the calls of a check through the driver, as the limiter does.
type driverSide struct {
	driver   ledgers.Driver
	operator ledgers.ID
	users    []ledgers.ID
	ledger   uint32
	seconds  uint32
}

func newDriverSide(driver ledgers.Driver, s settings) *driverSide {
	names := accounts.Namespace{9}
	d := &driverSide{
		driver: driver, operator: names.OperatorAccount(limitName),
		ledger: accounts.LedgerNumber(limitName), seconds: uint32(s.window.Seconds()),
	}
	for i := range s.subjects {
		d.users = append(d.users, names.UserAccount(limitName, fmt.Sprint("subject ", i)))
	}
	return d
}

func (*driverSide) name() string { return "driver" }

func (d *driverSide) check(ctx context.Context, subject int) error {
	id, err := accounts.NewTransfer()
	if err != nil {
		return err
	}
	results, err := d.driver.CreateTransfers(ctx, []ledgers.Transfer{{
		ID: id, DebitAccountID: d.users[subject], CreditAccountID: d.operator,
		Amount: ledgers.AmountOf(1), Ledger: d.ledger, Code: accounts.CodeCharge,
		Timeout: d.seconds, Flags: ledgers.Pending,
	}})
	if err != nil {
		return err
	}
	if results[0].Status != ledgers.TransferCreated {
		return fmt.Errorf("%w: %v", errAnswer, results[0].Status)
	}
	found, err := d.driver.LookupAccounts(ctx, []ledgers.ID{d.users[subject]})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%w: %d accounts", errAnswer, len(found))
	}
	return nil
}
