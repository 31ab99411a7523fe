package main_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The budgets. A long function is one that has to be read twice.
const (
	maxFunctionLines = 70
	maxFileLines     = 400 // of a file that is not a test
	maxColumns       = 100 // a tab is one
	maxPackageFiles  = 16  // that are not tests
)

// A rule of the house can be lifted at one place by a comment there, `tidy:word reason`:
//
//	tidy:table reason   in or above a declaration that is a table of data or a list of subtests:
//	                    its length counts neither for the function nor for the file, nor do
//	                    its columns count
//	tidy:line reason    on or above a line that is longer than maxColumns and cannot be broken
//	tidy:sleep reason   on or above a time.Sleep in a test that waits for a real server
var markWords = []string{"table", "line", "sleep"}

var markPattern = regexp.MustCompile(`^//\s*tidy:(\S*)\s*(.*)$`)

// Written so that it does not find itself.
var leftoverPattern = regexp.MustCompile(`\b(TOD[O]|FIXM[E]|X{3})\b`)

// emptyNames are names of files and directories that say nothing of what is inside.
var emptyNames = []string{
	"base", "common", "helper", "helpers", "impl", "misc", "type", "types", "util", "utils",
}

// source is one file of the project. Go files have a syntax tree, scripts do not.
type source struct {
	path   string // from the root of the project, with slashes
	lines  []string
	fset   *token.FileSet
	syntax *ast.File
	marks  []mark
}

// mark is a comment that lifts a rule.
type mark struct {
	line         int
	word, reason string
}

// tidyRule finds what a house rule does not allow, as lines of "path:line: what".
type tidyRule struct {
	name  string
	check func(files []*source) []string
}

// tidy:table the rules of the house
var tidyRules = []tidyRule{
	{"marks", eachGo(checkMarks)},
	{"function-length", eachGo(checkFunctionLength)},
	{"file-length", eachGo(checkFileLength)},
	{"line-length", eachGo(checkLineLength)},
	{"package-size", checkPackageSize},
	{"file-names", each(checkFileName)},
	{"leftovers", each(checkLeftovers)},
	{"sleeps", eachGo(checkSleeps)},
	{"doc-comments", eachGo(checkDocComments)},
	{"errors-new", eachGo(checkErrorsNew)},
	{"package-clock", eachGo(checkPackageClock)},
	{"init", eachGo(checkInit)},
}

func TestTidy(t *testing.T) {
	files := projectFiles(t)
	for _, rule := range tidyRules {
		t.Run(rule.name, func(t *testing.T) {
			for _, finding := range rule.check(files) {
				t.Error(finding)
			}
		})
	}
}

// projectFiles reads the Go files and scripts of the project, other modules in it included.
func projectFiles(t testing.TB) []*source {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []*source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && rel != "." && rel != ".ci"
			if hidden || entry.Name() == "testdata" || rel == "weir-data" {
				return fs.SkipDir
			}
			return nil
		}
		script := strings.HasPrefix(rel, "scripts/") || strings.HasPrefix(rel, ".ci/")
		if !entry.Type().IsRegular() || path.Ext(rel) != ".go" && !script {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, parseSource(t, rel, text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no files: the rules would pass on nothing")
	}
	return files
}

// parseSource makes a source of a file's text.
func parseSource(t testing.TB, name string, text []byte) *source {
	t.Helper()
	s := &source{path: name, fset: token.NewFileSet()}
	s.lines = strings.Split(string(bytes.TrimSuffix(text, []byte("\n"))), "\n")
	if path.Ext(name) != ".go" {
		return s
	}
	syntax, err := parser.ParseFile(s.fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	s.syntax = syntax
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			match := markPattern.FindStringSubmatch(comment.Text)
			if match != nil {
				s.marks = append(s.marks, mark{s.line(comment), match[1], match[2]})
			}
		}
	}
	return s
}

func (s *source) dir() string             { return path.Dir(s.path) }
func (s *source) isTest() bool            { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) line(n ast.Node) int     { return s.fset.Position(n.Pos()).Line }
func (s *source) lastLine(n ast.Node) int { return s.fset.Position(n.End()).Line }

// at words a finding.
func (s *source) at(line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, line, fmt.Sprintf(format, args...))
}

// marked reports whether the line, or the one above it, has a mark with the word.
func (s *source) marked(word string, line int) bool {
	return slices.ContainsFunc(s.marks, func(m mark) bool {
		return m.word == word && (m.line == line || m.line == line-1)
	})
}

// tables returns the declarations that are marked as tables.
func (s *source) tables() []ast.Decl {
	var tables []ast.Decl
	for _, decl := range s.syntax.Decls {
		first := s.line(decl)
		doc := docOf(decl)
		if doc != nil {
			first = s.line(doc)
		}
		if slices.ContainsFunc(s.marks, func(m mark) bool {
			return m.word == "table" && m.line >= first && m.line <= s.lastLine(decl)
		}) {
			tables = append(tables, decl)
		}
	}
	return tables
}

// uses returns the lines on which the file uses a name of a package of the standard library.
func (s *source) uses(pkg string, names ...string) []int {
	return s.usesIn(s.syntax, pkg, names...)
}

func (s *source) usesIn(root ast.Node, pkg string, names ...string) []int {
	local := ""
	for _, spec := range s.syntax.Imports {
		if importPath(spec) != pkg {
			continue
		}
		local = path.Base(pkg)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	var lines []int
	ast.Inspect(root, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := selector.X.(*ast.Ident)
		if ok && local != "" && x.Name == local && slices.Contains(names, selector.Sel.Name) {
			lines = append(lines, s.line(selector))
		}
		return true
	})
	return lines
}

func importPath(spec *ast.ImportSpec) string { return strings.Trim(spec.Path.Value, "\"`") }

func docOf(decl ast.Decl) *ast.CommentGroup {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		return decl.Doc
	case *ast.GenDecl:
		return decl.Doc
	default:
		return nil
	}
}

// each makes a rule for all files of one for a single file.
func each(check func(s *source) []string) func([]*source) []string {
	return func(files []*source) []string {
		var findings []string
		for _, s := range files {
			findings = append(findings, check(s)...)
		}
		return findings
	}
}

// eachGo is each for a rule that does not concern scripts.
func eachGo(check func(s *source) []string) func([]*source) []string {
	return each(func(s *source) []string {
		if s.syntax == nil {
			return nil
		}
		return check(s)
	})
}

func checkMarks(s *source) []string {
	var findings []string
	for _, m := range s.marks {
		switch {
		case !slices.Contains(markWords, m.word):
			findings = append(findings, s.at(m.line, "no such mark: tidy:%s", m.word))
		case m.reason == "":
			findings = append(findings, s.at(m.line, "tidy:%s gives no reason", m.word))
		}
	}
	return findings
}

func checkFunctionLength(s *source) []string {
	tables := s.tables()
	var findings []string
	check := func(n ast.Node, name string) {
		lines := s.lastLine(n) - s.line(n) + 1
		if lines > maxFunctionLines {
			findings = append(findings, s.at(s.line(n), "%s has %d lines, at most %d are allowed",
				name, lines, maxFunctionLines))
		}
	}
	for _, decl := range s.syntax.Decls {
		if slices.Contains(tables, decl) {
			continue
		}
		function, ok := decl.(*ast.FuncDecl)
		if ok {
			check(function, function.Name.Name)
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool { // a function in a variable
			literal, ok := n.(*ast.FuncLit)
			if ok {
				check(literal, "a function")
			}
			return !ok
		})
	}
	return findings
}

func checkFileLength(s *source) []string {
	lines := len(s.lines)
	for _, table := range s.tables() {
		lines -= s.lastLine(table) - s.line(table) + 1
	}
	if s.isTest() || lines <= maxFileLines {
		return nil
	}
	return []string{s.at(1, "the file has %d lines besides its tables, at most %d are allowed",
		lines, maxFileLines)}
}

func checkLineLength(s *source) []string {
	rows := s.unbreakableRows()
	tables := s.tables()
	var findings []string
	for i, text := range s.lines {
		line := i + 1
		columns := utf8.RuneCountInString(text)
		if columns <= maxColumns || rows[line] || s.marked("line", line) {
			continue
		}
		if slices.ContainsFunc(tables, func(d ast.Decl) bool {
			return line >= s.line(d) && line <= s.lastLine(d)
		}) {
			continue
		}
		findings = append(findings, s.at(line, "the line has %d columns, at most %d are allowed",
			columns, maxColumns))
	}
	return findings
}

// unbreakableRows returns the lines of package-level tables that are one name and one literal:
// what makes them long is what they say.
func (s *source) unbreakableRows() map[int]bool {
	rows := map[int]bool{}
	for _, decl := range s.syntax.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		ast.Inspect(general, func(n ast.Node) bool {
			row, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			_, named := row.Key.(*ast.Ident)
			_, literal := row.Value.(*ast.BasicLit)
			if named && literal && s.line(row) == s.lastLine(row) {
				rows[s.line(row)] = true
			}
			return true
		})
	}
	return rows
}

func checkPackageSize(files []*source) []string {
	count := map[string]int{}
	for _, s := range files {
		if s.syntax != nil && !s.isTest() {
			count[s.dir()]++
		}
	}
	var findings []string
	for dir, n := range count {
		if n > maxPackageFiles {
			findings = append(findings, fmt.Sprintf(
				"%s:1: the package has %d files that are not tests, at most %d are allowed",
				dir, n, maxPackageFiles))
		}
	}
	slices.Sort(findings)
	return findings
}

func checkFileName(s *source) []string {
	for part := range strings.SplitSeq(s.path, "/") {
		name := strings.TrimSuffix(strings.TrimSuffix(part, path.Ext(part)), "_test")
		if slices.Contains(emptyNames, name) {
			return []string{s.at(1, "%q does not say what is inside", name)}
		}
	}
	return nil
}

func checkLeftovers(s *source) []string {
	var findings []string
	for i, text := range s.lines {
		word := leftoverPattern.FindString(text)
		if word != "" {
			findings = append(findings, s.at(i+1, "%s: finish it, or write down elsewhere why not",
				word))
		}
	}
	return findings
}

// checkSleeps looks at tests and at packages for tests. In a bubble of testing/synctest a sleep is
// how time is moved and takes none.
func checkSleeps(s *source) []string {
	if !s.isTest() && !strings.HasSuffix(s.dir(), "test") {
		return nil
	}
	var bubbles []int
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && len(s.usesIn(call.Fun, "testing/synctest", "Test")) > 0 {
			bubbles = append(bubbles, s.usesIn(call, "time", "Sleep")...)
		}
		return true
	})
	var findings []string
	for _, line := range s.uses("time", "Sleep") {
		if !slices.Contains(bubbles, line) && !s.marked("sleep", line) {
			findings = append(findings, s.at(line, "time.Sleep in a test: wait for what is "+
				"expected, or move the time of a synctest bubble"))
		}
	}
	return findings
}

// checkDocComments wants a comment on every exported function, type, constant and variable, on the
// exported methods of exported types, and on the methods of exported interfaces. Constants and
// variables of one group may share the group's; a struct's comment may speak for its fields.
func checkDocComments(s *source) []string {
	if s.isTest() {
		return nil
	}
	var findings []string
	missing := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				findings = append(findings, s.at(s.line(name), "%s has no doc comment", name.Name))
			}
		}
	}
	for _, decl := range s.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if onExported(decl) && decl.Doc == nil {
				missing(decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Doc == nil && decl.Doc == nil {
						missing(spec.Name)
					}
					missing(undocumentedMethods(spec)...)
				case *ast.ValueSpec:
					if spec.Doc == nil && spec.Comment == nil && decl.Doc == nil {
						missing(spec.Names...)
					}
				}
			}
		}
	}
	return findings
}

// onExported reports whether a function is no method, or one of an exported type.
func onExported(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	receiver := function.Recv.List[0].Type
	for {
		switch x := receiver.(type) {
		case *ast.StarExpr:
			receiver = x.X
		case *ast.IndexExpr:
			receiver = x.X
		case *ast.IndexListExpr:
			receiver = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// undocumentedMethods returns the methods without a comment of an exported interface.
func undocumentedMethods(spec *ast.TypeSpec) []*ast.Ident {
	methods, ok := spec.Type.(*ast.InterfaceType)
	if !ok || !spec.Name.IsExported() {
		return nil
	}
	var names []*ast.Ident
	for _, method := range methods.Methods.List {
		if method.Doc == nil {
			names = append(names, method.Names...)
		}
	}
	return names
}

func checkErrorsNew(s *source) []string {
	if s.isTest() || path.Base(s.path) == "errors.go" {
		return nil
	}
	var findings []string
	for _, line := range s.uses("errors", "New") {
		findings = append(findings, s.at(line, "errors.New belongs in errors.go, with a comment "+
			"that says who returns it and when"))
	}
	return findings
}

func checkPackageClock(s *source) []string {
	var findings []string
	for _, decl := range s.syntax.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.VAR {
			continue
		}
		for _, spec := range general.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			clock := len(s.usesIn(value, "time", "Now", "Since", "Until")) > 0
			for _, name := range value.Names {
				lower := strings.ToLower(name.Name)
				clock = clock || lower == "now" || strings.HasSuffix(lower, "clock") ||
					strings.HasSuffix(name.Name, "Now")
			}
			if clock {
				findings = append(findings, s.at(s.line(value), "a clock of the package: pure "+
					"code takes now, long-lived structs have a field Now"))
			}
		}
	}
	return findings
}

func checkInit(s *source) []string {
	var findings []string
	for _, decl := range s.syntax.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if ok && function.Recv == nil && function.Name.Name == "init" {
			findings = append(findings, s.at(s.line(function), "init runs for everyone who "+
				"imports the package: let main call it"))
		}
	}
	return findings
}

// tidy:table for every rule, what it finds and what it must not find
func TestTidyRulesBite(t *testing.T) {
	long := strings.Repeat("\t_ = 0\n", maxFunctionLines-1)
	wide := strings.Repeat("x", maxColumns)
	rows := []struct {
		rule, path, text string
		want             int // findings
	}{
		{"marks", "a/a.go", "package a\n// tidy:table rows of the trace\nvar x = 1", 0},
		{"marks", "a/a.go", "package a\n//tidy:table\nvar x = 1", 1},
		{"marks", "a/a.go", "package a\n// tidy:nothing because\nvar x = 1", 1},

		{"function-length", "a/a.go", "package a\nfunc f() {\n" + long[7:] + "}", 0},
		{"function-length", "a/a.go", "package a\nfunc f() {\n" + long + "}", 1},
		{"function-length", "a/a_test.go", "package a\nfunc f() {\n" + long + "}", 1},
		{"function-length", "a/a.go", "package a\nvar f = func() {\n" + long + "}", 1},
		{"function-length", "a/a.go", "package a\n// tidy:table rows\nfunc f() {\n" + long + "}", 0},
		{"function-length", "a/a.go", "package a\nfunc f() {\n// tidy:table rows\n" + long + "}", 0},
		{"function-length", "a/a.go", "package a\n// tidy:table rows\nvar x = 1\nfunc f() {\n" +
			long + "}", 1},

		{"file-length", "a/a.go", "package a" + strings.Repeat("\n", maxFileLines), 0},
		{"file-length", "a/a.go", "package a" + strings.Repeat("\n", maxFileLines+1), 1},
		{"file-length", "a/a_test.go", "package a" + strings.Repeat("\n", maxFileLines+1), 0},
		{"file-length", "a/a.go", "package a\n// tidy:table rows\nvar x = []int{" +
			strings.Repeat("\n", maxFileLines) + "}", 0},

		{"line-length", "a/a.go", "package a\n//" + wide[2:], 0},
		{"line-length", "a/a.go", "package a\n//" + strings.Repeat("é", maxColumns-2), 0},
		{"line-length", "a/a.go", "package a\n//" + wide, 1},
		{"line-length", "a/a.go", "package a\n// tidy:line a URL\n//" + wide, 0},
		{"line-length", "a/a.go", "package a\n// tidy:table rows\nvar x = `\n" + wide + "x`", 0},
		{"line-length", "a/a.go", "package a\nvar x = `\n" + wide + "x`", 1},
		{"line-length", "a/a.go", "package a\nvar x = map[int]string{\nAb: \"" + wide + "\",\n}", 0},
		{"line-length", "a/a.go", "package a\nvar x = f(\"" + wide + "\")", 1},

		{"file-names", "a/utils.go", "package a", 1},
		{"file-names", "a/helpers_test.go", "package a", 1},
		{"file-names", "common/a.go", "package a", 1},
		{"file-names", "scripts/misc", "echo", 1},
		{"file-names", "a/database.go", "package a", 0},

		{"leftovers", "a/a.go", "package a\n// TO" + "DO: later", 1},
		{"leftovers", "a/a_test.go", "package a\nvar x = \"FIX" + "ME\"", 1},
		{"leftovers", "scripts/a", "# X" + "XX", 1},
		{"leftovers", "scripts/a", "mktemp weir.XX" + "XXXX; echo METHODOLOGY mastodon", 0},

		{"sleeps", "a/a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }", 1},
		{"sleeps", "a/atest/a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }", 1},
		{"sleeps", "a/a_test.go", "package a\nimport t \"time\"\nfunc f() { t.Sleep(1) }", 1},
		{"sleeps", "a/a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }", 0},
		{"sleeps", "a/a_test.go", "package a\nimport \"time\"\nfunc f() {\n" +
			"time.Sleep(1) // tidy:sleep a real server\n}", 0},
		{"sleeps", "a/a_test.go", "package a\nimport (\"time\"; \"testing/synctest\")\n" +
			"func f() {\nsynctest.Test(t, func(t *T) { time.Sleep(1) })\n}", 0},
		{"sleeps", "a/a_test.go", "package a\nimport (\"time\"; \"testing/synctest\")\n" +
			"func f() {\nsynctest.Test(t, g)\ntime.Sleep(1)\n}", 1},

		{"doc-comments", "a/a.go", "package a\nfunc F() {}", 1},
		{"doc-comments", "a/a.go", "package a\n// F does.\nfunc F() {}\nfunc g() {}", 0},
		{"doc-comments", "a/a_test.go", "package a\nfunc F() {}", 0},
		{"doc-comments", "a/a.go", "package a\ntype T struct{ A int }", 1},
		{"doc-comments", "a/a.go", "package a\n// T is.\ntype T struct{ A int }", 0},
		{"doc-comments", "a/a.go", "package a\nfunc (t *T[K]) M() {}", 1},
		{"doc-comments", "a/a.go", "package a\nfunc (t t) M() {}", 0},
		{"doc-comments", "a/a.go", "package a\n// I is.\ntype I interface{ M(); n() }", 1},
		{"doc-comments", "a/a.go", "package a\nconst A, B = 1, 2", 2},
		{"doc-comments", "a/a.go", "package a\n// The numbers.\nconst (\nA = 1\nB = 2\n)", 0},
		{"doc-comments", "a/a.go", "package a\nvar (\nA = 1 // one\nb = 2\n)", 0},

		{"errors-new", "a/a.go", "package a\nimport \"errors\"\nvar e = errors.New(\"e\")", 1},
		{"errors-new", "a/errors.go", "package a\nimport \"errors\"\nvar e = errors.New(\"e\")", 0},
		{"errors-new", "a/a_test.go", "package a\nimport \"errors\"\nvar e = errors.New(\"e\")", 0},

		{"package-clock", "a/a.go", "package a\nimport \"time\"\nvar read = time.Now", 1},
		{"package-clock", "a/a.go", "package a\nimport \"time\"\nvar start = time.Now()", 1},
		{"package-clock", "a/a.go", "package a\nvar now func() int", 1},
		{"package-clock", "a/a.go", "package a\nvar (\na = 1\ntheClock int\n)", 1},
		{"package-clock", "a/a.go", "package a\nimport \"time\"\nfunc f() { now := time.Now() }", 0},
		{"package-clock", "a/a.go", "package a\nvar known = 1", 0},

		{"init", "a/a.go", "package a\nfunc init() {}", 1},
		{"init", "a/a.go", "package a\nfunc (t t) init() {}", 0},
	}
	bites := map[string]bool{}
	for _, row := range rows {
		got := findings(t, row.rule, parseSource(t, row.path, []byte(row.text)))
		if len(got) != row.want {
			t.Errorf("%s in %s, %q: got %q, want %d findings",
				row.rule, row.path, row.text, got, row.want)
		}
		bites[row.rule] = bites[row.rule] || row.want > 0
	}
	for _, rule := range tidyRules {
		if !bites[rule.name] && rule.name != "package-size" {
			t.Errorf("no row shows that %s bites", rule.name)
		}
	}
}

func TestTidyPackageSizeBites(t *testing.T) {
	var files []*source
	for i := range maxPackageFiles {
		files = append(files, parseSource(t, fmt.Sprintf("a/a%d.go", i), []byte("package a")))
	}
	files = append(files, parseSource(t, "a/a_test.go", []byte("package a")))
	files = append(files, parseSource(t, "a/b/b.go", []byte("package b")))
	got := findings(t, "package-size", files...)
	if len(got) != 0 {
		t.Errorf("%d files: got %q, want no finding", maxPackageFiles, got)
	}
	files = append(files, parseSource(t, "a/z.go", []byte("package a")))
	got = findings(t, "package-size", files...)
	if len(got) != 1 {
		t.Errorf("%d files: got %q, want one finding", maxPackageFiles+1, got)
	}
}

// findings applies the rule of that name.
func findings(t testing.TB, name string, files ...*source) []string {
	t.Helper()
	for _, rule := range tidyRules {
		if rule.name == name {
			return rule.check(files)
		}
	}
	t.Fatalf("no rule %s", name)
	return nil
}
