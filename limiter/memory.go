package limiter

import (
	"context"
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
	rememberShared = 900 * time.Millisecond
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

// exhausted returns the index of the first charge that is remembered to be refused, -1 if none is.
func (l *Limiter) exhausted(ctx context.Context, charges []charge) (int, error) {
	now, err := l.book.Time(ctx)
	if err != nil {
		return -1, err
	}
	for i, c := range charges {
		_, denied := l.memory.denies(c.Account(), c.Amount, now)
		if denied {
			return i, nil
		}
	}
	return -1, nil
}

// readings prepares the memory for the reading of the charges' balances. What is read under limits
// that have been replaced meanwhile is not to be remembered: its number is 0.
func (l *Limiter) readings(charges []charge) []uint64 {
	numbers := make([]uint64, len(charges))
	for i, c := range charges {
		numbers[i] = l.memory.read(c.Account())
	}
	limits := l.limits.Load() // after the numbers: whoever replaces it later drops them
	for i, c := range charges {
		limit, _, err := limits.find(c.limit.Name)
		if err != nil || limit != c.limit {
			numbers[i] = 0
		}
	}
	return numbers
}

// deniedAlready answers a request that is sure to be refused without writing to the ledger: because
// that is remembered, or because the request has the balances read first.
func (l *Limiter) deniedAlready(ctx context.Context, q asked, attempt accounts.Attempt,
) (decision Decision, decided bool, err error) {
	if q.readFirst {
		return l.readFirst(ctx, q, attempt)
	}
	exhausted, err := l.exhausted(ctx, q.charges)
	if err != nil {
		decision, err = l.unanswered(q.id, q.charges, &attempt, err)
		return decision, true, err
	}
	if exhausted < 0 {
		return Decision{}, false, nil
	}
	return l.remembered(ctx, q, attempt, exhausted)
}

// readFirst denies a request whose accounts lack units, by reading. One whose id was admitted
// before is answered as it was.
func (l *Limiter) readFirst(ctx context.Context, q asked, attempt accounts.Attempt,
) (decision Decision, decided bool, err error) {
	if q.id != "" {
		decision, decided, err = l.recalled(ctx, q, attempt)
		if err != nil || decided {
			return decision, decided, err
		}
	}
	read, err := l.read(ctx, q.charges, knownWaits)
	if err != nil {
		decision, err = l.unanswered(q.id, q.charges, &attempt, err)
		return decision, true, err
	}
	e := exceedsQuota(q.charges, read, false)
	if e != nil {
		return Decision{}, true, e
	}
	now := l.book.Now()
	result := accounts.Result{Outcome: accounts.Refused, Timestamp: now}
	result.Refused = firstLacking(q.charges, read, -1)
	if result.Refused < 0 {
		return Decision{}, false, nil
	}
	decision = deny(q.charges, read, result, now, l.options.Lag)
	decision.IDNotRecorded = q.id != ""
	return decision, true, nil
}

// recalled answers a request whose id was admitted before, by one look-up.
func (l *Limiter) recalled(ctx context.Context, q asked, attempt accounts.Attempt,
) (decision Decision, decided bool, err error) {
	result, found, err := l.book.Recall(ctx, attempt)
	switch {
	case err != nil:
		decision, err = l.unanswered(q.id, q.charges, &attempt, err)
		return decision, true, err
	case found && result.Outcome == accounts.Replayed:
		return l.allowed(ctx, q.charges, result), true, nil
	case found:
		return Decision{}, true, spent(result.Outcome, q.id)
	}
	return Decision{}, false, nil
}

// remembered answers a request without writing to the ledger, because charge at is remembered to be
// refused. A request with an id may ask the ledger all the same, up to a cap; past it, only whether
// the id was admitted before is read.
func (l *Limiter) remembered(ctx context.Context, q asked, attempt accounts.Attempt, at int,
) (decision Decision, decided bool, err error) {
	now := l.book.Now()
	if q.id != "" {
		if l.memory.bypass(q.charges[at].Account(), now) {
			return Decision{}, false, nil
		}
		decision, decided, err = l.recalled(ctx, q, attempt)
		if err != nil || decided {
			return decision, decided, err
		}
	}
	read, err := l.recollect(ctx, q.charges, at, now)
	if err != nil { // the denial is known, its figures are not
		l.metrics.unread.Inc()
		read = make([]figures, len(q.charges))
	}
	e := exceedsQuota(q.charges, read, false)
	if e != nil {
		return Decision{}, false, e
	}
	result := accounts.Result{Outcome: accounts.Refused, Timestamp: now, Refused: at}
	d := deny(q.charges, read, result, l.book.Now(), l.options.Lag)
	d.IDNotRecorded = q.id != ""
	l.metrics.remembered.Inc()
	return d, true, nil
}

// recollect gives the figures of a denial from memory: of one account without asking the ledger, of
// several by reading.
func (l *Limiter) recollect(ctx context.Context, charges []charge, at int, now uint64,
) ([]figures, error) {
	if len(charges) > 1 {
		return l.read(ctx, charges, knownWaits)
	}
	balance, still := l.memory.denies(charges[at].Account(), charges[at].Amount, now)
	if !still {
		return l.read(ctx, charges, knownWaits)
	}
	f, err := l.figure(ctx, charges[at].Charge, balance, knownWaits)
	if err != nil {
		return nil, err
	}
	return []figures{f}, nil
}
