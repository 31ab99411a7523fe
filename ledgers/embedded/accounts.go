package embedded

import (
	"time"

	"github.com/cockroachdb/pebble/v2"

	"weir/ledgers"
)

// The stored balance of an account lags behind the transfers, which alone are written at once: what
// is missing after a crash is made up from them. These bound how much that can be.
const (
	// reflectAge is the longest time, by the ledger's clock, that a change waits for being stored.
	reflectAge = uint64(5 * time.Second)
	// reflectTransfers is the greatest number of transfers whose changes wait.
	reflectTransfers = 100_000
	// reflectStep is the number of waiting accounts stored with one group, unless the group has
	// changed more.
	reflectStep = 256
)

type waitingAccount struct {
	account *account
	// since is the account's dirtySince at the time it came here; another value there means that
	// it was stored meanwhile.
	since     uint64
	transfers uint64
}

// accountCache keeps accounts in memory, the recently used ones if there are too many.
type accountCache struct {
	byID map[ledgers.ID]*account
	// ring holds the same accounts; hand goes round it and takes out those that were not used
	// since it came by last.
	ring  []*account
	hand  int
	limit int
}

func newAccountCache(limit int) accountCache {
	return accountCache{byID: map[ledgers.ID]*account{}, limit: limit}
}

func (c *accountCache) get(id ledgers.ID) *account {
	a := c.byID[id]
	if a != nil {
		a.used = true
	}
	return a
}

func (c *accountCache) put(a *account) {
	c.byID[a.ID] = a
	c.ring = append(c.ring, a)
}

// shrink takes accounts out until the cache is within its limit. Each goes through leave first,
// which stores what is not stored yet.
func (c *accountCache) shrink(leave func(*account)) {
	for len(c.ring) > c.limit {
		c.hand %= len(c.ring)
		a := c.ring[c.hand]
		if a.used {
			a.used = false
			c.hand++
			continue
		}
		leave(a)
		delete(c.byID, a.ID)
		last := len(c.ring) - 1
		c.ring[c.hand] = c.ring[last]
		c.ring[last] = nil
		c.ring = c.ring[:last]
	}
}

func (s *diskStore) cached(id ledgers.ID) *account { return s.cache.get(id) }

func (s *diskStore) account(id ledgers.ID) *account {
	a := s.cache.get(id)
	if a != nil {
		return a
	}
	s.key = appendIDKey(s.key[:0], kindAccount, id)
	s.read(s.key, func(value []byte) error {
		loaded, err := decodeAccount(value, id)
		loaded.used = true
		a = &loaded
		return err
	})
	if a == nil || s.err != nil {
		return nil
	}
	s.cache.put(a)
	return a
}

func (s *diskStore) saveAccount(b *pebble.Batch, a *account, asOf uint64) {
	s.key = appendIDKey(s.key[:0], kindAccount, a.ID)
	s.value = appendAccount(s.value[:0], &a.Account, asOf)
	_ = b.Set(s.key, s.value, nil)
	a.dirtySince = 0
}

// saveReleases adds to the stored records of accounts that are not in memory what has expired of
// them. Pebble appends it without reading the record, and the next one who reads adds it up.
func (s *diskStore) saveReleases(b *pebble.Batch, absent map[ledgers.ID]release, asOf uint64) {
	for id, r := range absent {
		s.key = appendIDKey(s.key[:0], kindAccount, id)
		s.value = appendRelease(s.value[:0], r, asOf)
		_ = b.Merge(s.key, s.value, nil)
	}
}

// reflect stores accounts that have waited for too long, or all of them.
func (s *diskStore) reflect(b *pebble.Batch, now uint64, limit int, all bool) {
	n := 0
	for ; n < len(s.waiting); n++ {
		w := &s.waiting[n]
		if w.account.dirtySince != w.since {
			continue
		}
		due := all || now-w.since > reflectAge || s.transfers-w.transfers > reflectTransfers
		if !due || limit == 0 {
			break
		}
		s.saveAccount(b, w.account, now)
		limit--
	}
	clear(s.waiting[:n])
	s.waiting = s.waiting[n:]
}

// saveAll stores all that waits.
func (s *diskStore) saveAll(b *pebble.Batch, now uint64) {
	s.reflect(b, now, len(s.waiting), true)
	s.saveReflected(b, now, true)
}

// saveReflected stores, now and then or at once, up to when everything is in the stored accounts.
// The keys of what expired before are not needed any more.
func (s *diskStore) saveReflected(b *pebble.Batch, now uint64, atOnce bool) {
	reflected := now
	if len(s.waiting) > 0 {
		reflected = s.waiting[0].since
	}
	if !atOnce && reflected-s.reflected < reflectAge &&
		s.transfers-s.reflectedTransfers < reflectTransfers/2 || reflected <= s.reflected {
		return
	}
	s.setNumber(b, keyReflected, reflected)
	_ = b.DeleteRange(
		appendPairKey(nil, kindLive, s.reflected, 0),
		appendPairKey(nil, kindLive, reflected+1, 0), nil)
	s.reflected, s.reflectedTransfers = reflected, s.transfers
}
