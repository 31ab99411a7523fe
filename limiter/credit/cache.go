package credit

import (
	"context"
	"errors"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache keeps what was learned of the subjects of one limit, where that is not to be the memory of
// this process: several nodes may share one. It may forget whatever it likes, and it may be slow or
// down: the gate waits no longer for a read than its budget, and lets pass. It is called from many
// goroutines at once.
type Cache interface {
	// Read returns what was last written for a subject, or a zero Entry. It should return when the
	// context is done; one that does not keeps one of Options.MaxReads until it returns.
	Read(ctx context.Context, subject string) (Entry, error)
	// Write replaces the entry of a subject. It is never called by a decision. It must return soon
	// after the context is done: until then it keeps the place of a fetch.
	Write(ctx context.Context, subject string, entry Entry) error
}

// store reads and writes entries: in memory, or in a Cache that may block.
type store interface {
	read(subject string) (Entry, error)
	write(ctx context.Context, subject string, entry Entry) error
}

// memory is the store in this process. Its lock is held for the time of a look-up, by fetches too:
// never while one waits. When it is full, it forgets whom it learned of the longest ago. That is
// nearly whom nobody asks for, as whoever is asked for is learned anew, and it lets decisions read
// side by side. While the source is down nothing is learned, and nothing is forgotten.
type memory struct {
	entries *lru.Cache[string, Entry]
}

func newMemory(maxSubjects int) (*memory, error) {
	entries, err := lru.New[string, Entry](maxSubjects)
	if err != nil {
		return nil, fmt.Errorf("remember %d subjects: %w", maxSubjects, err)
	}
	return &memory{entries: entries}, nil
}

func (m *memory) read(subject string) (Entry, error) {
	entry, _ := m.entries.Peek(subject)
	return entry, nil
}

func (m *memory) write(_ context.Context, subject string, entry Entry) error {
	m.entries.Add(subject, entry)
	return nil
}

// bounded is the store around a Cache. A read takes a goroutine of its own, so that it can be given
// up; slots bounds how many there are, and waiting for one is part of the budget.
type bounded struct {
	cache   Cache
	options *Options
	slots   chan struct{}
}

func newBounded(cache Cache, options *Options) *bounded {
	return &bounded{
		cache: cache, options: options, slots: make(chan struct{}, options.MaxReads),
	}
}

// found is what a read of a cache returned.
type found struct {
	entry Entry
	err   error
}

func (b *bounded) read(subject string) (Entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.ReadBudget)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return Entry{}, errReadTimeout
	}
	answer := make(chan found, 1) // a read that was given up leaves its answer here
	go func() {
		defer func() { <-b.slots }()
		entry, err := b.cache.Read(ctx, subject)
		answer <- found{entry, err}
	}()
	select {
	case f := <-answer:
		if f.err == nil {
			return f.entry, nil
		}
		if errors.Is(f.err, context.DeadlineExceeded) {
			return Entry{}, errReadTimeout
		}
		return Entry{}, fmt.Errorf("read the cache: %w", f.err)
	case <-ctx.Done():
		return Entry{}, errReadTimeout
	}
}

func (b *bounded) write(ctx context.Context, subject string, entry Entry) error {
	err := b.cache.Write(ctx, subject, entry)
	if err != nil {
		return fmt.Errorf("write the cache: %w", err)
	}
	return nil
}
