package embedded

import (
	"slices"

	"weir/ledgers"
)

// The machine is the ledger's rules and nothing else: it reads through a store, writes into its
// changes, and knows no files, no clock and no goroutines. Given the same store, the same events
// and the same timestamps it does the same. The rules are TigerBeetle's; where a status could be
// answered for several reasons, the order of the checks is the order of precedence.

// store is what the machine reads: everything that groups before this one have changed. A store
// that fails answers "nothing there" and remembers the failure, which discards the whole group.
type store interface {
	// account returns the account, to be changed in place, or nil.
	account(id ledgers.ID) *account
	// cached is account, but only if nothing has to be read for it.
	cached(id ledgers.ID) *account
	// transfer returns the transfer of an id, or that the id is burnt or unknown.
	transfer(id ledgers.ID) (ledgers.Transfer, presence)
	// ending returns how the pending transfer with this timestamp was ended.
	ending(pendingTimestamp uint64) ending
	// livePendings returns, ordered, up to limit pending transfers that were not ended by a post or
	// a void, from the key on; fewer than limit means that these are all.
	livePendings(from liveKey, limit int) []livePending
}

// presence says what is known of a transfer's id.
type presence int

const (
	unknown presence = iota
	burnt
	found
)

// account is an account in memory.
type account struct {
	ledgers.Account
	// asOf is the ledger time of the record that was read: all transfers and expiries up to it are
	// in the balance. Only the recovery after a crash looks at it.
	asOf uint64
	// dirtySince is the ledger time after which changes are missing in the stored record; 0 if
	// there are none.
	dirtySince uint64
	// used is set by every use and cleared by the cache's hand.
	used bool
}

// machine applies requests one after the other.
type machine struct {
	store store
	// last is the newest timestamp given to an event or shown to a reader.
	last uint64
	// base is the value of last when the present group began.
	base    uint64
	live    liveSet
	changes changes
	undo    undo
	// recovering is set while accounts may hold what the machine has yet to go through again.
	recovering bool
}

// changes is what the present group of requests has done and the store does not know yet.
type changes struct {
	accounts  []*account
	transfers []ledgers.Transfer
	burnt     []burntID
	endings   []endingChange
	// dirtied lists accounts that were clean when the group changed them.
	dirtied []*account
	// absent is what expiries take off accounts that were not in memory, until somebody asks for
	// the account.
	absent map[ledgers.ID]release
	// expired counts the pending transfers that timed out.
	expired int

	accountByID     map[ledgers.ID]*account
	transferByID    map[ledgers.ID]int32 // index into transfers; negative: burnt
	endingByPending map[uint64]ending
}

type burntID struct {
	id        ledgers.ID
	timestamp uint64
}

type endingChange struct {
	pendingTimestamp, end, timestamp uint64
	how                              ending
}

// undo remembers what a chain has changed until the chain is known to hold.
type undo struct {
	open                         bool
	accounts, transfers, endings int
	images                       []accountImage
}

type accountImage struct {
	of      *account
	content ledgers.Account
}

func newMachine(s store, last uint64) *machine {
	return &machine{store: s, last: last, base: last, changes: changes{
		accountByID:     map[ledgers.ID]*account{},
		transferByID:    map[ledgers.ID]int32{},
		endingByPending: map[uint64]ending{},
		absent:          map[ledgers.ID]release{},
	}}
}

// batch is the events of one request, accounts or transfers, and the results in the making.
type batch interface {
	len() int
	header(i int) eventHeader
	// create applies the event and answers; a time of 0 means the event's own.
	create(m *machine, i int, timestamp uint64) (status uint32, at uint64)
	answer(i int, status uint32, timestamp uint64)
	importedNotExpected() uint32
}

type eventHeader struct {
	linked, imported bool
	timestamp        uint64
}

// These statuses have one number for accounts and for transfers.
const (
	statusCreated             = uint32(ledgers.TransferCreated)
	statusLinkedEventFailed   = uint32(ledgers.TransferLinkedEventFailed)
	statusChainOpen           = uint32(ledgers.TransferLinkedEventChainOpen)
	statusTimestampMustBeZero = uint32(ledgers.TransferTimestampMustBeZero)
)

// execute applies a request whose first event has the timestamp first; what has timed out by then
// counts as expired. The last event gets the timestamp first + len - 1.
func (m *machine) execute(b batch, first uint64) {
	m.expire(first)
	n := b.len()
	chainStart, broken := -1, false
	for i := range n {
		timestamp := first + uint64(i)
		event := b.header(i)
		if event.linked && chainStart < 0 {
			chainStart = i
			m.openUndo()
		}
		status, at := m.executeEvent(b, i, timestamp, broken)
		if status != statusCreated && chainStart >= 0 && !broken {
			broken = true
			m.rollBack()
			for j := chainStart; j < i; j++ {
				b.answer(j, statusLinkedEventFailed, first+uint64(j))
			}
		}
		if at == 0 {
			at = timestamp
		}
		b.answer(i, status, at)
		m.burn(b, i, status, timestamp)
		if chainStart >= 0 && (!event.linked || i == n-1) {
			m.undo.open = false
			chainStart, broken = -1, false
		}
	}
	m.last = first + uint64(n) - 1
}

// executeEvent makes the checks that come before those of the event itself.
func (m *machine) executeEvent(b batch, i int, timestamp uint64, broken bool) (uint32, uint64) {
	event := b.header(i)
	switch {
	case event.linked && i == b.len()-1:
		return statusChainOpen, 0
	case broken:
		return statusLinkedEventFailed, 0
	case event.imported:
		// TigerBeetle's answer in a batch that did not begin with an imported event.
		return b.importedNotExpected(), 0
	case event.timestamp != 0:
		return statusTimestampMustBeZero, 0
	}
	return b.create(m, i, timestamp)
}

// burn remembers the id of a transfer that was refused for what the ledger holds just now. It
// outlives the chain that the refusal has broken.
func (m *machine) burn(b batch, i int, status uint32, timestamp uint64) {
	transfers, ok := b.(*transferBatch)
	if !ok || !ledgers.TransferStatus(status).Transient() {
		return
	}
	id := transfers.events[i].ID
	m.changes.burnt = append(m.changes.burnt, burntID{id: id, timestamp: timestamp})
	m.changes.transferByID[id] = -1
}

// account returns an account as the present group has it.
func (m *machine) account(id ledgers.ID) *account {
	if len(m.changes.accounts) > 0 {
		a, ok := m.changes.accountByID[id]
		if ok {
			return a
		}
	}
	a := m.store.account(id)
	if len(m.changes.absent) > 0 && a != nil {
		m.makeUp(a)
	}
	return a
}

// transfer returns what is known of a transfer's id.
func (m *machine) transfer(id ledgers.ID) (ledgers.Transfer, presence) {
	index, ok := m.changes.transferByID[id]
	switch {
	case !ok:
		return m.store.transfer(id)
	case index < 0:
		return ledgers.Transfer{}, burnt
	}
	return m.changes.transfers[index], found
}

func (m *machine) ending(pendingTimestamp uint64) ending {
	how, ok := m.changes.endingByPending[pendingTimestamp]
	if ok {
		return how
	}
	return m.store.ending(pendingTimestamp)
}

func (m *machine) addTransfer(t *ledgers.Transfer) {
	m.changes.transferByID[t.ID] = int32(len(m.changes.transfers))
	m.changes.transfers = append(m.changes.transfers, *t)
}

func (m *machine) addAccount(a *account) {
	m.changes.accountByID[a.ID] = a
	m.changes.accounts = append(m.changes.accounts, a)
}

func (m *machine) addEnding(e endingChange) {
	m.changes.endingByPending[e.pendingTimestamp] = e.how
	m.changes.endings = append(m.changes.endings, e)
}

func (m *machine) openUndo() {
	m.undo = undo{
		open:      true,
		accounts:  len(m.changes.accounts),
		transfers: len(m.changes.transfers),
		endings:   len(m.changes.endings),
		images:    m.undo.images[:0],
	}
}

// rollBack takes back what the chain has done. An account stays marked as dirty: to store it once
// more than needed does no harm.
func (m *machine) rollBack() {
	for _, image := range slices.Backward(m.undo.images) {
		image.of.Account = image.content
	}
	c := &m.changes
	for _, a := range c.accounts[m.undo.accounts:] {
		delete(c.accountByID, a.ID)
	}
	for i := range c.transfers[m.undo.transfers:] {
		delete(c.transferByID, c.transfers[m.undo.transfers+i].ID)
	}
	for _, e := range c.endings[m.undo.endings:] {
		delete(c.endingByPending, e.pendingTimestamp)
	}
	c.accounts = c.accounts[:m.undo.accounts]
	c.transfers = c.transfers[:m.undo.transfers]
	c.endings = c.endings[:m.undo.endings]
	m.undo.open = false
}

// finish ends the group: all that has timed out up to the last timestamp is expired, so that every
// balance in memory is exact as of then, and the live set learns what the group has done.
func (m *machine) finish() {
	m.expire(m.last)
	m.live.absorb(&m.changes)
}

// begin starts a new group after the changes of the one before were stored.
func (m *machine) begin() {
	c := &m.changes
	c.accounts, c.transfers = c.accounts[:0], c.transfers[:0]
	c.burnt, c.endings, c.dirtied = c.burnt[:0], c.endings[:0], c.dirtied[:0]
	c.expired = 0
	clear(c.accountByID)
	clear(c.transferByID)
	clear(c.endingByPending)
	clear(c.absent)
	m.base = m.last
}

const knownAccountFlags = ledgers.AccountLinked | ledgers.DebitsMustNotExceedCredits |
	ledgers.CreditsMustNotExceedDebits | ledgers.AccountHistory | ledgers.AccountImported |
	ledgers.AccountClosed

// accountBatch is one CreateAccounts.
type accountBatch struct {
	events  []ledgers.Account
	results []ledgers.AccountResult
}

func (b *accountBatch) len() int { return len(b.events) }

func (b *accountBatch) header(i int) eventHeader {
	e := &b.events[i]
	return eventHeader{
		linked:    e.Flags&ledgers.AccountLinked != 0,
		imported:  e.Flags&ledgers.AccountImported != 0,
		timestamp: e.Timestamp,
	}
}

func (b *accountBatch) create(m *machine, i int, timestamp uint64) (uint32, uint64) {
	status, at := m.createAccount(&b.events[i], timestamp)
	return uint32(status), at
}

func (b *accountBatch) answer(i int, status uint32, timestamp uint64) {
	b.results[i] = ledgers.AccountResult{
		Status: ledgers.AccountStatus(status), Timestamp: timestamp,
	}
}

func (*accountBatch) importedNotExpected() uint32 {
	return uint32(ledgers.AccountImportedEventNotExpected)
}

// createAccount returns the status and, for `exists`, the time of the first creation.
func (m *machine) createAccount(
	a *ledgers.Account, timestamp uint64,
) (ledgers.AccountStatus, uint64) {
	switch {
	case a.Flags&^knownAccountFlags != 0:
		return ledgers.AccountReservedFlag, 0
	case a.ID.IsZero():
		return ledgers.AccountIDMustNotBeZero, 0
	case a.ID == ledgers.MaxID:
		return ledgers.AccountIDMustNotBeIntMax, 0
	}
	existing := m.account(a.ID)
	if existing != nil {
		return accountExists(a, &existing.Account)
	}
	const limits = ledgers.DebitsMustNotExceedCredits | ledgers.CreditsMustNotExceedDebits
	switch {
	case a.Flags&limits == limits:
		return ledgers.AccountFlagsAreMutuallyExclusive, 0
	case !a.DebitsPending.IsZero():
		return ledgers.AccountDebitsPendingMustBeZero, 0
	case !a.DebitsPosted.IsZero():
		return ledgers.AccountDebitsPostedMustBeZero, 0
	case !a.CreditsPending.IsZero():
		return ledgers.AccountCreditsPendingMustBeZero, 0
	case !a.CreditsPosted.IsZero():
		return ledgers.AccountCreditsPostedMustBeZero, 0
	case a.Ledger == 0:
		return ledgers.AccountLedgerMustNotBeZero, 0
	case a.Code == 0:
		return ledgers.AccountCodeMustNotBeZero, 0
	}
	created := &account{Account: *a, asOf: timestamp, used: true}
	created.Timestamp = timestamp
	m.addAccount(created)
	return ledgers.AccountCreated, 0
}

// accountExists compares an account to create with the one that has its id.
func accountExists(a, e *ledgers.Account) (ledgers.AccountStatus, uint64) {
	switch {
	case a.Flags != e.Flags:
		return ledgers.AccountExistsWithDifferentFlags, 0
	case a.UserData128 != e.UserData128:
		return ledgers.AccountExistsWithDifferentUserData128, 0
	case a.UserData64 != e.UserData64:
		return ledgers.AccountExistsWithDifferentUserData64, 0
	case a.UserData32 != e.UserData32:
		return ledgers.AccountExistsWithDifferentUserData32, 0
	case a.Ledger != e.Ledger:
		return ledgers.AccountExistsWithDifferentLedger, 0
	case a.Code != e.Code:
		return ledgers.AccountExistsWithDifferentCode, 0
	}
	return ledgers.AccountExists, e.Timestamp
}
