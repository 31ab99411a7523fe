package main_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// modulePath is what imports of this module's packages begin with.
const modulePath = "weir"

// layers are the directories of the module, lowest first: a package may import what stands before
// its own layer, and within it. The first layer is for leaves that anything may use.
var layers = []string{"internal", "ledgers", "accounts", "limiter", "api", "cmd", "examples"}

// drivers are the packages that implement ledgers.Driver.
var drivers = []string{"ledgers/embedded", "ledgers/tigerbeetle", "ledgers/guard"}

// forTests are the packages that are made for tests.
var forTests = []string{"ledgers/ledgertest", "ledgers/tigerbeetle/tbtest"}

// homes names, for each library that is not our own, where it may be imported: directories, with
// all below them, or single files. A library that is not listed may not be imported at all: it is
// given its home here, in the commit that brings it and says why. A library is listed by the
// beginning of its import paths.
//
// tidy:table one row for each library
var homes = []struct {
	library string
	homes   []string
	reason  string
}{
	{"github.com/cockroachdb/pebble/v2", []string{"ledgers/embedded"},
		"only the embedded engine keeps data"},
	{"github.com/dustin/go-humanize", []string{"cmd/weir"},
		"sizes as people write them end where the config is read"},
	{"github.com/gofrs/flock", []string{"limiter"},
		"a spool is one process's, on every system"},
	{"github.com/google/uuid", []string{"accounts/id.go"},
		"ids are made in one place of the server"},
	{"github.com/hashicorp/golang-lru/v2", []string{"accounts", "ledgers/embedded", "limiter"},
		"bounded caches: of accounts seen, of balances, of denials"},
	{"github.com/labstack/echo/v4", []string{"api"},
		"HTTP ends in api"},
	{"github.com/oklog/run", []string{"cmd/weir"},
		"only the process has parts to start and stop"},
	{"github.com/prometheus/client_golang", []string{"."},
		"every part counts what it does, on a registry that it is given"},
	{"github.com/shopspring/decimal", []string{"limiter"},
		"money is decimal text to callers and whole units inside; limiter turns one into the other"},
	{"github.com/sony/gobreaker/v2", []string{"ledgers/guard"},
		"the one breaker is the guard's"},
	{"github.com/spf13/cobra", []string{"cmd/weir"},
		"commands are the program's"},
	{"github.com/spf13/pflag", []string{"cmd/weir"},
		"flags are the program's"},
	{"github.com/spf13/viper", []string{"cmd/weir"},
		"one place reads config; all others are given values"},
	{"github.com/tigerbeetle/tigerbeetle-go", []string{"ledgers/tigerbeetle"},
		"its types and its need of cgo stay behind the Driver"},
	{"go.yaml.in/yaml/v3", []string{"cmd/weir"},
		"the numbers of a config are read as they are written, which viper's codec does not show"},
	{"golang.org/x/sync", []string{"."},
		"what the standard library leaves out"},
	{"lukechampine.com/uint128", []string{"."},
		"amounts and ids are 128 bits everywhere"},
	{"pgregory.net/rapid", []string{"."},
		"property tests; a rule below keeps it out of everything else"},
}

// importRule forbids imports. Files of other modules below this one are outside all rules.
type importRule struct {
	name   string
	reason string
	allows func(s *source, imported string) bool
}

// tidy:table the rules about imports
var importRules = []importRule{
	{"layers", "imports run one way, cmd, api, limiter, accounts, ledgers: what is below is " +
		"tested and understood without what is above", allowsLayer},
	{"homes", "a library has one home, so that it can be replaced there", allowsHome},
	{"ledgers", "ledgers is what all others speak, so it brings nothing along but the standard " +
		"library and a type of 128 bits",
		func(s *source, imported string) bool {
			return s.dir() != "ledgers" || s.isTest() || isStandard(imported) ||
				imported == "lukechampine.com/uint128"
		}},
	{"drivers", "a driver knows the ledger's words and nothing of us; the suite that all " +
		"drivers pass is for their tests",
		func(s *source, imported string) bool {
			i := slices.IndexFunc(drivers, func(d string) bool { return isBelow(s.dir(), d) })
			own, ours := ourPackage(imported)
			if i < 0 || !ours || own == "ledgers" || isBelow(own, drivers[i]) {
				return true
			}
			return s.isTest() && isBelow(own, "ledgers")
		}},
	{"driver-choice", "which driver it is, only cmd/weir knows: the rest is written against " +
		"ledgers.Driver",
		func(s *source, imported string) bool {
			own, _ := ourPackage(imported)
			driver := slices.ContainsFunc(drivers, func(d string) bool { return isBelow(own, d) })
			return !driver || s.isTest() || isBelow(s.dir(), own) || s.dir() == "cmd/weir"
		}},
	{"ledgertest", "what is made for tests fails on purpose",
		func(s *source, imported string) bool {
			own, _ := ourPackage(imported)
			return !slices.ContainsFunc(forTests, func(dir string) bool { return isBelow(own, dir) }) ||
				s.isTest() || isBelow(s.dir(), own)
		}},
	{"property-tests", "a library for tests does not go into the program",
		func(s *source, imported string) bool {
			return imported != "pgregory.net/rapid" || s.isTest() ||
				isBelow(s.dir(), "ledgers/ledgertest")
		}},
	{"wire", "whoever speaks to weir can take api/wire alone",
		func(s *source, imported string) bool {
			own, ours := ourPackage(imported)
			return s.dir() != "api/wire" || isStandard(imported) ||
				s.isTest() && ours && own == "api/wire"
		}},
	{"client", "a program that calls weir links neither the server nor what that is made of; the " +
		"credit gate it may run itself brings nothing else of ours along",
		func(s *source, imported string) bool {
			own, _ := ourPackage(imported)
			return !isBelow(s.dir(), "api/client") || s.isTest() || isStandard(imported) ||
				own == "api/wire" || own == "limiter/credit" || isBelow(own, "api/client")
		}},
	{"examples", "an example is somebody else's program: it has of ours what they would have",
		func(s *source, imported string) bool {
			own, _ := ourPackage(imported)
			return !isBelow(s.dir(), "examples") || s.isTest() || isStandard(imported) ||
				own == "api/wire" || own == "api/client"
		}},
	{"credit", "the gate that fails open must not fail with anything of ours; its sources are " +
		"packages of their own",
		func(s *source, imported string) bool {
			_, ours := ourPackage(imported)
			return s.dir() != "limiter/credit" || s.isTest() || !ours
		}},
	{"pure", "what decides is given its time and reaches for nothing: it is the same in a test, " +
		"in a replay and in service",
		func(s *source, imported string) bool {
			return !isPure(s) || !slices.ContainsFunc(impureImports, func(p string) bool {
				return isBelow(imported, p)
			})
		}},
}

// impureImports are, with all below them, what a pure file may not import.
var impureImports = []string{"context", "math/rand", "net", "os", "runtime", "sync", "syscall"}

// isPure reports whether a file is one that decides: the embedded state machine, and the limiter's
// decision.
func isPure(s *source) bool {
	machine, _ := path.Match("ledgers/embedded/machine*.go", s.path)
	return !s.isTest() && (machine || s.path == "limiter/decide.go")
}

func TestImports(t *testing.T) {
	files := moduleFiles(t)
	for _, rule := range importRules {
		t.Run(rule.name, func(t *testing.T) {
			for _, finding := range forbiddenImports(rule, files) {
				t.Errorf("%s (%s)", finding, rule.reason)
			}
		})
	}
}

func TestPureFiles(t *testing.T) {
	for _, s := range moduleFiles(t) {
		for _, finding := range impurities(s) {
			t.Error(finding)
		}
	}
}

func TestDriverIsSmall(t *testing.T) {
	for _, s := range moduleFiles(t) {
		for _, finding := range driverFindings(s) {
			t.Error(finding)
		}
	}
}

// moduleFiles returns the Go files of this module: scripts/bench, with rivals and what they need,
// is one of its own.
func moduleFiles(t testing.TB) []*source {
	t.Helper()
	return slices.DeleteFunc(projectFiles(t), func(s *source) bool {
		return s.syntax == nil || isBelow(s.dir(), "scripts/bench")
	})
}

func forbiddenImports(rule importRule, files []*source) []string {
	var findings []string
	for _, s := range files {
		for _, spec := range s.syntax.Imports {
			imported := importPath(spec)
			if !rule.allows(s, imported) {
				findings = append(findings, s.at(s.line(spec), "imports %s", imported))
			}
		}
	}
	return findings
}

// allowsLayer lets a package import from its own layer and from lower ones. A directory that has
// no layer may import nothing of ours and be imported by nobody.
func allowsLayer(s *source, imported string) bool {
	own, ours := ourPackage(imported)
	if !ours {
		return true
	}
	from, to := layerOf(s.dir()), layerOf(own)
	return from >= 0 && to >= 0 && to <= from
}

func layerOf(dir string) int {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Index(layers, top)
}

func allowsHome(s *source, imported string) bool {
	_, ours := ourPackage(imported)
	if ours || isStandard(imported) {
		return true
	}
	for _, row := range homes {
		if isBelow(imported, row.library) {
			return slices.ContainsFunc(row.homes, func(home string) bool {
				return isBelow(s.path, home)
			})
		}
	}
	return false
}

// impurities finds in a pure file what asks for the time or starts something.
func impurities(s *source) []string {
	if !isPure(s) {
		return nil
	}
	var findings []string
	for _, line := range s.uses("time", "Now", "Since", "Until", "After", "AfterFunc", "Sleep",
		"Tick", "NewTicker", "NewTimer") {
		findings = append(findings, s.at(line, "a pure file asks the clock: pass the time"))
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		_, ok := n.(*ast.GoStmt)
		if ok {
			findings = append(findings, s.at(s.line(n), "a pure file starts a goroutine"))
		}
		return true
	})
	return findings
}

// driverFindings looks at the interface that every ledger has to have: each method more is work
// for every driver there will ever be.
func driverFindings(s *source) []string {
	const maxMethods = 6
	if s.dir() != "ledgers" {
		return nil
	}
	var findings []string
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Driver" {
			return true
		}
		driver, ok := spec.Type.(*ast.InterfaceType)
		if !ok {
			findings = append(findings, s.at(s.line(spec), "ledgers.Driver is no interface"))
			return false
		}
		methods := 0
		for _, field := range driver.Methods.List {
			methods += len(field.Names)
			if len(field.Names) == 0 {
				findings = append(findings, s.at(s.line(field), "ledgers.Driver embeds another "+
					"interface: list the methods, so that they can be counted"))
			}
		}
		if methods > maxMethods {
			findings = append(findings, s.at(s.line(spec), "ledgers.Driver has %d methods, at "+
				"most %d are allowed", methods, maxMethods))
		}
		return false
	})
	return findings
}

// ourPackage returns the directory of a package of this module, and whether it is one.
func ourPackage(imported string) (string, bool) {
	dir, ours := strings.CutPrefix(imported, modulePath+"/")
	if !ours {
		return "", false
	}
	return dir, true
}

// isStandard reports whether a package is of the standard library: the first part of the path of
// any other is a domain, or this module.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return first != modulePath && !strings.Contains(first, ".")
}

// isBelow reports whether a path is the other, or in it.
func isBelow(name, parent string) bool {
	return parent == "." || name == parent || strings.HasPrefix(name, parent+"/")
}

// tidy:table for every rule, what it forbids and what it must let pass
func TestImportRulesBite(t *testing.T) {
	rows := []struct {
		rule, file, imported string
		allowed              bool
	}{
		{"layers", "ledgers/a.go", "weir/accounts", false},
		{"layers", "ledgers/embedded/a_test.go", "weir/limiter", false},
		{"layers", "accounts/a.go", "weir/limiter", false},
		{"layers", "accounts/a.go", "weir/api/wire", false},
		{"layers", "limiter/credit/a.go", "weir/api", false},
		{"layers", "api/a.go", "weir/cmd/weir", false},
		{"layers", "internal/backoff/a.go", "weir/ledgers", false},
		{"layers", "api/a.go", "weir/pkg/new", false},
		{"layers", "pkg/new/a.go", "weir/ledgers", false},
		{"layers", "accounts/a.go", "weir/ledgers", true},
		{"layers", "api/a.go", "weir/ledgers", true},
		{"layers", "cmd/weir/a.go", "weir/api/client", true},
		{"layers", "limiter/spend/a.go", "weir/internal/backoff", true},
		{"layers", "ledgers/a.go", "weird/accounts", true},

		{"homes", "limiter/a.go", "github.com/labstack/echo/v4/middleware", false},
		{"homes", "api/a.go", "github.com/labstack/echo/v4/middleware", true},
		{"homes", "api/a.go", "github.com/spf13/viper", false},
		{"homes", "accounts/book.go", "github.com/google/uuid", false},
		{"homes", "accounts/id.go", "github.com/google/uuid", true},
		{"homes", "ledgers/guard/a.go", "github.com/cockroachdb/pebble/v2", false},
		{"homes", "ledgers/embedded/a.go", "github.com/cockroachdb/pebble/v2/vfs", true},
		{"homes", "ledgers/embedded/a.go", "github.com/cockroachdb/pebble", false},
		{"homes", "cmd/weir/a.go", "example.com/not/listed", false},
		{"homes", "limiter/a.go", "github.com/prometheus/client_golang/prometheus", true},
		{"homes", "limiter/a.go", "net/http", true},

		{"ledgers", "ledgers/a.go", "github.com/prometheus/client_golang/prometheus", false},
		{"ledgers", "ledgers/a.go", "weir/internal/backoff", false},
		{"ledgers", "ledgers/a.go", "lukechampine.com/uint128", true},
		{"ledgers", "ledgers/a.go", "encoding/hex", true},
		{"ledgers", "ledgers/a_test.go", "weir/ledgers", true},
		{"ledgers", "ledgers/embedded/a.go", "github.com/cockroachdb/pebble/v2", true},

		{"drivers", "ledgers/embedded/a.go", "weir/ledgers", true},
		{"drivers", "ledgers/embedded/a.go", "weir/ledgers/embedded/disk", true},
		{"drivers", "ledgers/embedded/a.go", "weir/ledgers/ledgertest", false},
		{"drivers", "ledgers/embedded/a_test.go", "weir/ledgers/ledgertest", true},
		{"drivers", "ledgers/guard/a.go", "weir/ledgers/embedded", false},
		{"drivers", "ledgers/guard/a_test.go", "weir/ledgers/embedded", true},
		{"drivers", "ledgers/tigerbeetle/a_test.go", "weir/accounts", false},
		{"drivers", "ledgers/tigerbeetle/a.go", "github.com/tigerbeetle/tigerbeetle-go", true},

		{"driver-choice", "accounts/a.go", "weir/ledgers/embedded", false},
		{"driver-choice", "api/a.go", "weir/ledgers/guard", false},
		{"driver-choice", "accounts/a_test.go", "weir/ledgers/embedded", true},
		{"driver-choice", "cmd/weir/ledger.go", "weir/ledgers/tigerbeetle", true},
		{"driver-choice", "accounts/a.go", "weir/ledgers", true},

		{"ledgertest", "accounts/a.go", "weir/ledgers/ledgertest", false},
		{"ledgertest", "cmd/weir/a.go", "weir/ledgers/ledgertest", false},
		{"ledgertest", "cmd/weir/a.go", "weir/ledgers/tigerbeetle/tbtest", false},
		{"ledgertest", "accounts/a_test.go", "weir/ledgers/ledgertest", true},

		{"property-tests", "accounts/a.go", "pgregory.net/rapid", false},
		{"property-tests", "accounts/a_test.go", "pgregory.net/rapid", true},
		{"property-tests", "ledgers/ledgertest/a.go", "pgregory.net/rapid", true},

		{"wire", "api/wire/a.go", "weir/limiter", false},
		{"wire", "api/wire/a.go", "lukechampine.com/uint128", false},
		{"wire", "api/wire/a_test.go", "weir/api/wire", true},
		{"wire", "api/wire/a.go", "encoding/json", true},

		{"client", "api/client/a.go", "weir/api", false},
		{"client", "api/client/a.go", "weir/limiter", false},
		{"client", "api/client/a.go", "github.com/labstack/echo/v4", false},
		{"client", "api/client/a_test.go", "github.com/labstack/echo/v4", true},
		{"client", "api/client/a.go", "weir/limiter/credit", true},
		{"client", "api/client/a.go", "weir/limiter/credit/httpsource", false},
		{"client", "api/client/a.go", "weir/api/wire", true},
		{"client", "api/client/a_test.go", "weir/api", true},

		{"examples", "examples/a/main.go", "weir/limiter", false},
		{"examples", "examples/a/main.go", "github.com/spf13/cobra", false},
		{"examples", "examples/a/main.go", "weir/api/client", true},
		{"examples", "examples/a/main_test.go", "weir/api", true},

		{"credit", "limiter/credit/a.go", "weir/limiter", false},
		{"credit", "limiter/credit/a.go", "weir/internal/backoff", false},
		{"credit", "limiter/credit/ledger/a.go", "weir/accounts", true},

		{"pure", "ledgers/embedded/machine.go", "os", false},
		{"pure", "ledgers/embedded/machine_chain.go", "net/http", false},
		{"pure", "ledgers/embedded/machine.go", "sync/atomic", false},
		{"pure", "limiter/decide.go", "context", false},
		{"pure", "limiter/decide.go", "time", true},
		{"pure", "ledgers/embedded/machine_test.go", "os", true},
		{"pure", "ledgers/embedded/writer.go", "os", true},
	}
	bites := map[string]bool{}
	for _, row := range rows {
		i := slices.IndexFunc(importRules, func(r importRule) bool { return r.name == row.rule })
		if i < 0 {
			t.Fatalf("no rule %s", row.rule)
		}
		text := "package a\nimport _ \"" + row.imported + "\""
		got := forbiddenImports(importRules[i], []*source{parseSource(t, row.file, []byte(text))})
		if (len(got) == 0) != row.allowed {
			t.Errorf("%s: %s imports %s: got %q, want allowed %t",
				row.rule, row.file, row.imported, got, row.allowed)
		}
		bites[row.rule] = bites[row.rule] || !row.allowed
	}
	for _, rule := range importRules {
		if !bites[rule.name] {
			t.Errorf("no row shows that %s bites", rule.name)
		}
	}
}

func TestPureFilesBite(t *testing.T) {
	rows := []struct {
		file, body string
		want       int
	}{
		{"ledgers/embedded/machine.go", "time.Now()", 1},
		{"ledgers/embedded/machine_expire.go", "time.Since(t)", 1},
		{"limiter/decide.go", "f(time.Now)", 1},
		{"limiter/decide.go", "go f()", 1},
		{"limiter/decide.go", "f(time.Second)", 0},
		{"limiter/limiter.go", "time.Now()", 0},
		{"ledgers/embedded/machine_test.go", "go f(time.Now())", 0},
	}
	for _, row := range rows {
		text := "package a\nimport \"time\"\nfunc g() {\n" + row.body + "\n}"
		got := impurities(parseSource(t, row.file, []byte(text)))
		if len(got) != row.want {
			t.Errorf("%s, %s: got %q, want %d findings", row.file, row.body, got, row.want)
		}
	}
}

func TestDriverIsSmallBites(t *testing.T) {
	rows := []struct {
		file, driver string
		want         int
	}{
		{"ledgers/driver.go", "interface{ A(); B(); C(); D(); E(); F() }", 0},
		{"ledgers/driver.go", "interface{ A(); B(); C(); D(); E(); F(); G() }", 1},
		{"ledgers/driver.go", "interface{ io.Closer; A() }", 1},
		{"ledgers/driver.go", "struct{}", 1},
		{"accounts/driver.go", "interface{ A(); B(); C(); D(); E(); F(); G() }", 0},
	}
	for _, row := range rows {
		text := "package a\ntype Driver " + row.driver
		got := driverFindings(parseSource(t, row.file, []byte(text)))
		if len(got) != row.want {
			t.Errorf("%s, %s: got %q, want %d findings", row.file, row.driver, got, row.want)
		}
	}
}
