package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

// gate knows one token, by its hash: hashes have one length, so that comparing them takes the same
// time whatever was sent.
type gate struct {
	set  bool
	hash [sha256.Size]byte
}

func newGate(token string) gate {
	return gate{set: token != "", hash: sha256.Sum256([]byte(token))}
}

// opens reports whether this is the gate's token.
func (g *gate) opens(token string) bool {
	hash := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(hash[:], g.hash[:]) == 1
}

// admit checks the caller's token.
func (s *Server) admit(c echo.Context, who access) error {
	g := &s.user
	switch {
	case who == public, who == users && !s.user.set:
		return nil
	case who == payers && !s.user.set:
		return refused(wire.CodeMoneyDisabled,
			"this server was started without a token, which money always wants")
	case who == admins && !s.admin.set:
		return refused(wire.CodeAdminDisabled, "this server was started without an admin token")
	case who == admins:
		g = &s.admin
	}
	token, sent := bearer(c.Request().Header["Authorization"])
	if !sent {
		c.Response().Header()["WWW-Authenticate"] = askForToken
		return refused(wire.CodeUnauthorized, "want the header Authorization: Bearer and a token")
	}
	if !g.opens(token) {
		c.Response().Header()["WWW-Authenticate"] = refuseToken
		return refused(wire.CodeUnauthorized, "the token is not the one for this route")
	}
	return nil
}

// bearer returns the token of a request (RFC 6750), if it has just one.
func bearer(headers []string) (string, bool) {
	if len(headers) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.Trim(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}
