package client_test

import (
	"errors"
	"testing"

	"weir/api/client"
	"weir/api/wire"
)

func TestTrack(t *testing.T) {
	c := connect(t, start(t, fixed))
	usage := wire.TrackRequest{Limit: "credits", Subject: "u", Amount: new(wire.Count(12)), ID: "one"}
	for range 2 {
		got, err := c.Track(t.Context(), usage)
		if err != nil || got.Booked != wire.Count(10) || got.Overage != wire.Count(2) ||
			got.Amount != wire.Count(12) || got.Spooled || got.Dropped {
			t.Errorf("got %+v and error %v, want 10 booked and 2 over", got, err)
		}
	}
	usage.Amount = new(wire.Count(1))
	_, err := c.Track(t.Context(), usage)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != wire.CodeIDConflict {
		t.Errorf("got error %v, want id-conflict", err)
	}
	usage.Subject = "\xff"
	_, err = c.Track(t.Context(), usage)
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}
