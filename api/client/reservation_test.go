package client_test

import (
	"errors"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

func TestReservations(t *testing.T) {
	c := connect(t, start(t, fixed))
	request := wire.ReservationRequest{
		CheckRequest: wire.CheckRequest{
			Limit: "spend", Subject: "u", Cost: new(wire.Money(6000, 2)), ID: "one",
		},
		HoldSeconds: 60,
	}
	held, err := c.Reserve(t.Context(), request)
	if err != nil || !held.Allowed || held.ExpiresAt == nil ||
		held.ExpiresAt.Sub(held.At.Time) != time.Minute {
		t.Fatalf("got %+v and error %v, want it held for a minute", held, err)
	}
	renewed, err := c.Renew(t.Context(), held.Transfer, wire.RenewRequest{HoldSeconds: 120})
	if err != nil || renewed.Transfer == held.Transfer || renewed.ExpiresAt == nil ||
		renewed.ExpiresAt.Sub(renewed.At.Time) != 2*time.Minute {
		t.Errorf("got %+v and error %v, want a new receipt for two minutes", renewed, err)
	}
	settled, err := c.Settle(t.Context(), held.Transfer, wire.SettleRequest{
		Limits: []wire.Member{{Limit: "spend", Cost: new(wire.Money(1990, 2))}},
	})
	if err != nil || settled.Transfer != renewed.Transfer || settled.Late ||
		settled.Limits[0].Booked.String() != "19.90" || settled.Limits[0].Held.String() != "60.00" ||
		settled.Limits[0].Remaining.String() != "80.10" {
		t.Errorf("got %+v and error %v, want 19.90 booked", settled, err)
	}
	var e *client.Error
	_, err = c.Release(t.Context(), held.Transfer)
	if !errors.As(err, &e) || e.Code != wire.CodeReservationClosed {
		t.Errorf("got error %v, want reservation-closed", err)
	}
	_, err = c.Release(t.Context(), "0123456789abcdef0123456789abcdef")
	if !errors.As(err, &e) || e.Code != wire.CodeReservationUnknown {
		t.Errorf("got error %v, want reservation-unknown", err)
	}
	_, err = c.Renew(t.Context(), "../healthz?", wire.RenewRequest{HoldSeconds: 1})
	if !errors.As(err, &e) || e.Code != wire.CodeBadRequest {
		t.Errorf("got error %v, want bad-request", err)
	}
	request.ID, request.Limit, request.Cost = "two", "credits", new(wire.Count(11))
	denied, err := c.Reserve(t.Context(), request)
	if err != nil || denied.Allowed || denied.ExpiresAt != nil {
		t.Errorf("got %+v and error %v, want it denied", denied, err)
	}
	check, err := c.Check(t.Context(), wire.CheckRequest{Limit: "api-requests", Subject: "u"})
	if err != nil {
		t.Fatal(err)
	}
	released, err := c.Release(t.Context(), check.Transfer)
	if err != nil || released.Replayed || *released.Limits[0].Remaining != wire.Count(3) {
		t.Errorf("got %+v and error %v, want 3 left", released, err)
	}
	_, err = c.Settle(t.Context(), held.Transfer, wire.SettleRequest{
		Limits: []wire.Member{{Limit: "spend", Subject: "\xff"}},
	})
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}
