package redlatch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// forImplementers are the names of package lock that programs have no use for: the lock kinds and other types that
// implement Locker need them.
var forImplementers = []string{"AcquireSettings", "Join", "SettingsOf"}

// A program imports one package: what package lock exports for it, the root package has under the same name.
func TestRootHasTheNamesOfPackageLock(t *testing.T) {
	root := exported(t, ".")
	all := exported(t, "lock")
	if len(all) < 40 {
		t.Errorf("only %d names were found", len(all))
	}
	for _, name := range all {
		if !slices.Contains(root, name) && !slices.Contains(forImplementers, name) {
			t.Errorf("lock.%s is missing in the root package", name)
		}
	}
	for _, name := range forImplementers {
		if !slices.Contains(all, name) {
			t.Errorf("package lock has no %s", name)
		}
	}
}

// exported lists the exported names of the package in dir, without methods and fields.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			names = append(names, declared(decl)...)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !token.IsExported(name) })
}

// declared are the names that a declaration of a package makes.
func declared(decl ast.Decl) []string {
	if f, ok := decl.(*ast.FuncDecl); ok {
		if f.Recv != nil {
			return nil
		}
		return []string{f.Name.Name}
	}
	var names []string
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, spec.Name.Name)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
