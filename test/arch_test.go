// Package test holds what needs several rooms or the whole program: scripts, crashes, clusters, tampering, and the
// rules of the source tree itself.
package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	module  = "github.com/holdfast-dvir/holdfast/"
	testify = "github.com/stretchr/testify"
)

// rooms lists, for every room, what it may import besides the standard library: other rooms by name, third parties by
// the start of their path. A folder below a room lives under the rule of that room.
var rooms = map[string]string{
	"dvir":       "github.com/santhosh-tekuri/jsonschema",
	"chain":      "golang.org/x/mod",
	"blob":       "chain github.com/minio/minio-go golang.org/x/sys",
	"jetstream":  "chain github.com/nats-io golang.org/x/sys",
	"projection": "chain go.etcd.io/bbolt golang.org/x/mod",
	"deadletter": "chain blob projection",
	"process":    "chain blob deadletter dvir projection golang.org/x/sys",
	"alert":      "chain projection",
	"audit":      "chain blob projection golang.org/x/mod",
	"web":        "chain deadletter process projection audit github.com/danielgtaylor/huma",
}

// notYet names the rooms that are planned and have no folder; it must not name one that has.
var notYet = map[string]bool{"alert": true}

// outside names the folders that may import any room; the drivers of stores and servers stay in their rooms all the same.
var outside = []string{"cmd", "test"}

// drivers are third parties that one room wraps for all others.
var drivers = map[string]string{
	"github.com/nats-io":                    "jetstream",
	"github.com/minio/minio-go":             "blob",
	"go.etcd.io/bbolt":                      "projection",
	"github.com/santhosh-tekuri/jsonschema": "dvir",
	"github.com/danielgtaylor/huma":         "web",
}

func TestRoomsExist(t *testing.T) {
	folders := sources(t)
	for room := range rooms {
		built := slices.ContainsFunc(folders, func(f folder) bool { return f.path == room })
		if notYet[room] {
			assert.False(t, built, "room %s has a folder: take it off the list of those not yet there", room)
		} else {
			assert.True(t, built, "room %s has no folder", room)
		}
	}
}

// testsOf lists, for every room, what its tests import besides: how else to damage a database, or build a queue.
var testsOf = map[string]string{
	"audit": "go.etcd.io/bbolt golang.org/x/sys",
	"web":   "blob",
}

// testSupport is what every test may import besides the standard library and testify.
const testSupport = "github.com/rogpeppe/go-internal testdata/corpus"

// corpus is the only package in a folder called testdata: go list shows none of them, so nothing may hide there.
const corpus = "testdata/corpus"

// TestImports parses the files itself rather than asking "go list": the test cache sees the files a test opens, and
// would replay a stale pass otherwise.
func TestImports(t *testing.T) {
	for _, folder := range sources(t) {
		for _, files := range []map[string]*ast.File{folder.files, folder.tests} {
			for name, file := range files {
				assert.Empty(t, violations(name, file), name)
			}
		}
	}
}

// violations lists what the file of that name may not import or, in a pure room, call.
func violations(name string, file *ast.File) (found []string) {
	from := path.Dir(name)
	room, _, _ := strings.Cut(from, "/")
	may, ruled := rooms[room]
	std, isPure := pure[room]
	isPure = isPure && !forTests(from) && !isTest(name)
	switch {
	case from == corpus:
		ruled = true
	case slices.Contains(strings.Split(from, "/"), "testdata"):
		return []string{"a package in a folder of test data"}
	case !ruled && !slices.Contains(outside, room):
		return []string{"belongs to no room"}
	case isTest(name):
		from, may = name, strings.Join([]string{may, testsOf[room], testSupport}, " ")
	}
	for _, imported := range imports(file) {
		if ruled && !allowed(from, imported, may) || room == "cmd" && wrapped(imported) != "" {
			found = append(found, imported)
		}
	}
	if isPure {
		found = append(found, impurities(file, std)...)
	}
	return found
}

func TestViolations(t *testing.T) {
	for _, c := range []struct {
		name, source string
		want         bool
	}{
		{"chain/x.go", `import "encoding/json"`, false},
		{"chain/x.go", `import "crypto/rand"`, true},
		{"chain/x.go", `import t "time"; var _ = t.Now()`, true},
		{"chain/x.go", `import "time"; var now = time.Now`, true},
		{"chain/x.go", `import "io/ioutil"`, true},
		{"chain/inner/x.go", `import "os"`, true},
		{"chain/chaintest/x.go", `import "testing"`, false},
		{"chain/x_test.go", `import "os/exec"`, false},
		{"chain/x_test.go", `import "` + module + `blob"`, true},
		{"dvir/x.go", `import "net/http"`, true},
		{"dvir/x.go", `import "golang.org/x/text/unicode/norm"`, true},
		{"blob/x_test.go", `import "` + module + `projection"`, true},
		{"blob/x_test.go", `import "` + module + `blob/blobtest"`, false},
		{"blob/x_test.go", `import "` + testify + `/require"`, false},
		{"blob/x_test.go", `import "github.com/rogpeppe/go-internal/testscript"`, false},
		{"blob/x_test.go", `import "` + module + corpus + `"`, false},
		{"blob/x.go", `import "` + module + corpus + `"`, true},
		{"blob/testdata/hidden/x.go", `import "` + module + `web"`, true},
		{"blob/testdata/x.go", `import "fmt"`, true},
		{"testdata/x.go", `import "fmt"`, true},
		{"testdata/corpus/x.go", `import "embed"`, false},
		{"testdata/corpus/x.go", `import "` + module + `chain"`, true},
		{"web/x_test.go", `import "` + module + `blob"`, false},
		{"web/x.go", `import "` + module + `blob"`, true},
		{"audit/x.go", `import "go.etcd.io/bbolt"`, true},
		{"audit/x_test.go", `import "go.etcd.io/bbolt"`, false},
		{"cmd/holdfast/x.go", `import "go.etcd.io/bbolt"`, true},
		{"cmd/holdfast/x.go", `import "` + module + `web"`, false},
		{"x.go", `import "fmt"`, true},
		{"elsewhere/x.go", `import "fmt"`, true},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+c.source, 0)
		require.NoError(t, err)
		assert.Equal(t, c.want, len(violations(c.name, file)) > 0, "%s: %s", c.name, c.source)
	}
}

// TestSources: what is planted where go list does not look is found all the same.
func TestSources(t *testing.T) {
	root := fstest.MapFS{}
	for _, name := range []string{"x.go", "blob/x.go", "blob/x_test.go", "blob/testdata/hidden/x.go", "other/go.mod", "other/x.go", ".hidden/x.go"} {
		root[name] = &fstest.MapFile{Data: []byte("package p")}
	}
	folders, err := packages(root)
	require.NoError(t, err)
	var names []string
	for _, f := range folders {
		names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(f.files)), maps.Keys(f.tests))
	}
	assert.ElementsMatch(t, []string{"x.go", "blob/x.go", "blob/x_test.go", "blob/testdata/hidden/x.go"}, names)
}

func TestAllowed(t *testing.T) {
	const may = "chain go.etcd.io/bbolt"
	for _, c := range []struct {
		from, imported string
		want           bool
	}{
		{"projection", "encoding/json", true},
		{"projection", module + "chain", true},
		{"projection", "go.etcd.io/bbolt", true},
		{"projection", "go.etcd.io/bbolt/errors", true},
		{"projection/keys", module + "projection", true},
		{"projection/projectiontest", module + "chain/chaintest", true},
		{"projection/projectiontest", "github.com/stretchr/testify/require", true},
		{"projection/projectiontest", "testing", true},

		{"projection", module + "web", false},
		{"projection", module + "chained", false},
		{"projection", "go.etcd.io/bbolt-fork", false},
		{"projection", "github.com/nats-io/nats.go", false},
		{"projection/projectiontest", module + "deadletter", false},
		{"projection", module + "chain/chaintest", false},
		{"projection", "github.com/stretchr/testify/require", false},
		{"projection", "testing", false},
		{"projection", "testing/iotest", false},
		{"projection", "net/http/httptest", false},
	} {
		assert.Equal(t, c.want, allowed(c.from, c.imported, may), "%s imports %s", c.from, c.imported)
	}
	assert.Equal(t, "jetstream", wrapped("github.com/nats-io/nats.go"))
	assert.Empty(t, wrapped("golang.org/x/sync/errgroup"))
}

// TestOneAppender keeps deadletter, in one of its files, the only caller of Append: the log's own rooms aside, a
// decision that reaches the chain has passed there.
func TestOneAppender(t *testing.T) {
	var callers []string
	for _, folder := range sources(t) {
		room, _, _ := strings.Cut(folder.path, "/")
		if room == "chain" || room == "jetstream" || room == "test" {
			continue
		}
		for name, file := range folder.files {
			if !appends(file) {
				continue
			}
			callers = append(callers, name)
			assert.Equal(t, "deadletter", folder.path, "%s appends to the log", name)
		}
	}
	assert.Len(t, callers, 1, "files that append to the log")
}

func TestAppends(t *testing.T) {
	for source, want := range map[string]bool{
		`import "fmt"; func f(b []byte) { fmt.Append(b, 1) }`:                      false,
		`import "example.org/fmt/v2"; func f(b []byte) { fmt.Append(b, 1) }`:       false,
		`type log interface { Append(int) error }`:                                 false,
		`func f(l log) { l.Append(ctx, 1) }`:                                       true,
		`func (q *Queue) f() { retry(q.log.Append) }`:                              true,
		`import other "fmt"; func f(fmt log) { fmt.Append(ctx, other.Sprint(1)) }`: true,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+source, 0)
		require.NoError(t, err)
		assert.Equal(t, want, appends(file), source)
	}
}

// pure lists what the rooms without I/O, clock and chance import from the standard library: what an auditor trusts, and
// what judges reports. A new entry is a decision:
// nothing in it may read a file, the network, the time of day or a random source. Of archive/zip, mime and mime/multipart that
// holds for what works on bytes in memory: the readers.
var pure = map[string]string{
	"chain": "bytes context crypto/sha256 encoding/hex encoding/json errors fmt iter slices strconv strings sync time unicode/utf8",
	"dvir": "archive/zip bytes cmp compress/flate compress/gzip crypto/sha256 embed encoding/base64 encoding/csv encoding/json encoding/xml " +
		"errors fmt io iter maps math math/big mime mime/multipart path regexp slices strconv strings sync time time/tzdata unicode unicode/utf8",
}

// clock are the functions of package time that read or wait for the time of day.
var clock = strings.Fields("Now Since Until Sleep After Tick NewTimer NewTicker AfterFunc")

func TestImpurities(t *testing.T) {
	for source, want := range map[string]bool{
		`import "time"; var _ = time.Second`:           false,
		`import "time"; var _ = time.Now()`:            true,
		`import t "time"; var _ = t.Now()`:             true,
		`import . "time"; var _ = Now()`:               true,
		`import "crypto/rand"; var _ = rand.Reader`:    true,
		`import "io/ioutil"; var _ = ioutil.Discard`:   true,
		`import "net/http"; var _ = http.StatusOK`:     true,
		`import "example.org/other"; var _ = other.X`:  false, // the table of rooms sees to that
		`import "crypto/sha256"; var _ = sha256.New()`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+source, 0)
		require.NoError(t, err)
		assert.Equal(t, want, len(impurities(file, "time crypto/sha256")) > 0, source)
	}
}

// impurities are the imports of the standard library that are not allowed, and the calls of the clock, under whatever
// name package time is imported.
func impurities(file *ast.File, allowed string) (found []string) {
	name := "time"
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") && !slices.Contains(strings.Fields(allowed), imported) {
			found = append(found, imported)
		}
		if imported == "time" && spec.Name != nil {
			name = spec.Name.Name
		}
	}
	if name == "." {
		found = append(found, "time without its name")
	}
	for called := range selectors(file) {
		if x, ok := called.X.(*ast.Ident); ok && x.Name == name && slices.Contains(clock, called.Sel.Name) {
			found = append(found, "time."+called.Sel.Name)
		}
	}
	return found
}

func TestPackageDocs(t *testing.T) {
	for _, folder := range sources(t) {
		files := folder.files
		if len(files) == 0 {
			files = folder.tests
		}
		documented := slices.ContainsFunc(slices.Collect(maps.Values(files)), func(f *ast.File) bool {
			return f.Doc.Text() != ""
		})
		assert.True(t, documented, "package %s has no doc comment", folder.path)
	}
}

// folder is a package: its path from the root, its files and its test files by path.
type folder struct {
	path         string
	files, tests map[string]*ast.File
}

// sources parses every package of the module.
func sources(t *testing.T) []folder {
	t.Helper()
	folders, err := packages(os.DirFS(".."))
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	return folders
}

func packages(root fs.FS) (folders []folder, err error) {
	err = fs.WalkDir(root, ".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if dir != "." && foreign(root, dir) {
			return fs.SkipDir
		}
		f, err := parse(root, dir)
		if len(f.files)+len(f.tests) > 0 {
			folders = append(folders, f)
		}
		return err
	})
	return folders, err
}

// foreign tells folders that hold no package of this module: hidden ones, other modules, and what git
// ignores at the root.
func foreign(root fs.FS, dir string) bool {
	name := path.Base(dir)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	if _, err := fs.Stat(root, path.Join(dir, "go.mod")); err == nil {
		return true
	}
	ignored, _ := fs.ReadFile(root, ".gitignore")
	return slices.Contains(strings.Fields(string(ignored)), "/"+dir+"/")
}

func parse(root fs.FS, dir string) (folder, error) {
	f := folder{dir, make(map[string]*ast.File), make(map[string]*ast.File)}
	names, err := fs.Glob(root, path.Join(dir, "*.go"))
	if err != nil {
		return f, err
	}
	for _, name := range names {
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return f, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return f, err
		}
		if isTest(name) {
			f.tests[name] = file
		} else {
			f.files[name] = file
		}
	}
	return f, nil
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

func imports(file *ast.File) []string {
	var paths []string
	for _, spec := range file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// allowed tells whether a package or a test file at from may import imported, under its room's rule.
func allowed(from, imported, may string) bool {
	if forTests(imported) && !forTests(from) && !isTest(from) {
		return false
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") || within(imported, testify) {
		return true
	}
	room, _, _ := strings.Cut(from, "/")
	imported = strings.TrimPrefix(imported, module)
	for m := range strings.FieldsSeq(may + " " + room) {
		if within(imported, m) {
			return true
		}
	}
	return false
}

// forTests tells packages that only tests and test support, such as chain/chaintest, may import.
func forTests(p string) bool {
	return within(p, "testing") || within(p, testify) || strings.HasSuffix(p, "test")
}

// wrapped names the room that wraps an imported driver, if it is one.
func wrapped(imported string) string {
	for driver, room := range drivers {
		if within(imported, driver) {
			return room
		}
	}
	return ""
}

func within(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }

// appends tells whether a file names a method Append of some value, called or not. Functions of that name in imported
// packages, such as fmt.Append, do not count.
func appends(file *ast.File) bool {
	packages := make(map[string]bool)
	for i, p := range imports(file) {
		name := version.ReplaceAllString(p, "")
		packages[path.Base(name)] = true
		if alias := file.Imports[i].Name; alias != nil {
			delete(packages, path.Base(name))
			packages[alias.Name] = true
		}
	}
	for selector := range selectors(file) {
		x, plain := selector.X.(*ast.Ident)
		if selector.Sel.Name == "Append" && !(plain && packages[x.Name]) {
			return true
		}
	}
	return false
}

// version is the end of a module path from its second major version on.
var version = regexp.MustCompile(`/v[0-9]+$`)

func selectors(file *ast.File) iter.Seq[*ast.SelectorExpr] {
	return func(yield func(*ast.SelectorExpr) bool) {
		for node := range ast.Preorder(file) {
			if selector, ok := node.(*ast.SelectorExpr); ok && !yield(selector) {
				return
			}
		}
	}
}

// removers are the calls that can take stored bytes away, and the only files that may make them, each for objects of
// its own: the attempts of the WORM check, files that never got a name, and the text beside a file that tells its date.
var removers = map[string]string{
	"RemoveObject": "blob/worm.go", "RemoveObjects": "blob/worm.go", "RemoveObjectsWithResult": "", "RemoveObjectsWithIter": "",
	"RemoveBucket": "", "RemoveBucketWithOptions": "", "RemoveIncompleteUpload": "", "SetBucketLifecycle": "",
	"Remove": "blob/dirtemp.go blob/filesystem.go blob/store.go", "RemoveAll": "", "Unlink": "", "Unlinkat": "", "Rename": "blob/dirfile.go",
}

// TestNothingDeletesPayloads: the room that stores payloads has no way to take one away.
func TestNothingDeletesPayloads(t *testing.T) {
	for _, folder := range sources(t) {
		if folder.path != "blob" {
			continue
		}
		for name, file := range folder.files {
			for n := range ast.Preorder(file) {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					continue
				}
				may, removes := removers[call.Sel.Name]
				assert.False(t, removes && !slices.Contains(strings.Fields(may), name), "%s uses %s", name, call.Sel.Name)
			}
		}
	}
}
