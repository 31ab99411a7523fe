package embedded

import "weir/ledgers"

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
