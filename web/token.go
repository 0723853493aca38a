package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Role is what a token may be used for.
type Role string

// Roles.
const (
	Submitter Role = "submitter" // hands over payloads and failures
	Worker    Role = "worker"    // processes payloads and hands over failures
	Reviewer  Role = "reviewer"  // looks at letters and decides about them
	Auditor   Role = "auditor"   // looks at everything and changes nothing
	Admin     Role = "admin"     // all of it
)

// Roles lists them.
var Roles = []Role{Submitter, Worker, Reviewer, Auditor, Admin}

// Identity is who makes a request. Name is an identifier fit for events.
type Identity struct {
	Name string
	Role Role
}

// Token is what is stored of a token: never its secret. A revoked one stays, so that its name keeps meaning the
// same actor in events.
type Token struct {
	Name    string       `json:"name"`
	Role    Role         `json:"role"`
	SHA256  chain.Digest `json:"sha256"` // of the secret, which is 256 random bits: nothing to guess, no salt needed
	Created time.Time    `json:"created"`
	Revoked time.Time    `json:"revoked,omitzero"`
}

// Errors of a token store.
var (
	ErrUnknownToken = errors.New("no such token, or it was revoked")
	ErrTokenExists  = errors.New("a token of this name exists, or existed")
	// ErrTokenFile: the file is not a token store. Nobody is let in until it is.
	ErrTokenFile = errors.New("the token file cannot be read as such")
)

// Tokens is a token store in one JSON file, written atomically with mode 0600. Several processes may use the same
// file; what one changes the others see at their next Check. All methods may be called at the same time.
type Tokens struct {
	path string

	mu   sync.Mutex
	seen os.FileInfo // of the file that all was read from
	all  []Token
}

// OpenTokens names the file of a store, which need not exist yet.
func OpenTokens(path string) *Tokens { return &Tokens{path: path} }

const secretPrefix = "hf_"

// Create adds a token and returns its secret, "hf_" and 43 characters, which is stored nowhere.
// Errors: *chain.FieldError for a name that is no identifier or a role that does not exist, ErrTokenExists,
// ErrTokenFile and those of the file system.
func (t *Tokens) Create(name string, role Role) (secret string, err error) {
	if !chain.ValidToken(name) {
		return "", &chain.FieldError{Field: "name", Rule: "must be 1 to 80 of A-Z a-z 0-9 . _ : / - and begin with a letter or digit"}
	}
	if !slices.Contains(Roles, role) {
		return "", &chain.FieldError{Field: "role", Rule: "must be submitter, worker, reviewer, auditor or admin"}
	}
	secret = newSecret()
	err = t.change(func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == name }) {
			return nil, ErrTokenExists
		}
		return append(all, Token{Name: name, Role: role, SHA256: chain.Sum([]byte(secret)), Created: chain.Instant(time.Now())}), nil
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

func newSecret() string {
	var bits [sha256.Size]byte
	rand.Read(bits[:])
	return secretPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
}

// EnsureAdmin creates the token "admin" in a store that has none at all; otherwise the secret is "".
func (t *Tokens) EnsureAdmin() (secret string, err error) {
	all, err := t.List()
	if err != nil || len(all) > 0 {
		return "", err
	}
	secret, err = t.Create("admin", Admin)
	if errors.Is(err, ErrTokenExists) { // another process was faster
		return "", nil
	}
	return secret, err
}

// List is every token there is or was, in the order they were created.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return nil, err
	}
	return slices.Clone(t.all), nil
}

// Revoke makes a token useless. Errors: ErrUnknownToken, ErrTokenFile and those of the file system.
func (t *Tokens) Revoke(name string) error {
	return t.change(func(all []Token) ([]Token, error) {
		at := slices.IndexFunc(all, func(o Token) bool { return o.Name == name && o.Revoked.IsZero() })
		if at < 0 {
			return nil, ErrUnknownToken
		}
		all[at].Revoked = chain.Instant(time.Now())
		return all, nil
	})
}

// Check tells whose secret this is. Every token is compared, each in constant time. Errors: ErrUnknownToken,
// ErrTokenFile and those of the file system.
func (t *Tokens) Check(secret string) (Identity, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(); err != nil {
		return Identity{}, err
	}
	sum := chain.Sum([]byte(secret))
	var found *Token
	for i := range t.all {
		if subtle.ConstantTimeCompare(t.all[i].SHA256[:], sum[:]) == 1 && t.all[i].Revoked.IsZero() {
			found = &t.all[i]
		}
	}
	if found == nil || !strings.HasPrefix(secret, secretPrefix) {
		return Identity{}, ErrUnknownToken
	}
	return Identity{found.Name, found.Role}, nil
}

// refresh reads the file if it is another than the one read before. A file that is not there holds no tokens.
func (t *Tokens) refresh() error {
	info, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		t.seen, t.all = nil, nil
		return nil
	}
	if err != nil {
		return err
	}
	if t.seen != nil && os.SameFile(t.seen, info) && t.seen.ModTime().Equal(info.ModTime()) && t.seen.Size() == info.Size() {
		return nil
	}
	raw, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	var file struct {
		Tokens []Token `json:"tokens"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.seen = nil
		return ErrTokenFile
	}
	t.seen, t.all = info, file.Tokens
	return nil
}

// change rewrites the file. A lock beside it keeps other processes from losing each other's changes.
func (t *Tokens) change(edit func([]Token) ([]Token, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lock, err := os.OpenFile(t.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the token file: %w", err)
	}
	if err := t.refresh(); err != nil {
		return err
	}
	all, err := edit(slices.Clone(t.all))
	if err != nil {
		return err
	}
	return t.replace(all)
}

// replace writes all to a new file, makes it durable and gives it the name.
func (t *Tokens) replace(all []Token) error {
	raw, err := json.MarshalIndent(map[string]any{"tokens": all}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(t.path), ".tokens-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is there after the rename
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), t.path); err != nil {
		return err
	}
	t.seen = nil
	return syncFolder(filepath.Dir(t.path))
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
