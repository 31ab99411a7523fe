package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"weir/accounts"
	"weir/api"
	"weir/api/wire"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// What the two benchmarks have in common: 256 callers, each on a connection of its own, for 10,000
// subjects. The callers share the processors with the server, and do as little as they can.
const (
	benchCallers  = 256
	benchSubjects = 10_000
)

// BenchmarkCheck checks over HTTP on the embedded ledger, without syncs, so that it measures what
// weir does and not the disk.
func BenchmarkCheck(b *testing.B) {
	ledger, err := embedded.Open(b.TempDir(), &embedded.Options{Volatile: true})
	if err != nil {
		b.Fatal(err)
	}
	defer ledger.Close()
	book, err := accounts.NewBook(ledger, accounts.Namespace{1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	limits, err := limiter.NewLimits(0, []limiter.Limit{
		{Name: "api-requests", Kind: limiter.RequestRate, Quota: 1_000_000, Window: time.Minute},
	})
	if err != nil {
		b.Fatal(err)
	}
	l, err := limiter.New(book, limits, nil)
	if err != nil {
		b.Fatal(err)
	}
	server, err := api.New(l, &api.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkHTTP(b, server.Handler())
}

// BenchmarkEcho decodes and encodes the same JSON and does nothing else.
func BenchmarkEcho(b *testing.B) {
	e := echo.New()
	answer := wire.Decision{
		Allowed: true, Transfer: "0190f3c8a5b17c2e9d4f6a8b0c2d4e6f", At: wire.Time{Time: time.Now()},
		Limits: []wire.State{{Limit: "api-requests", Subject: "subject-00000", Cost: wire.Count(1),
			Quota: new(wire.Count(1_000_000)), Remaining: new(wire.Count(999_999)),
			WindowSeconds: 60, ResetSeconds: new(int64(60))}},
	}
	e.POST("/v1/check", func(c echo.Context) error {
		var body wire.CheckRequest
		err := json.NewDecoder(c.Request().Body).Decode(&body)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, &answer)
	})
	benchmarkHTTP(b, e)
}

// benchmarkHTTP makes b.N calls to a handler. It reports calls a second, and the processor time
// that server and callers together took for one.
func benchmarkHTTP(b *testing.B, handler http.Handler) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	work := make(chan int, benchCallers)
	done := make(chan error, benchCallers)
	for range benchCallers {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		go func() { done <- benchmarkCaller(conn, work) }()
	}
	b.ResetTimer()
	before := processorTime(b)
	for i := range b.N {
		work <- i
	}
	close(work)
	for range benchCallers {
		err := <-done
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1000, "cpu-µs/call")
}

// benchmarkCaller calls on one connection, without net/http, whose client takes longer than its
// server.
func benchmarkCaller(conn net.Conn, work <-chan int) error {
	request, answer := make([]byte, 0, 512), make([]byte, 4096)
	for i := range work {
		request = append(request[:0], "POST /v1/check HTTP/1.1\r\nHost: weir\r\n"...)
		request = append(request, "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n"...)
		request = fmt.Appendf(request, `{"limit":"api-requests","subject":"subject-%05d"}`,
			i%benchSubjects)
		_, err := conn.Write(request)
		if err != nil {
			return err
		}
		read := 0
		for !bytes.HasSuffix(answer[:read], []byte("}\n")) {
			n, err := conn.Read(answer[read:])
			if err != nil {
				return err
			}
			read += n
		}
		if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("got %s", answer[:read])
		}
	}
	return nil
}

// processorTime is what this process has used so far, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	if err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
