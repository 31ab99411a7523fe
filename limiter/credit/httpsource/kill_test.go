package httpsource_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/limiter/credit"
)

// providerAddress turns the test binary into a provider that listens there.
const providerAddress = "WEIR_TEST_PROVIDER_ADDRESS"

// providerLeft is what subjects called empty-… have left at that provider.
const providerLeft = "WEIR_TEST_PROVIDER_LEFT"

func TestMain(m *testing.M) {
	address := os.Getenv(providerAddress)
	if address == "" {
		os.Exit(m.Run())
	}
	err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := "40"
		if strings.HasPrefix(r.URL.Path, "/empty-") {
			left = os.Getenv(providerLeft)
		}
		io.WriteString(w, `{"balance":{"remaining":`+left+`},"enforced":true}`)
	}))
	slog.Error("provider", slog.Any("error", err))
	os.Exit(1)
}

// startProvider runs a provider in a process of its own and returns how to kill it.
func startProvider(t *testing.T, address, left string) func() {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	provider := exec.Command(self)
	provider.Env = append(os.Environ(), providerAddress+"="+address, providerLeft+"="+left)
	provider.Stderr = os.Stderr
	err = provider.Start()
	if err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { // with SIGKILL
		provider.Process.Kill()
		provider.Wait()
	})
	t.Cleanup(kill)
	eventually(t, "the provider listens", func() bool {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		connection.Close()
		return true
	})
	return kill
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !so() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// A provider is killed in the middle of traffic and comes back: who was known to be exhausted is
// blocked all the while, all others pass, and the top-up of that time is seen.
func TestProviderKilled(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	s := source(t, "http://"+address+"/{subject}", fields, nil)
	g, err := credit.New("credits", s, &credit.Options{
		StaleAfter: 20 * time.Millisecond, Debounce: 10 * time.Millisecond,
		FetchTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)

	kill := startProvider(t, address, "0")
	got := g.Balance(t.Context(), "empty-a")
	if !got.Blocked {
		t.Fatalf("got %+v, want blocked", got)
	}
	eventually(t, "a refresh, with traffic", func() bool {
		age := got.Age
		got = g.Decide("empty-a")
		return got.Age < age
	})
	kill()
	start := time.Now()
	for i := 0; time.Since(start) < 300*time.Millisecond; i++ {
		empty, cold := g.Decide("empty-a"), g.Decide(fmt.Sprint("empty-new-", i%10))
		if !empty.Blocked || cold.Blocked {
			t.Fatalf("provider dead: got %+v and %+v, want blocked and unknown", empty, cold)
		}
	}
	cold := g.Balance(t.Context(), "rich-b")
	if cold.Known || cold.Blocked {
		t.Errorf("provider dead: got %+v, want unknown", cold)
	}
	startProvider(t, address, "5")
	eventually(t, "the top-up is seen", func() bool { return !g.Decide("empty-a").Blocked })
	cold = g.Balance(t.Context(), "rich-b")
	if cold.Remaining != 40 {
		t.Errorf("provider back: got %+v, want 40 remaining", cold)
	}
}
