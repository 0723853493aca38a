package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Anchor is the head of a log as it is stored outside it, so that a log that was cut off or rewritten since then
// is noticed. Its text is one line:
//
//	holdfast-head <log id> <size> <leaf, 64 hexadecimal digits>
//
// An anchor protects as far as it is out of reach of whoever could change the log.
type Anchor struct {
	LogID string
	Head  chain.Head // of at least one event
}

const anchorWord = "holdfast-head"

// ErrAnchor reports text that is not an anchor.
var ErrAnchor = errors.New("not a stored head: want one line of holdfast-head, log id, size and leaf hash")

// AnchorError is a refusal to replace a stored head by one that does not come after it.
type AnchorError struct {
	Stored, Given Anchor
}

func (e *AnchorError) Error() string {
	switch stored, given := e.Stored, e.Given; {
	case stored.LogID != given.LogID:
		return "the stored head is of another log"
	case given.Head.Size < stored.Head.Size:
		return fmt.Sprintf("the stored head has %d events, this one %d: events are gone", stored.Head.Size, given.Head.Size)
	default:
		return fmt.Sprintf("the stored head has %d events too, but another last one: the log was rewritten", stored.Head.Size)
	}
}

// String is the text with its newline.
func (a Anchor) String() string {
	return fmt.Sprintf("%s %s %d %s\n", anchorWord, a.LogID, a.Head.Size, a.Head.Leaf)
}

// ParseAnchor reads what String writes, and nothing else; the newline may be missing.
func ParseAnchor(text []byte) (Anchor, error) {
	if len(text) > 512 {
		return Anchor{}, ErrAnchor
	}
	words := strings.Split(strings.TrimSuffix(string(text), "\n"), " ")
	if len(words) != 4 || words[0] != anchorWord || !chain.ValidToken(words[1]) {
		return Anchor{}, ErrAnchor
	}
	size, sizeErr := strconv.ParseUint(words[2], 10, 64)
	leaf, leafErr := chain.ParseDigest(words[3])
	if sizeErr != nil || leafErr != nil || size == 0 || size > chain.MaxInteger || words[2][0] == '0' {
		return Anchor{}, ErrAnchor
	}
	return Anchor{LogID: words[1], Head: chain.Head{Size: size, Leaf: leaf}}, nil
}

// ReadAnchor reads the anchor at path: ErrAnchor, or an error of the file system; fs.ErrNotExist if there is none.
func ReadAnchor(path string) (Anchor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Anchor{}, err
	}
	a, err := ParseAnchor(text)
	if err != nil {
		return Anchor{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// Write stores a at path and returns once it is durable. The file holds the old anchor or the new one, whatever
// happens. It refuses to go back: *AnchorError when what is stored is of another log, has more events, or as many
// with another last one; ErrAnchor when what is stored cannot be read. Callers take turns.
func (a Anchor) Write(path string) error {
	if _, err := ParseAnchor([]byte(a.String())); err != nil {
		return err
	}
	stored, err := ReadAnchor(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case stored == a:
		return nil
	case stored.LogID != a.LogID || stored.Head.Size >= a.Head.Size:
		return &AnchorError{stored, a}
	}
	return replace(path, a.String())
}

// replace writes a file whole or not at all.
func replace(path, text string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
