package redlatch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// publicPackages are what a program may import, by folder.
var publicPackages = []string{"", "lock", "rlock", "fairlock", "rwlock", "multilock", "otel", "redlatchtest"}

// No signature, exported field or constant that a program can reach has a type of an internal package.
func TestPublicSignaturesHaveNoInternalType(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", ".", "./redlatchtest")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		compiled[pkg] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(compiled[pkg]) })
	walked := &exports{seen: map[types.Type]bool{}}
	for _, dir := range publicPackages {
		pkg, err := imports.Import(path.Join(modulePath, dir))
		if err != nil {
			t.Fatal(err)
		}
		walked.pkg(pkg)
	}
	for _, bad := range walked.internal {
		t.Error(bad)
	}
	if walked.objects < 300 {
		t.Errorf("only %d objects were looked at", walked.objects)
	}
}

// The walk above finds an internal type wherever a program can see one, and not where it can't.
func TestInternalTypesAreFound(t *testing.T) {
	inside := typesOf(t, modulePath+"/internal/in", `package in
type T struct{}
type I interface{ hidden() *T }
type H struct{ T *T }
func (H) hidden() *T { return nil }
func (H) Shown() *T { return nil }`, nil)
	for source, bad := range map[string]bool{
		`func F(*in.T) {}`:                                   true,
		`func F() map[string]func([]in.T) {}`:                true,
		`var V chan in.T`:                                    true,
		`type S struct { F in.T }`:                           true,
		`type S struct { in.T }`:                             true,
		`type S struct { f in.T }`:                           false,
		`type S struct { t }; type t = in.T`:                 false,
		`type S struct { h }; type h = in.H`:                 true, // its method is promoted
		`type A = in.T`:                                      true,
		`type F func(s *in.T)`:                               true,
		`type I interface { M() in.T }`:                      true,
		`type I interface { in.I }`:                          true,
		`type I interface { i }; type i = in.I`:              false, // sealed by a private method
		`type S struct{}; func (*S) M(in.T) {}`:              true,
		`type S struct{}; func (*S) m(in.T) {}`:              false,
		`func F() s { return s{} }; type s struct{ F in.T }`: true,
		`func F[X in.I](X) {}`:                               true,
		`func f(in.T) {}; var v in.T`:                        false,
	} {
		walked := &exports{seen: map[types.Type]bool{}}
		walked.pkg(typesOf(t, modulePath+"/p", "package p; import \""+modulePath+"/internal/in\"; var _ in.T; "+source, inside))
		if got := len(walked.internal) > 0; got != bad {
			t.Errorf("%s: found %v", source, walked.internal)
		}
	}
}

func typesOf(t *testing.T, name, source string, imported *types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: one{imported}, Error: func(error) {}} // bodies may lack a return
	pkg, _ := conf.Check(name, fset, []*ast.File{file}, nil)
	return pkg
}

type one struct{ pkg *types.Package }

func (o one) Import(string) (*types.Package, error) { return o.pkg, nil }

// exports walks what programs can see of packages.
type exports struct {
	seen     map[types.Type]bool
	objects  int
	internal []string // what has an internal type
}

func (e *exports) pkg(pkg *types.Package) {
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if obj := scope.Lookup(name); obj.Exported() {
			e.object(pkg.Path()+"."+name, obj)
		}
	}
}

func (e *exports) object(where string, obj types.Object) {
	e.objects++
	if named, ok := obj.Type().(*types.Named); ok && internal(named.Obj()) {
		e.internal = append(e.internal, fmt.Sprintf("%s is %s", where, named))
		return
	}
	e.typ(where, obj.Type())
}

func internal(name *types.TypeName) bool {
	return name.Pkg() != nil && strings.HasPrefix(name.Pkg().Path(), modulePath+"/internal/")
}

// typ looks into a type that a program sees at where.
func (e *exports) typ(where string, t types.Type) {
	if e.seen[t] {
		return
	}
	e.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		e.name(where, t.Obj())
		e.typ(where, types.Unalias(t))
	case *types.Named:
		e.name(where, t.Obj())
		for arg := range t.TypeArgs().Types() {
			e.typ(where, arg)
		}
		if pkg := t.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), modulePath) && !internal(t.Obj()) {
			e.methods(where, types.NewPointer(t))
			e.typ(where, t.Underlying())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				e.typ(where+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				e.typ(where+"."+m.Name(), m.Type())
			}
		}
		for embedded := range t.EmbeddedTypes() {
			if alias, ok := embedded.(*types.Alias); ok && !alias.Obj().Exported() {
				e.methods(where, alias)
				continue
			}
			e.typ(where, embedded)
		}
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			e.typ(where, p.Constraint())
		}
		e.typ(where, t.Params())
		e.typ(where, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			e.typ(where, v.Type())
		}
	case *types.Map:
		e.typ(where, t.Key())
		e.typ(where, t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		e.typ(where, t.Elem())
	}
}

func (e *exports) name(where string, name *types.TypeName) {
	if internal(name) {
		e.internal = append(e.internal, fmt.Sprintf("%s has %s", where, name.Type()))
	}
}

// methods looks at the exported methods of a type, promoted ones included.
func (e *exports) methods(where string, t types.Type) {
	for m := range types.NewMethodSet(t).Methods() {
		if m.Obj().Exported() {
			e.objects++
			e.typ(where+"."+m.Obj().Name(), m.Type())
		}
	}
}
