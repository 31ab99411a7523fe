package client_test

import (
	"errors"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

func TestMoney(t *testing.T) {
	c := connect(t, start(t, fixed))
	for subject, amount := range map[string]string{"alice": "2000", "bob": "1"} {
		m, err := c.Deposit(t.Context(), wire.MovementRequest{
			Asset: "USD", Subject: subject, Amount: amount, ID: "one",
		})
		if err != nil || m.Balance != amount+".00" || m.Amount != amount+".00" || m.Replayed {
			t.Fatalf("got %+v and error %v, want a balance of %s", m, err, amount)
		}
	}
	transfer := wire.TransferRequest{
		Limit: "daily-usd", From: "alice", To: "bob", Amount: "999.99", ID: "one",
		Limits: []wire.Member{{Limit: "api-requests", Cost: new(wire.Count(2))}},
	}
	d, err := c.Transfer(t.Context(), transfer)
	if err != nil || !d.Allowed || d.Limits[0].Remaining.String() != "0.01" ||
		*d.Limits[1].Remaining != wire.Count(1) {
		t.Errorf("got %+v and error %v, want it made", d, err)
	}
	transfer.Amount, transfer.ID, transfer.Limits = "0.02", "two", nil
	d, err = c.Transfer(t.Context(), transfer)
	if err != nil || d.Allowed || !d.NewIDRequired || d.RetryAfterMS < 86_399_000 {
		t.Errorf("got %+v and error %v, want it denied for a day", d, err)
	}
	m, err := c.Withdraw(t.Context(), wire.MovementRequest{
		Asset: "USD", Subject: "alice", Amount: "1000.01", ID: "two",
	})
	if err != nil || m.Balance != "0.00" {
		t.Errorf("got %+v and error %v, want nothing left", m, err)
	}
	a, err := c.Account(t.Context(), "USD", "bob")
	if err != nil || a != (wire.Account{Asset: "USD", Subject: "bob", Balance: "1000.99"}) {
		t.Errorf("got %+v and error %v, want 1000.99", a, err)
	}
	var e *client.Error
	_, err = c.Account(t.Context(), "USD", "carol")
	if !errors.As(err, &e) || e.Code != wire.CodeAccountUnknown {
		t.Errorf("got error %v, want account-unknown", err)
	}
	transfer.ID, transfer.From = "three", "\xff"
	_, err = c.Transfer(t.Context(), transfer)
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}

// TestKinds has the answers that other limits give.
func TestKinds(t *testing.T) {
	c := connect(t, start(t, fixed))
	t.Run("Credits", func(t *testing.T) { // a denial, too, though it is another status
		d, err := c.Check(t.Context(), wire.CheckRequest{
			Limit: "credits", Subject: "u", Cost: new(wire.Count(11)), ID: "one",
		})
		if err != nil || d.Allowed || !d.NewIDRequired || d.RetryAfterMS != 0 ||
			*d.Limits[0].Remaining != wire.Count(10) {
			t.Errorf("got %+v and error %v, want it denied", d, err)
		}
	})
	t.Run("Calendar", func(t *testing.T) {
		d, err := c.Check(t.Context(), wire.CheckRequest{
			Limit: "spend", Subject: "u", Cost: new(wire.Money(999, 2)),
		})
		want := time.Date(2026, 4, 1, 0, 0, 0, 0, time.FixedZone("", 2*3600))
		if err != nil || !d.Allowed || d.Limits[0].Remaining.String() != "90.01" ||
			!d.Limits[0].ResetsAt.Equal(want) {
			t.Errorf("got %+v and error %v, want 90.01 left until %v", d, err, want)
		}
		_, offset := d.Limits[0].ResetsAt.Zone()
		if offset != 2*3600 {
			t.Errorf("got an offset of %d s, want that of Berlin", offset)
		}
	})
}

func TestGroup(t *testing.T) {
	c := connect(t, start(t, fixed))
	check := wire.CheckRequest{
		Group: "both", Fields: map[string]string{"user": "u", "tenant": "acme inc"},
		Cost: new(wire.Count(2)),
	}
	d, err := c.Check(t.Context(), check)
	if err != nil || !d.Allowed || d.Limits[0].Subject != "u/acme%20inc" ||
		*d.Limits[0].Remaining != wire.Count(1) || *d.Limits[1].Remaining != wire.Count(8) {
		t.Errorf("got %+v and error %v, want it allowed", d, err)
	}
	check.Fields["user"] = "\xff"
	_, err = c.Check(t.Context(), check)
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}

func TestOverride(t *testing.T) {
	c := connect(t, start(t, fixed))
	want := wire.SubjectQuota{
		Limit: "api-requests", Subject: "u &", Quota: wire.Count(7), Remaining: wire.Count(7),
		Overridden: true,
	}
	got, err := c.Override(t.Context(), wire.QuotaRequest{
		Limit: "api-requests", Subject: "u &", Quota: new(wire.Count(7)),
	})
	if err != nil || got != want {
		t.Errorf("got %+v and error %v, want %+v", got, err, want)
	}
	b, err := c.Balance(t.Context(), "api-requests", "u &")
	if err != nil || !b.Overridden || b.Quota != wire.Count(7) {
		t.Errorf("got %+v and error %v, want a quota of its own", b, err)
	}
	want.Quota, want.Remaining, want.Overridden = wire.Count(3), wire.Count(3), false
	got, err = c.ClearOverride(t.Context(), "api-requests", "u &")
	if err != nil || got != want {
		t.Errorf("got %+v and error %v, want %+v", got, err, want)
	}
	_, err = c.Override(t.Context(), wire.QuotaRequest{Limit: "api-requests", Subject: "\xff"})
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}
