package httpsource_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"weir/limiter/credit"
	"weir/limiter/credit/httpsource"
)

// A gate before a hot path, over a billing provider.
func Example() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"data":{"granted":100,"used":100},"enforced":true}`)
	}))
	defer provider.Close()

	source, err := httpsource.New(provider.URL+"/v1/customers/{subject}", httpsource.Fields{
		Granted: "data.granted", Usage: "data.used", Enforced: "enforced",
	}, nil)
	if err != nil {
		panic(err)
	}
	gate, err := credit.New("credits", source, nil)
	if err != nil {
		panic(err)
	}
	defer gate.Close()

	// Nothing is known of alice, so she passes; the provider is asked behind her back.
	fmt.Println("blocked:", gate.Decide("alice").Blocked)
	// Where there is time to wait, so do we.
	fmt.Println("remaining:", gate.Balance(context.Background(), "alice").Remaining)
	// By now she is known to have nothing left.
	fmt.Println("blocked:", gate.Decide("alice").Blocked)
	// Output:
	// blocked: false
	// remaining: 0
	// blocked: true
}
