package api_test

import (
	"strings"
	"testing"

	"weir/api"
)

func TestTokens(t *testing.T) {
	const check = `{"limit":"site","subject":"u"}`
	const grant = `{"limit":"site","subject":"u","amount":1,"id":"g"}`
	t.Run("User", func(t *testing.T) {
		s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
		for _, header := range []string{"Bearer user", "bearer user", "BEARER  user "} {
			s.check(check, "Authorization: "+header).want(t, 200)
		}
		for _, header := range []string{
			"Bearer admin", "Bearer use", "Bearer users", "Bearer USER", "Bearer user user",
		} {
			a := s.check(check, "Authorization: "+header)
			a.want(t, 401, "code", "unauthorized", "title", "Unauthorized")
			a.wantHeader(t, "WWW-Authenticate", `Bearer realm="weir", error="invalid_token"`)
			a.wantHeader(t, "Cache-Control", "no-store")
		}
		for _, header := range []string{"", "Bearer", "Bearer ", "Basic dXNlcjo=", "user"} {
			a := s.check(check, "Authorization: "+header)
			a.want(t, 401, "code", "unauthorized")
			a.wantHeader(t, "WWW-Authenticate", `Bearer realm="weir"`)
		}
		s.check(check, "Authorization: Bearer user", "Authorization: Bearer user").want(t, 401)
		s.check(check).want(t, 401)
		s.call("GET", "/v1/limits", "").want(t, 401)
		s.call("GET", "/v1/balance?limit=site&subject=u", "").want(t, 401)
		s.call("POST", "/v1/check/batch", "{}").want(t, 401)
		s.call("GET", "/v1/limits", "", "Authorization: Bearer user").want(t, 200)
	})
	t.Run("Open", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		s.check(check).want(t, 200)
		s.check(check, "Authorization: Bearer whatever").want(t, 200)
	})
	t.Run("Admin", func(t *testing.T) {
		s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
		for _, route := range []string{"grants", "revocations"} {
			s.call("POST", "/v1/admin/"+route, grant).want(t, 401, "code", "unauthorized")
			s.call("POST", "/v1/admin/"+route, grant, "Authorization: Bearer user").want(t, 401)
			s.admin(route, strings.Replace(grant, `"g"`, `"`+route+`"`, 1)).want(t, 200)
		}
		s.call("GET", "/v1/admin/journal?limit=site&subject=u", "").want(t, 401)
	})
	t.Run("ErrAdminDisabled", func(t *testing.T) {
		s := newService(t, api.Options{Token: "user"})
		for _, header := range []string{"", "Bearer ", "Bearer user"} {
			a := s.call("POST", "/v1/admin/grants", grant, "Authorization: "+header)
			a.want(t, 403, "code", "admin-disabled")
			a.wantHeader(t, "WWW-Authenticate", "")
		}
		s.call("POST", "/v1/admin/revocations", grant).want(t, 403, "code", "admin-disabled")
		s.call("GET", "/v1/admin/journal?limit=a&subject=u", "").want(t, 403)
	})
	t.Run("Health", func(t *testing.T) { // for those who have no token
		s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
		for _, route := range []string{"/healthz", "/readyz", "/metrics"} {
			s.call("GET", route, "").want(t, 200)
		}
	})
}
