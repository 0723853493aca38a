package chain_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/require"
)

// workedExample seals the three events of the package comment.
func workedExample() []chain.Record {
	at := func(second int) time.Time { return time.Date(2026, 3, 2, 6, 30, second, 0, time.UTC) }
	genesis, _ := chain.Head{}.Seal(chain.Event{
		Type: chain.TypeGenesis, At: at(0), Actor: "system", Origin: "holdfast.example/acme", LogID: "3f2a",
	})
	received, _ := genesis.Head().Seal(chain.Event{
		Type: chain.TypeReceived, At: at(1), Actor: "fleet:17", PayloadRef: chain.Sum([]byte("{}")), BlobVersion: "1",
		RetainUntil: at(1).AddDate(1, 6, 0), Size: 2, Channel: chain.MobileExport,
	})
	letter, _ := chain.Letter{}.Apply(received)
	attempt, _ := received.Head().Seal(letter.Next(chain.Event{
		Type: chain.TypeAttempt, At: at(2), Actor: "system", Attempt: 1, Worker: "worker:1", LeaseUntil: at(62),
	}))
	return []chain.Record{genesis, received, attempt}
}

func Example() {
	var head chain.Head
	var letter chain.Letter
	for _, stored := range workedExample() {
		r, err := head.Check(stored.Raw)
		if err != nil {
			fmt.Println(err)
			return
		}
		head = r.Head()
		if r.Event.Type.OfLetter() {
			letter, err = letter.Apply(r)
		}
		fmt.Println(r.Seq, r.Event.Type, r.Leaf, err)
	}
	fmt.Println(letter.Disposition, "leased to", letter.Lease.Worker)
	// Output:
	// 0 genesis 708847a5fb04a1b5689f6d1f8e4d61ae686095238f9ee487cee62e85036346b3 <nil>
	// 1 received abd290b692b222918d149d41bf12fc96a59f53507beb3566eab51e5c134864b8 <nil>
	// 2 attempt 7cdcf2a46f426b5077aab07071299a3b43c93bc07304e40e17de547ed5c8f4bc <nil>
	// received leased to worker:1
}

// The example of the package comment is what the code does.
func TestPackageComment(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	doc := file.Doc.Text()
	for _, r := range workedExample() {
		require.NotEmpty(t, r.Raw)
		require.Contains(t, doc, fmt.Sprintf("\t%s\n\tleaf(%d) = %s\n", r.Raw, r.Seq, r.Leaf))
	}
	require.Equal(t, 3, strings.Count(doc, "\tleaf(")-1, "three events, and the rule")
	for _, typ := range allTypes {
		require.Contains(t, doc, "\t"+string(typ)+" ", "the comment tells what %s means", typ)
	}
	for _, name := range memberNames(t) {
		require.Contains(t, doc, name, "the comment names the member %s", name)
	}
}

// memberNames are the names that the golden events use, which have every member.
func memberNames(t *testing.T) (names []string) {
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				names = append(names, name)
				walk(inner)
			}
		case []any:
			for _, inner := range value {
				walk(inner)
			}
		}
	}
	for _, r := range append(goldenLog(t), goldenPlans(t)...) {
		walk(tree(t, r.Raw))
	}
	return names
}
