package accounts

import "errors"

var (
	// ErrStatus is wrapped by every call that the ledger answered with a status that this package
	// does not expect: the chart has changed under the data, or somebody else writes to the ledger.
	ErrStatus = errors.New("unexpected answer of the ledger")
	// ErrContended is returned when other nodes changed the same subject's quota so often that the
	// bounded number of tries was used up. Nothing was charged.
	ErrContended = errors.New("the quota of the subject keeps changing")
	// ErrLedgerNumber is returned by Chart for a ledger number that is zero or taken twice.
	ErrLedgerNumber = errors.New("ledger number")
	// ErrAsset is wrapped by the error for an asset whose money is on the ledger, and is something
	// else there than the config says.
	ErrAsset = errors.New("not the asset that there is money of")
	// ErrCalendar is wrapped by the error of a calendar that cannot be.
	ErrCalendar = errors.New("calendar refused")
	// ErrUnknownLimit is returned for a receipt whose limit is not among those asked about.
	ErrUnknownLimit = errors.New("the receipt is of an unknown limit")
	// ErrFarBehind is returned for a receipt that was renewed so often that the newest one is not
	// found by it.
	ErrFarBehind = errors.New("the receipt was renewed too often since")
)
