package tigerbeetle

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/ledgers"
)

// reopenPause is the least time between two sessions: clusters with too many clients would
// otherwise spend their time on evicting them.
const reopenPause = time.Second

// conn is a session with a cluster, in the ledger's words. A request is made of parts, which are
// sent one after the other. Look-ups answer what exists, creations answer every event. Each call
// waits until the cluster answers or the session ends; the errors are errTooMuchData,
// errSessionOver, ErrEvicted and ErrReply.
type conn interface {
	createAccounts(parts [][]ledgers.Account) ([]ledgers.AccountResult, error)
	createTransfers(parts [][]ledgers.Transfer) ([]ledgers.TransferResult, error)
	lookupAccounts(parts [][]ledgers.ID) ([]ledgers.Account, error)
	lookupTransfers(parts [][]ledgers.ID) ([]ledgers.Transfer, error)
	accountTransfers(filter ledgers.AccountFilter) ([]ledgers.Transfer, error)
	close()
}

// sessions keeps one session open.
type sessions struct {
	open   func() (conn, error)
	now    func() time.Time
	logger *slog.Logger
	// ended is told that a session was lost.
	ended func()

	mu      sync.Mutex
	closed  bool
	current conn
	// opened is when a session was last opened, or tried to be, and cause why there is none.
	opened time.Time
	cause  error
}

// get returns the session, and opens one if there is none.
func (s *sessions) get() (conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrUnanswered
	case s.current == nil:
		return s.reopen()
	default:
		return s.current, nil
	}
}

// reopen opens a session, unless that was done just before. The caller has locked s.
func (s *sessions) reopen() (conn, error) {
	now := s.now()
	if s.cause != nil && now.Sub(s.opened) < reopenPause {
		return nil, s.cause
	}
	s.opened = now
	c, err := s.open()
	if err != nil {
		s.cause = err
		s.logger.Error("no session with the TigerBeetle cluster", "error", err)
		return nil, err
	}
	s.current = c
	return c, nil
}

// end gives up a session that is over, and returns why: cause, or ErrUnanswered if it was closed.
// Another session is opened at once, as a client takes 0.6 s to register.
func (s *sessions) end(over conn, cause error) error {
	if errors.Is(cause, errSessionOver) {
		cause = ErrEvicted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrUnanswered
	}
	if s.current != over {
		return cause
	}
	s.logger.Warn("the cluster has ended the session, another one is opened",
		"error", cause, "lasted", s.now().Sub(s.opened))
	s.current, s.cause = nil, cause
	over.close()
	s.ended()
	if !errors.Is(cause, ErrRelease) {
		_, _ = s.reopen() // what went wrong, the next call is told
	}
	return cause
}

// close ends the session. Requests that are under way get an error.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.current != nil {
		s.current.close()
		s.current = nil
	}
}

// try makes a request. When the session was over before it was sent, or when it only reads, it is
// made once more on another session. A write that may have been sent is not: what it had created
// would be answered `exists`.
func (s *sessions) try(reads bool, request func(conn) error) error {
	var last error
	for range 2 {
		c, err := s.get()
		if err != nil {
			return err
		}
		last = request(c)
		evicted := errors.Is(last, ErrEvicted)
		if !evicted && !errors.Is(last, errSessionOver) {
			return last
		}
		last = s.end(c, last)
		if evicted && !reads {
			return last
		}
	}
	return last
}
