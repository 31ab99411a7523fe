//go:build cgo

package tigerbeetle

import (
	"context"

	client "github.com/tigerbeetle/tigerbeetle-go"

	"weir/ledgers"
)

// The conversions, for tests outside.
var (
	ToUint128          = toUint128
	FromUint128        = fromUint128
	SessionError       = sessionError
	FromAccountResult  = fromAccountResult
	FromTransferResult = fromTransferResult
	ToFilter           = toFilter
)

// Converted is a driver that has everything pass through the client's types on its way to a ledger
// and back, as it does on its way to a cluster.
type Converted struct{ ledgers.Driver }

// CreateAccounts implements [ledgers.Driver].
func (c Converted) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	results, err := c.Driver.CreateAccounts(ctx, convert(convert(accounts, toAccount), fromAccount))
	return convert(results, func(r *ledgers.AccountResult) ledgers.AccountResult {
		return fromAccountResult(&client.CreateAccountResult{
			Timestamp: r.Timestamp, Status: client.CreateAccountStatus(r.Status),
		})
	}), err
}

// CreateTransfers implements [ledgers.Driver].
func (c Converted) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	results, err := c.Driver.CreateTransfers(ctx,
		convert(convert(transfers, toTransfer), fromTransfer))
	return convert(results, func(r *ledgers.TransferResult) ledgers.TransferResult {
		return fromTransferResult(&client.CreateTransferResult{
			Timestamp: r.Timestamp, Status: client.CreateTransferStatus(r.Status),
		})
	}), err
}

// LookupAccounts implements [ledgers.Driver].
func (c Converted) LookupAccounts(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	found, err := c.Driver.LookupAccounts(ctx, idsThere(ids))
	return convert(convert(found, toAccount), fromAccount), err
}

// LookupTransfers implements [ledgers.Driver].
func (c Converted) LookupTransfers(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Transfer, error) {
	found, err := c.Driver.LookupTransfers(ctx, idsThere(ids))
	return convert(convert(found, toTransfer), fromTransfer), err
}

// AccountTransfers implements [ledgers.Driver].
func (c Converted) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	sent := toFilter(filter)
	flags := sent.AccountFilterFlags()
	found, err := c.Driver.AccountTransfers(ctx, ledgers.AccountFilter{
		AccountID: fromID(sent.AccountID), Code: sent.Code, Limit: sent.Limit,
		TimestampMin: sent.TimestampMin, TimestampMax: sent.TimestampMax,
		Debits: flags.Debits, Credits: flags.Credits, Reversed: flags.Reversed,
	})
	return convert(convert(found, toTransfer), fromTransfer), err
}

func idsThere(ids []ledgers.ID) []ledgers.ID {
	return convert(convert(ids, toID), func(id *client.Uint128) ledgers.ID { return fromID(*id) })
}
