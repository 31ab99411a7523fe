package accounts

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"weir/ledgers"
)

// Namespace separates the ids of deployments that share a ledger. Every id that is not random is a
// name-based UUID (version 8, SHA-256) in it. The derivations below are a published promise, pinned
// by golden tables: the same names give the same ids for ever.
type Namespace uuid.UUID

// ParseNamespace reads a namespace as a UUID in its usual spelling.
func ParseNamespace(s string) (Namespace, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return Namespace{}, fmt.Errorf("namespace %q is not a UUID: %w", s, err)
	}
	return Namespace(id), nil
}

// name builds what is hashed: room for the namespace, then the kind and each part, each behind its
// length, so that no two lists of parts give the same bytes, whatever separators they hold.
type name []byte

func nameOf(kind string) name { return make(name, len(Namespace{}), 160).text(kind) }

func (n name) text(part string) name {
	n = binary.BigEndian.AppendUint32(n, uint32(len(part)))
	return append(n, part...)
}

func (n name) id(id ledgers.ID) name {
	b := id.Bytes()
	n = binary.BigEndian.AppendUint32(n, uint32(len(b)))
	return append(n, b[:]...)
}

func (n name) number(v uint64) name {
	n = binary.BigEndian.AppendUint32(n, 8)
	return binary.BigEndian.AppendUint64(n, v)
}

func (ns Namespace) hash(n name) ledgers.ID {
	copy(n, ns[:])
	sum := sha256.Sum256(n) // as uuid.NewHash does it, but for the allocations
	id := [16]byte(sum[:])
	id[6] = id[6]&0x0f | 8<<4 // version 8
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return ledgers.IDFromBytes(id)
}

// UserAccount is the account of a subject on a limit.
func (ns Namespace) UserAccount(limit, subject string) ledgers.ID {
	return ns.hash(nameOf("account").text(limit).text(subject))
}

// OperatorAccount is the account that grants a limit's quota.
func (ns Namespace) OperatorAccount(limit string) ledgers.ID {
	return ns.hash(nameOf("operator").text(limit))
}

// OverageAccount is the account of what a subject used beyond its quota.
func (ns Namespace) OverageAccount(limit, subject string) ledgers.ID {
	return ns.hash(nameOf("overage").text(limit).text(subject))
}

// QuotaStep is the n-th quota step of a user account; 0 is the first quota.
func (ns Namespace) QuotaStep(account ledgers.ID, n uint64) ledgers.ID {
	return ns.hash(nameOf("quota").id(account).number(n))
}

// GrantTransfer is the grant or the revocation that a caller named id for a subject of a limit.
// Both share one name: an id names one change.
func (ns Namespace) GrantTransfer(limit, subject, id string) ledgers.ID {
	return ns.hash(nameOf("grant").text(limit).text(subject).text(id))
}

// MoneyAccount is the account of a subject's money of an asset.
func (ns Namespace) MoneyAccount(asset, subject string) ledgers.ID {
	return ns.hash(nameOf("account").text("asset").text(asset).text(subject))
}

// TreasuryAccount is the account that an asset's money comes from and goes to.
func (ns Namespace) TreasuryAccount(asset string) ledgers.ID {
	return ns.hash(nameOf("operator").text("asset").text(asset))
}

// DepositTransfer is the deposit or the withdrawal that a caller named id for a subject's money.
// Both share one name: an id names one change.
func (ns Namespace) DepositTransfer(asset, subject, id string) ledgers.ID {
	return ns.hash(nameOf("grant").text("asset").text(asset).text(subject).text(id))
}

// MoneyTransfer is the payment that a caller named id for a subject that pays. Its chain's other
// members are (member, this, k) for k = 1, 2, ...
func (ns Namespace) MoneyTransfer(asset, from, id string) ledgers.ID {
	return ns.hash(nameOf("money").text(asset).text(from).text(id))
}

// attemptTransfer is the first transfer of the check, or of the hold, that a caller named id. The
// id is scoped to the set of accounts that the request names, sorted by account id; that of a call
// with notes to the account that they are on.
func (ns Namespace) attemptTransfer(kind, id string, sorted []Charge) ledgers.ID {
	n := nameOf(kind).text(id)
	for _, c := range sorted {
		n = n.text(c.Limit.Name).text(c.Subject)
	}
	return ns.hash(n)
}

// MemberTransfer is member k > 0 of the chain whose first charge is first.
func (ns Namespace) MemberTransfer(first ledgers.ID, k int) ledgers.ID {
	return ns.hash(nameOf("member").id(first).number(uint64(k)))
}

// memberIDs are the ids of all members that a chain may have behind its first.
func (ns Namespace) memberIDs(first ledgers.ID) []ledgers.ID {
	ids := make([]ledgers.ID, maxCharges-1)
	for i := range ids {
		ids[i] = ns.MemberTransfer(first, i+1)
	}
	return ids
}

// EndTransfer is whatever ends a pending transfer: all ends compete for this one id.
func (ns Namespace) EndTransfer(pending ledgers.ID) ledgers.ID {
	return ns.hash(nameOf("end").id(pending))
}

// NoteTransfer is the k-th note beside what has the given id.
func (ns Namespace) NoteTransfer(beside ledgers.ID, k uint64) ledgers.ID {
	return ns.hash(nameOf("note").id(beside).number(k))
}

// correction is what the notes of a correction stand beside, which a caller named id, of what a
// reservation took.
func (ns Namespace) correction(reservation ledgers.ID, id string) ledgers.ID {
	return ns.hash(nameOf("correction").id(reservation).text(id))
}

// fingerprint condenses what a request asks, so that the same id with other amounts is told from
// the same request sent again.
func (ns Namespace) fingerprint(kind string, sorted []Charge, sent ...string) ledgers.Amount {
	n := nameOf(kind)
	for _, c := range sorted {
		n = n.text(c.Limit.Name).text(c.Subject).number(c.Amount)
	}
	for _, part := range sent {
		n = n.text(part)
	}
	return ledgers.Amount(ns.hash(n))
}

// NameAccount is the k-th account that keeps a part of the subject's name of a user account.
func (ns Namespace) NameAccount(account ledgers.ID, k int) ledgers.ID {
	return ns.hash(nameOf("name").id(account).number(uint64(k)))
}

// moneyFingerprint is the fingerprint of a movement of money between subjects, and of what it takes
// from limits.
func (ns Namespace) moneyFingerprint(
	kind, asset string, subjects []string, amount ledgers.Amount, sorted []Charge,
) ledgers.Amount {
	n := nameOf(kind).text(asset)
	for _, subject := range subjects {
		n = n.text(subject)
	}
	n = n.id(ledgers.ID(amount))
	for _, c := range sorted {
		n = n.text(c.Limit.Name).text(c.Subject).number(c.Amount)
	}
	return ledgers.Amount(ns.hash(n))
}

// NewTransfer returns an id for a transfer that no caller named: a UUID of version 7, so that later
// ids are larger numbers, which ledgers store best.
func NewTransfer() (ledgers.ID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return ledgers.ID{}, fmt.Errorf("random id: %w", err)
	}
	return ledgers.IDFromBytes(id), nil
}
