package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"weir/api/client"
	"weir/api/wire"
)

// Each request is charged to who makes it, here by its key. While weir is away, all may pass.
func ExampleClient_Middleware() {
	weir := inProcess{&script{steps: []http.HandlerFunc{
		says(wire.Decision{Allowed: true}),
		denies(wire.Decision{RetryAfterMS: 2000}),
	}}} // in place of a weir that lets one request pass
	c, err := client.New("http://127.0.0.1:8080", &client.Options{HTTPClient: weir.client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	limited := c.Middleware("api-requests",
		func(r *http.Request) string { return r.Header.Get("X-Key") },
		&client.MiddlewareOptions{FailOpen: true})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})
	server := limited(mux) // for http.ListenAndServe

	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/hello", nil)
		r.Header.Set("X-Key", "alice")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}

// The middleware goes around an echo server, or a group of its routes, by echo.WrapMiddleware.
func ExampleClient_Middleware_echo() {
	weir := inProcess{denies(wire.Decision{RetryAfterMS: 2000})} // in place of a weir
	c, err := client.New("http://127.0.0.1:8080", &client.Options{HTTPClient: weir.client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	e := echo.New()
	api := e.Group("/api", echo.WrapMiddleware(c.Middleware("api-requests",
		func(r *http.Request) string { return r.Header.Get("X-Key") }, nil)))
	api.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })

	for _, path := range []string{"/healthz", "/api/hello"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 text/plain; charset=UTF-8
	// 429 application/problem+json
}
