package limiter

import (
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"weir/accounts"
	"weir/ledgers"
)

// Bounds of what is remembered of exhausted accounts.
const (
	// rememberedAccounts is how many of them; a forgotten one costs one more write.
	rememberedAccounts = 1 << 16
	// rememberShared bounds for how long, where other nodes may give units back unseen.
	rememberShared = time.Second
	// bypasses is how many checks with an id may ask the ledger all the same, a subject and second.
	bypasses = 10
)

// memory remembers which accounts are exhausted, so that a flood of requests which the ledger would
// refuse does not write. It never lets a request pass: it only says no where the ledger just did
// and nothing can have come back since.
type memory struct {
	shared bool

	mu       sync.Mutex
	accounts *lru.Cache[ledgers.ID, exhausted]
	readings uint64 // numbers given out by read
}

// exhausted is what is remembered of one account.
type exhausted struct {
	cost    uint64 // the smallest cost that was denied
	until   uint64 // ledger time of the earliest expiry, 0 until the first denial is noted
	balance accounts.Balance
	reading uint64 // of the balance: it holds as long as this entry stands
	second  uint64 // the second of ledger time in which bypassed counts
	passed  int
}

func newMemory(shared bool) (*memory, error) {
	cache, err := lru.New[ledgers.ID, exhausted](rememberedAccounts)
	if err != nil {
		return nil, fmt.Errorf("remember %d accounts: %w", rememberedAccounts, err)
	}
	return &memory{shared: shared, accounts: cache}, nil
}

// read is called before an account's balance is read, and returns a number for denied. Whoever
// gives units back or takes some meanwhile drops the number with the account.
func (m *memory) read(account ledgers.ID) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.accounts.Get(account)
	if !ok {
		m.readings++
		e.reading = m.readings
		m.accounts.Add(account, e)
	}
	return e.reading
}

// denied notes a refusal of cost at the ledger time now, when next is the earliest expiry. If the
// balance has changed since its reading began, nothing is noted.
func (m *memory) denied(account ledgers.ID, reading, cost, now, next uint64,
	balance accounts.Balance,
) {
	bound := now + uint64(rememberShared)
	if next == 0 || m.shared && next > bound { // with nothing out, no time-out tells when to ask
		next = bound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.accounts.Peek(account)
	if !ok || known.reading != reading {
		return
	}
	e := exhausted{cost: cost, until: next, balance: balance, reading: reading}
	if known.until > now {
		e.cost = min(e.cost, known.cost)
		e.second, e.passed = known.second, known.passed
	}
	m.accounts.Add(account, e)
}

// denies reports whether a cost is sure to be refused at the ledger time now.
func (m *memory) denies(account ledgers.ID, cost, now uint64) (accounts.Balance, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.accounts.Get(account)
	if !ok || e.until <= now {
		return accounts.Balance{}, false
	}
	return e.balance, max(1, cost) >= e.cost
}

// bypass reports whether a check with an id may ask the ledger about an account that is remembered:
// the ledger alone knows whether the id was admitted before.
func (m *memory) bypass(account ledgers.ID, now uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.accounts.Get(account)
	if !ok {
		return true
	}
	second := now / uint64(time.Second)
	if e.second != second {
		e.second, e.passed = second, 0
	}
	if e.passed >= bypasses {
		return false
	}
	e.passed++
	m.accounts.Add(account, e)
	return true
}

// forget drops an account: something was given back or taken.
func (m *memory) forget(account ledgers.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts.Remove(account)
}

// clear drops all: the limits have changed.
func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts.Purge()
}
