//go:build cgo

package tigerbeetle

import (
	"encoding/binary"
	"errors"
	"fmt"

	client "github.com/tigerbeetle/tigerbeetle-go"
	"lukechampine.com/uint128"

	"weir/ledgers"
)

// clientConn is a session of tigerbeetle-go.
type clientConn struct{ client client.Client }

// dial opens a session. It registers with the cluster on its own; requests wait for that.
func dial(addresses []string, clusterID ledgers.Amount) (conn, error) {
	c, err := client.NewClient(toUint128(clusterID), addresses)
	switch {
	case err == nil:
		return &clientConn{client: c}, nil
	case errors.Is(err, client.ErrInvalidAddress), errors.Is(err, client.ErrAddressLimitExceeded):
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	default:
		return nil, fmt.Errorf("%w: %w", ErrClient, err)
	}
}

func (c *clientConn) close() { c.client.Close() }

func (c *clientConn) createAccounts(parts [][]ledgers.Account) ([]ledgers.AccountResult, error) {
	return request(parts, toAccount, c.client.CreateAccounts, fromAccountResult)
}

func (c *clientConn) createTransfers(parts [][]ledgers.Transfer) ([]ledgers.TransferResult, error) {
	return request(parts, toTransfer, c.client.CreateTransfers, fromTransferResult)
}

func (c *clientConn) lookupAccounts(parts [][]ledgers.ID) ([]ledgers.Account, error) {
	return request(parts, toID, c.client.LookupAccounts, fromAccount)
}

func (c *clientConn) lookupTransfers(parts [][]ledgers.ID) ([]ledgers.Transfer, error) {
	return request(parts, toID, c.client.LookupTransfers, fromTransfer)
}

func (c *clientConn) accountTransfers(filter ledgers.AccountFilter) ([]ledgers.Transfer, error) {
	found, err := c.client.GetAccountTransfers(toFilter(filter))
	if err != nil {
		return nil, sessionError(err)
	}
	return convert(found, fromTransfer), nil
}

// request sends the parts together.
func request[E, sent, received, R any](
	parts [][]E, to func(*E) sent, send func([]sent) ([]received, error), from func(*received) R,
) ([]R, error) {
	count := 0
	for _, part := range parts {
		count += len(part)
	}
	events := make([]sent, 0, count)
	for _, part := range parts {
		for i := range part {
			events = append(events, to(&part[i]))
		}
	}
	answers, err := send(events)
	if err != nil {
		return nil, sessionError(err)
	}
	return convert(answers, from), nil
}

func convert[A, B any](as []A, one func(*A) B) []B {
	bs := make([]B, len(as))
	for i := range as {
		bs[i] = one(&as[i])
	}
	return bs
}

// sessionError tells what an error of the client means for the session. Evicted is who had a
// request waiting or under way when the session ended; who comes later finds it closed.
func sessionError(err error) error {
	switch {
	case errors.Is(err, client.ErrTooMuchData):
		return errTooMuchData
	case errors.Is(err, client.ErrClientEvicted):
		return ErrEvicted
	case errors.Is(err, client.ErrClientReleaseTooLow), errors.Is(err, client.ErrClientReleaseTooHigh):
		return fmt.Errorf("%w: %w: %w", ErrEvicted, ErrRelease, err)
	case errors.Is(err, client.ErrClientClosed):
		return errSessionOver
	default:
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
}

// The client keeps a number of 128 bits as its bytes, least significant first.

func toUint128(n ledgers.Amount) client.Uint128 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], n.Lo)
	binary.LittleEndian.PutUint64(b[8:], n.Hi)
	return client.BytesToUint128(b)
}

func fromUint128(n client.Uint128) ledgers.Amount {
	b := n.Bytes()
	return uint128.New(binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]))
}

func toID(id *ledgers.ID) client.Uint128 { return toUint128(ledgers.Amount(*id)) }

func fromID(id client.Uint128) ledgers.ID { return ledgers.ID(fromUint128(id)) }

func toAccount(a *ledgers.Account) client.Account {
	return client.Account{
		ID:             toID(&a.ID),
		DebitsPending:  toUint128(a.DebitsPending),
		DebitsPosted:   toUint128(a.DebitsPosted),
		CreditsPending: toUint128(a.CreditsPending),
		CreditsPosted:  toUint128(a.CreditsPosted),
		UserData128:    toUint128(a.UserData128),
		UserData64:     a.UserData64,
		UserData32:     a.UserData32,
		Ledger:         a.Ledger,
		Code:           a.Code,
		Flags:          uint16(a.Flags),
		Timestamp:      a.Timestamp,
	}
}

func fromAccount(a *client.Account) ledgers.Account {
	return ledgers.Account{
		ID:             fromID(a.ID),
		DebitsPending:  fromUint128(a.DebitsPending),
		DebitsPosted:   fromUint128(a.DebitsPosted),
		CreditsPending: fromUint128(a.CreditsPending),
		CreditsPosted:  fromUint128(a.CreditsPosted),
		UserData128:    fromUint128(a.UserData128),
		UserData64:     a.UserData64,
		UserData32:     a.UserData32,
		Ledger:         a.Ledger,
		Code:           a.Code,
		Flags:          ledgers.AccountFlags(a.Flags),
		Timestamp:      a.Timestamp,
	}
}

func toTransfer(t *ledgers.Transfer) client.Transfer {
	return client.Transfer{
		ID:              toID(&t.ID),
		DebitAccountID:  toID(&t.DebitAccountID),
		CreditAccountID: toID(&t.CreditAccountID),
		Amount:          toUint128(t.Amount),
		PendingID:       toID(&t.PendingID),
		UserData128:     toUint128(t.UserData128),
		UserData64:      t.UserData64,
		UserData32:      t.UserData32,
		Timeout:         t.Timeout,
		Ledger:          t.Ledger,
		Code:            t.Code,
		Flags:           uint16(t.Flags),
		Timestamp:       t.Timestamp,
	}
}

func fromTransfer(t *client.Transfer) ledgers.Transfer {
	return ledgers.Transfer{
		ID:              fromID(t.ID),
		DebitAccountID:  fromID(t.DebitAccountID),
		CreditAccountID: fromID(t.CreditAccountID),
		Amount:          fromUint128(t.Amount),
		PendingID:       fromID(t.PendingID),
		UserData128:     fromUint128(t.UserData128),
		UserData64:      t.UserData64,
		UserData32:      t.UserData32,
		Timeout:         t.Timeout,
		Ledger:          t.Ledger,
		Code:            t.Code,
		Flags:           ledgers.TransferFlags(t.Flags),
		Timestamp:       t.Timestamp,
	}
}

// The numbers of the statuses are the same on both sides; Ledger refuses those it does not know.

func fromAccountResult(r *client.CreateAccountResult) ledgers.AccountResult {
	return ledgers.AccountResult{Timestamp: r.Timestamp, Status: ledgers.AccountStatus(r.Status)}
}

func fromTransferResult(r *client.CreateTransferResult) ledgers.TransferResult {
	return ledgers.TransferResult{Timestamp: r.Timestamp, Status: ledgers.TransferStatus(r.Status)}
}

func toFilter(f ledgers.AccountFilter) client.AccountFilter {
	flags := client.AccountFilterFlags{Debits: f.Debits, Credits: f.Credits, Reversed: f.Reversed}
	return client.AccountFilter{
		AccountID:    toID(&f.AccountID),
		Code:         f.Code,
		TimestampMin: f.TimestampMin,
		TimestampMax: f.TimestampMax,
		Limit:        f.Limit,
		Flags:        flags.ToUint32(),
	}
}
