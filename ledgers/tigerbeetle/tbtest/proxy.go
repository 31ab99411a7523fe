package tbtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// What is read of a message of TigerBeetle 0.17: each has a header, in which numbers are little
// endian, and its size includes the header.
const (
	headerSize  = 256
	sizeAt      = 96  // uint32
	viewAt      = 104 // uint32
	commandAt   = 114 // uint8
	reply       = 8   // the command of an answer to a client's request
	sizeMax     = 16 << 20
	queuedReply = 1024 // messages held back on one connection
)

// Proxy stands between a cluster's replicas and its clients: a connection to one of its addresses
// is passed on to the replica with the same place. It passes everything on until it is told not to.
// It understands no more of what passes than where messages begin and which are replies. Replicas
// speak to each other without it.
type Proxy struct {
	listeners []net.Listener
	done      sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	cut     bool
	delay   time.Duration
	drop    int // each n-th reply, 0 for none
	counted int // replies since drop was set
	dropped int
	view    uint32
}

// Proxy starts a proxy in front of all replicas, until the end of the test.
func (c *Cluster) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{conns: map[net.Conn]struct{}{}}
	for _, address := range c.addresses {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.listeners = append(p.listeners, listener)
		p.done.Go(func() { p.accept(listener, address) })
	}
	t.Cleanup(p.close)
	return p
}

// Addresses are what clients connect to, in the order of the replicas.
func (p *Proxy) Addresses() []string {
	addresses := make([]string, len(p.listeners))
	for i, l := range p.listeners {
		addresses[i] = l.Addr().String()
	}
	return addresses
}

// Primary is the replica that led the cluster when one last said something to a client: the view
// that it named tells. In a cluster that nobody has heard of yet it is the first.
func (p *Proxy) Primary() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.view) % len(p.listeners)
}

// Delay holds back for d each message that the replicas send from now on. They are held back side
// by side: what takes longer is the answer, and as many are given.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DropReplies loses the next reply to a request and then each n-th one; the connection stays, and
// the client will ask again by itself. With 0 none is lost any more.
func (p *Proxy) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop, p.counted = n, 0
}

// Dropped is how many replies were lost so far.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Cut ends all connections, and each new one at once, until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Mend lets clients connect again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) close() {
	p.Cut()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.done.Wait()
}

// accept passes on connections for the replica at an address until the listener is closed.
func (p *Proxy) accept(listener net.Listener, address string) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.done.Go(func() { p.pass(client, address) })
		}
	}
}

// hold notes a connection so that Cut ends it, or reports that it is to end now.
func (p *Proxy) hold(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) release(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(p.conns, conn)
	}
}

// pass connects a client with its replica until either of them ends it.
func (p *Proxy) pass(client net.Conn, address string) {
	defer p.release(client)
	if !p.hold(client) {
		return
	}
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	server, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer p.release(server)
	if !p.hold(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, client)
		p.release(server, client)
	})
	both.Go(func() {
		p.passReplies(client, server)
		p.release(server, client)
	})
	both.Wait()
}

// held is a message and when it may go on.
type held struct {
	due     time.Time
	message []byte
}

// passReplies passes on what a replica says, message by message.
func (p *Proxy) passReplies(client io.Writer, server io.Reader) {
	queue := make(chan held, queuedReply)
	var sent sync.WaitGroup
	sent.Go(func() {
		for h := range queue {
			<-time.After(time.Until(h.due))
			_, _ = client.Write(h.message) // an error is that of an end, which the reading meets too
		}
	})
	defer sent.Wait()
	defer close(queue)
	header := make([]byte, headerSize)
	for {
		_, err := io.ReadFull(server, header)
		if err != nil {
			return
		}
		size := int(binary.LittleEndian.Uint32(header[sizeAt:]))
		if size < headerSize || size > sizeMax {
			return
		}
		message := slices.Grow(slices.Clone(header), size-headerSize)[:size]
		_, err = io.ReadFull(server, message[headerSize:])
		if err != nil {
			return
		}
		delay, lost := p.saw(header)
		if !lost {
			queue <- held{time.Now().Add(delay), message}
		}
	}
}

// saw notes a message from a replica, and says what becomes of it.
func (p *Proxy) saw(header []byte) (delay time.Duration, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = max(p.view, binary.LittleEndian.Uint32(header[viewAt:]))
	if header[commandAt] == reply && p.drop > 0 {
		lost = p.counted%p.drop == 0
		p.counted++
	}
	if lost {
		p.dropped++
	}
	return p.delay, lost
}
