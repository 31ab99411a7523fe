package api

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
)

// errPanic is wrapped by what a panic becomes. Its text is for the log.
var errPanic = errors.New("panic")

// refused is an error that this package found; limiter's errors have the same form.
func refused(code wire.Code, format string, args ...any) *limiter.Error {
	return &limiter.Error{Code: limiter.Code(code), Detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *limiter.Error {
	return refused(wire.CodeBadRequest, format, args...)
}

// explain turns any error into one with a code and a text that is safe to send. What is not known
// to be safe is internal.
func explain(err error) *limiter.Error {
	known, ok := errors.AsType[*limiter.Error](err)
	if ok {
		return known
	}
	large, ok := errors.AsType[*http.MaxBytesError](err)
	if ok {
		return refused(wire.CodeBodyTooLarge, "the body has more than %d bytes", large.Limit)
	}
	routing, ok := errors.AsType[*echo.HTTPError](err)
	if ok {
		switch routing.Code {
		case http.StatusNotFound:
			return refused(wire.CodeNotFound, "there is no such route")
		case http.StatusMethodNotAllowed:
			return refused(wire.CodeMethodNotAllowed, "this route has other methods, see Allow")
		}
	}
	return refused(wire.CodeInternal, "something went wrong in weir and was logged")
}

// problemOf describes an error to the caller whose call was at instance.
func (s *Server) problemOf(err error, instance string) wire.Problem {
	e := explain(err)
	meaning, known := wire.MeaningOf(wire.Code(e.Code))
	if !known {
		meaning, _ = wire.MeaningOf(wire.CodeInternal)
	}
	p := wire.Problem{
		Title: meaning.Title, Status: meaning.Status, Code: meaning.Code, Detail: e.Detail,
		Instance: instance, Limit: e.Limit, NewIDRequired: e.NewIDRequired,
	}
	if meaning.Code == wire.CodeQuotaInUse {
		asset, _ := s.limiter.Limits().AssetOf(e.Limit)
		p.Free = new(amountOf(asset, e.Free))
	}
	return p
}

// writeProblem answers a call with what went wrong.
func (s *Server) writeProblem(c echo.Context, err error) {
	if c.Response().Committed { // a panic within an answer: what is out cannot be called back
		return
	}
	p := s.problemOf(err, c.Request().URL.EscapedPath())
	if p.Code == wire.CodeNotReady {
		p.Ledger = s.ledgerState()
	}
	s.sendProblem(c, &p)
}

func (s *Server) sendProblem(c echo.Context, p *wire.Problem) {
	meaning, _ := wire.MeaningOf(p.Code)
	if meaning.RetryAfterSeconds > 0 {
		c.Response().Header()["Retry-After"] = []string{strconv.Itoa(meaning.RetryAfterSeconds)}
	}
	err := send(c, p.Status, problemJSON, p)
	if err != nil {
		s.log.Error("problem not sent", "cause", err)
	}
}

// panicked counts a panic and makes an error of it.
func (s *Server) panicked(thrown any) error {
	s.metrics.panics.Inc()
	return fmt.Errorf("%w: %v\n%s", errPanic, thrown, debug.Stack())
}
