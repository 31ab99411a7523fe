package credit

// Held is how much a gate keeps, each with its bound in Options.
type Held struct{ Entries, Begun, Pending, Queued, Workers, Reads int }

// Held counts what the gate keeps now.
func (g *Gate) Held() Held {
	var h Held
	switch s := g.store.(type) {
	case *memory:
		h.Entries = s.entries.Len()
	case *bounded:
		h.Reads = len(s.slots)
	}
	g.refreshes.mu.Lock()
	defer g.refreshes.mu.Unlock()
	h.Begun, h.Pending = g.refreshes.begun.Len(), len(g.refreshes.pending)
	h.Queued, h.Workers = len(g.refreshes.queue), g.refreshes.workers
	return h
}
