package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	serving, other := web.OpenTokens(path), web.OpenTokens(path)
	secret, err := serving.EnsureAdmin()
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`^hf_[A-Za-z0-9_-]{43}$`), secret)
	again, err := other.EnsureAdmin()
	require.NoError(t, err)
	assert.Empty(t, again)

	desk, err := other.Create("desk-1", web.Reviewer)
	require.NoError(t, err)
	who, err := serving.Check(desk)
	require.NoError(t, err, "a token made elsewhere works at once")
	assert.Equal(t, web.Identity{Name: "desk-1", Role: web.Reviewer}, who)
	_, err = other.Create("desk-1", web.Admin)
	assert.ErrorIs(t, err, web.ErrTokenExists)

	require.NoError(t, other.Revoke("desk-1"))
	_, err = serving.Check(desk)
	assert.ErrorIs(t, err, web.ErrUnknownToken)
	assert.ErrorIs(t, other.Revoke("desk-1"), web.ErrUnknownToken)
	_, err = other.Create("desk-1", web.Reviewer)
	assert.ErrorIs(t, err, web.ErrTokenExists, "a name never means somebody else")

	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), secret[3:])
	assert.Contains(t, string(raw), chain.Sum([]byte(secret)).String())
}

func TestTokenRefusals(t *testing.T) {
	tokens := web.OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	for _, c := range []struct {
		name string
		role web.Role
	}{{"", web.Admin}, {"some body", web.Admin}, {"x", "root"}, {"x", ""}} {
		_, err := tokens.Create(c.name, c.role)
		var broken *chain.FieldError
		assert.ErrorAs(t, err, &broken)
	}
	_, err := tokens.Check("hf_x")
	assert.ErrorIs(t, err, web.ErrUnknownToken)
}

func TestDamagedTokenFileLetsNobodyIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := web.OpenTokens(path)
	secret, err := tokens.EnsureAdmin()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = tokens.Check(secret)
	assert.ErrorIs(t, err, web.ErrTokenFile)
	_, err = tokens.Create("x", web.Admin)
	assert.ErrorIs(t, err, web.ErrTokenFile)
}

func TestTokensOfManyProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := web.OpenTokens(path).Create("token-"+string(rune('a'+i)), web.Worker)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	all, err := web.OpenTokens(path).List()
	require.NoError(t, err)
	assert.Len(t, all, 8, "none overwrote another")
}
