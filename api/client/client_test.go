package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/accounts"
	"weir/api"
	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// start serves real limits: "api-requests" with 3 requests a minute, and others.
func start(t testing.TB, now func() time.Time) (url string) {
	t.Helper()
	url, stop, err := serve(t.TempDir(), now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

func serve(dir string, now func() time.Time) (url string, stop func(), err error) {
	ledger, err := embedded.Open(dir, &embedded.Options{Now: now, Volatile: true})
	if err != nil {
		return "", nil, err
	}
	book, err := accounts.NewBook(ledger, accounts.Namespace{1}, &accounts.Options{Now: now})
	if err != nil {
		return "", nil, err
	}
	rules := limiter.Rules{
		Limits: []limiter.Limit{
			{Name: "api-requests", Kind: limiter.RequestRate, Quota: 3, Window: time.Minute},
			{Name: "daily-usd", Kind: limiter.TransferAmount, Asset: "USD", Quota: 100_000,
				Window: 24 * time.Hour},
			{Name: "spend", Kind: limiter.Budget, Asset: "USD", Quota: 10_000, Align: "month",
				Timezone: "Europe/Berlin"},
			{Name: "credits", Kind: limiter.Credits, Quota: 10},
		},
		Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
		Groups: []limiter.Group{{Name: "both", Limits: []limiter.GroupMember{
			{Limit: "api-requests", Fields: []string{"user", "tenant"}},
			{Limit: "credits", Fields: []string{"tenant"}},
		}}},
	}
	for i := range rules.Limits {
		rules.Limits[i].Deadline = 10 * time.Second // a busy machine is not a ledger that is away
	}
	limits, err := limiter.NewRules(rules)
	if err != nil {
		return "", nil, err
	}
	l, err := limiter.New(book, limits, nil)
	if err != nil {
		return "", nil, err
	}
	server, err := api.New(l, &api.Options{Token: "user", AdminToken: "admin"})
	if err != nil {
		return "", nil, err
	}
	listener := httptest.NewServer(server.Handler())
	stop = func() {
		listener.Close()
		_ = ledger.Close()
	}
	return listener.URL, stop, nil
}

func fixed() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func connect(t testing.TB, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, &client.Options{Token: "user", AdminToken: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheck(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		c := connect(t, start(t, fixed)+"/")
		d, err := c.Check(t.Context(), wire.CheckRequest{
			Limit: "api-requests", Subject: "u/é+ %2F", Cost: new(wire.Count(2)), ID: "one",
		})
		if err != nil || !d.Allowed || *d.Limits[0].Remaining != wire.Count(1) ||
			d.Limits[0].Subject != "u/é+ %2F" {
			t.Fatalf("got %+v and error %v, want it allowed with 1 left", d, err)
		}
		again, err := c.Check(t.Context(), wire.CheckRequest{
			Limits: []wire.Member{{Limit: "api-requests", Cost: new(wire.Count(2))}},
			ID:     "one", Subject: "u/é+ %2F",
		})
		if err != nil || !again.Replayed || again.Transfer != d.Transfer || !again.At.Equal(d.At.Time) {
			t.Errorf("got %+v and error %v, want %+v replayed", again, err, d)
		}
		b, err := c.Balance(t.Context(), "api-requests", "u/é+ %2F")
		if err != nil || b.Used != wire.Count(2) || b.Quota != wire.Count(3) || b.Subject != "u/é+ %2F" {
			t.Errorf("got balance %+v and error %v, want 2 of 3 used", b, err)
		}
	})
	t.Run("Denied", func(t *testing.T) { // a value, not an error
		c := connect(t, start(t, fixed))
		check := wire.CheckRequest{Limit: "api-requests", Subject: "u", Cost: new(wire.Count(3))}
		_, err := c.Check(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		check.ID = "two"
		d, err := c.Check(t.Context(), check)
		if err != nil || d.Allowed || !d.NewIDRequired || d.RetryAfterMS < 59_000 ||
			*d.Limits[0].Remaining != wire.Count(0) {
			t.Errorf("got %+v and error %v, want it denied with a new id required", d, err)
		}
	})
	t.Run("ErrUnknownLimit", func(t *testing.T) {
		c := connect(t, start(t, fixed))
		_, err := c.Check(t.Context(), wire.CheckRequest{Limit: "zz", Subject: "u"})
		var e *client.Error
		if !errors.As(err, &e) || e.Code != wire.CodeUnknownLimit || e.Status != 404 ||
			e.Limit != "zz" || e.Detail == "" || !e.SameID() {
			t.Errorf("got error %+v, want unknown-limit", err)
		}
	})
	t.Run("ErrNotUTF8", func(t *testing.T) { // would be sent as another subject
		c := connect(t, start(t, fixed))
		for _, check := range []wire.CheckRequest{
			{Limit: "api-requests", Subject: "\xff"},
			{Limit: "api-requests", Subject: "u", ID: "\xff"},
			{Limits: []wire.Member{{Limit: "api-requests", Subject: "\xff"}}},
		} {
			_, err := c.Check(t.Context(), check)
			if !errors.Is(err, client.ErrNotUTF8) {
				t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
			}
		}
	})
	t.Run("ErrUnauthorized", func(t *testing.T) {
		c, err := client.New(start(t, fixed), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Limits(t.Context())
		var e *client.Error
		if !errors.As(err, &e) || e.Code != wire.CodeUnauthorized || e.Status != 401 {
			t.Errorf("got error %v, want unauthorized", err)
		}
	})
}

func TestChanges(t *testing.T) {
	c := connect(t, start(t, fixed))
	change := wire.ChangeRequest{
		Limit: "api-requests", Subject: "u", Amount: new(wire.Count(5)), ID: "g",
	}
	for _, replayed := range []bool{false, true} {
		made, err := c.Grant(t.Context(), change)
		if err != nil || made.Replayed != replayed || made.Quota != wire.Count(8) ||
			made.Remaining != wire.Count(8) {
			t.Errorf("got %+v and error %v, want a quota of 8", made, err)
		}
	}
	change.ID, change.Amount = "r", new(wire.Count(9))
	_, err := c.Revoke(t.Context(), change)
	var e *client.Error
	if !errors.As(err, &e) || e.Code != wire.CodeQuotaInUse || e.Free != wire.Count(8) {
		t.Errorf("got error %+v, want quota-in-use with 8 free", err)
	}
	change.ID, change.Amount = "r2", new(wire.Count(2))
	made, err := c.Revoke(t.Context(), change)
	if err != nil || made.Quota != wire.Count(6) {
		t.Errorf("got %+v and error %v, want a quota of 6", made, err)
	}
	change.Subject = "\xff"
	_, err = c.Grant(t.Context(), change)
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
	journal, err := c.Journal(t.Context(), client.JournalQuery{
		Limit: "api-requests", Subject: "u", Reversed: true,
	})
	if err != nil || len(journal.Entries) < 3 || journal.Entries[0].Kind != "revocation" ||
		journal.Entries[0].Side != wire.Debit || journal.Cursor != "" {
		t.Errorf("got %+v and error %v, want the revocation first", journal, err)
	}
	_, err = c.Journal(t.Context(), client.JournalQuery{
		Limit: "api-requests", Subject: "u", Cursor: "x",
	})
	if !errors.As(err, &e) || e.Code != wire.CodeBadRequest {
		t.Errorf("got error %v, want bad-request", err)
	}
	limits, err := c.Limits(t.Context())
	if err != nil || len(limits) != 4 || limits[0].Name != "api-requests" ||
		limits[0].Quota != wire.Count(3) {
		t.Errorf("got %+v and error %v, want the first to be api-requests", limits, err)
	}
}

// answering is a client of a server that answers as told.
func answering(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return connect(t, server.URL)
}

// TestEveryCode sends each code of the table through HTTP and reads it back.
func TestEveryCode(t *testing.T) {
	for _, m := range wire.Meanings() {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", wire.ProblemType)
			if m.RetryAfterSeconds > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(m.RetryAfterSeconds))
			}
			w.WriteHeader(m.Status)
			data, err := json.Marshal(wire.Problem{Status: m.Status, Code: m.Code, Detail: "why"})
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(data)
		})
		_, err := c.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "u"})
		var e *client.Error
		if !errors.As(err, &e) || e.Code != m.Code || e.Status != m.Status || e.Detail != "why" ||
			e.RetryAfter != time.Duration(m.RetryAfterSeconds)*time.Second || e.SameID() != m.SameID {
			t.Errorf("got error %+v, want that of %+v", err, m)
		}
		if !strings.Contains(err.Error(), string(m.Code)) {
			t.Errorf("got text %q, want the code in it", err)
		}
	}
}

func TestOtherAnswers(t *testing.T) {
	check := wire.CheckRequest{Limit: "a", Subject: "u"}
	t.Run("ErrProxy", func(t *testing.T) { // not weir's words
		for _, status := range []int{301, 307, 429, 502, 503} {
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = w.Write([]byte(`{"allowed":false,"code":"quota-exceeded"}`))
			})
			_, err := c.Check(t.Context(), check)
			var e *client.Error
			if !errors.As(err, &e) || e.Code != "" || e.Status != status || !e.SameID() ||
				e.RetryAfter != 7*time.Second {
				t.Errorf("got error %+v, want one of status %d without a code", err, status)
			}
		}
	})
	t.Run("ErrNewIDRequired", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", wire.ProblemType+"; charset=utf-8")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"code":"cost-exceeds-quota","new_id_required":true}`))
		})
		_, err := c.Check(t.Context(), check)
		var e *client.Error
		if !errors.As(err, &e) || e.Code != wire.CodeCostExceedsQuota || e.SameID() {
			t.Errorf("got error %+v, want one that wants a new id", err)
		}
	})
	t.Run("ErrAnswerTooLarge", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"allowed":true,"x":"` + strings.Repeat("x", 4<<20) + `"}`))
		})
		_, err := c.Check(t.Context(), check)
		if !errors.Is(err, client.ErrAnswerTooLarge) {
			t.Errorf("got error %v, want %v", err, client.ErrAnswerTooLarge)
		}
	})
	t.Run("ErrNotJSON", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`<html>`))
		})
		d, err := c.Check(t.Context(), check)
		if err == nil || d.Allowed {
			t.Errorf("got %+v and no error", d)
		}
	})
	t.Run("ErrTimeout", func(t *testing.T) { // of the caller's own http.Client
		release := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-release
		}))
		defer server.Close()
		defer close(release)
		c, err := client.New(server.URL, &client.Options{
			HTTPClient: &http.Client{Timeout: time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Check(t.Context(), check)
		if err == nil {
			t.Error("got no error from a server that does not answer")
		}
	})
}

func TestNew(t *testing.T) {
	for _, url := range []string{
		"", "127.0.0.1:8080", "ftp://x", "http://", "http://x?y", "http://x:y",
	} {
		_, err := client.New(url, nil)
		if err == nil {
			t.Errorf("%q: got no error", url)
		}
	}
	_, err := client.New("weir:8080", nil)
	if !errors.Is(err, client.ErrBaseURL) {
		t.Errorf("got error %v, want %v", err, client.ErrBaseURL)
	}
}
