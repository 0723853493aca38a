package audit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
)

// deposit is a history of letters whose bytes are in a store.
type deposit struct {
	*chaintest.History
	store    *blob.Store
	payloads map[string]blob.Location
	records  map[string]blob.Location
}

func newDeposit(t *testing.T, backend blob.Backend, names ...string) *deposit {
	t.Helper()
	d := &deposit{chaintest.Story(t, ""), blobtest.Store(t, backend), map[string]blob.Location{}, map[string]blob.Location{}}
	for _, name := range names {
		at := d.put(t, chaintest.Payload(name))
		d.payloads[name] = at
		d.Add(name, chain.Event{Type: chain.TypeReceived, PayloadRef: at.Digest, BlobVersion: at.Version,
			RetainUntil: at.RetainUntil, Size: uint64(at.Size), Channel: chain.TelematicsAPI})
	}
	for _, name := range names {
		d.Tell(name + ": attempt")
		at := d.put(t, []byte("record of "+name))
		d.records[name] = at
		d.Add(name, chain.Event{Type: chain.TypeResolved, Lease: d.Letters[name].Lease.Seq, Outcome: chain.Admit,
			RecordRef: at.Digest, Rules: "dvir/1",
			Blobs: []chain.BlobRef{{Ref: at.Digest, BlobVersion: at.Version, RetainUntil: at.RetainUntil}}})
	}
	return d
}

func (d *deposit) put(t *testing.T, data []byte) blob.Location {
	t.Helper()
	at, _, err := d.store.PutBytes(t.Context(), data, d.Now)
	require.NoError(t, err)
	return at
}

func (d *deposit) verify(t *testing.T) audit.Report {
	t.Helper()
	return verify(t, audit.Options{Log: logOf(t, d.Lines(), 4), Store: d.store, Head: &d.Head})
}

func TestObjects(t *testing.T) {
	memory := &blobtest.Memory{}
	d := newDeposit(t, memory, "A", "B", "C")
	r := d.verify(t)
	require.True(t, r.OK(), "%v", r.Findings)
	require.EqualValues(t, 6, r.Blobs)

	require.NoError(t, memory.Tamper(d.payloads["A"].Ref, []byte("forged")))
	memory.Remove(d.payloads["B"].Ref)
	require.NoError(t, memory.Shorten(d.payloads["C"].Ref, d.Now))
	require.NoError(t, memory.Shadow(d.records["A"].Ref))
	memory.Remove(d.records["C"].Ref)
	r = d.verify(t)
	require.Equal(t, audit.Tampered, r.Verdict)
	type found struct {
		kind audit.Kind
		seq  uint64
		ref  chain.Digest
	}
	var got []found
	for _, f := range r.Findings {
		got = append(got, found{f.Kind, f.Seq, f.Ref})
	}
	assert.Equal(t, []found{
		{audit.BlobCorrupt, 1, d.payloads["A"].Digest},
		{audit.BlobMissing, 2, d.payloads["B"].Digest},
		{audit.BlobShortened, 3, d.payloads["C"].Digest},
		{audit.BlobShadowed, 5, d.records["A"].Digest},
		{audit.BlobMissing, 9, d.records["C"].Digest},
	}, got)
	require.EqualValues(t, 1, firstBad(t, r))
	require.NotZero(t, r.Root, "the log itself is whole")
	for _, f := range r.Findings {
		require.NotContains(t, f.Detail, "forged")
	}
}

// Retention counts as the latest event has it, and a hold counts until it is lifted.
func TestRetentionOfRecord(t *testing.T) {
	memory := &blobtest.Memory{}
	d := newDeposit(t, memory, "A")
	d.Tell("A: retention")
	r := d.verify(t)
	require.EqualValues(t, 1, firstBad(t, r), "the event says it was extended, and it was not")
	require.Equal(t, audit.BlobShortened, r.Findings[0].Kind)
	_, err := d.store.Extend(t.Context(), d.payloads["A"].Ref, d.Letters["A"].RetainUntil, d.Now)
	require.NoError(t, err)
	require.True(t, d.verify(t).OK())

	d.Tell("A: hold")
	r = d.verify(t)
	require.EqualValues(t, 1, firstBad(t, r))
	require.Equal(t, audit.BlobReleased, r.Findings[0].Kind)
	for _, at := range []blob.Location{d.payloads["A"], d.records["A"]} {
		_, err = d.store.Hold(t.Context(), at.Ref, true)
		require.NoError(t, err)
	}
	require.True(t, d.verify(t).OK())
	d.Tell("A: unhold")
	require.True(t, d.verify(t).OK())
}

// A retention event names the letter's other bytes with their new dates, and these count from then on.
func TestRetentionOfRecords(t *testing.T) {
	d := newDeposit(t, &blobtest.Memory{}, "A")
	at := d.records["A"]
	until := at.RetainUntil.AddDate(1, 0, 0)
	_, err := d.store.Extend(t.Context(), d.payloads["A"].Ref, until, d.Now)
	require.NoError(t, err)
	d.Add("A", chain.Event{Type: chain.TypeRetention, Reason: "a claim", RetainUntil: until,
		Blobs: []chain.BlobRef{{Ref: at.Digest, BlobVersion: at.Version, RetainUntil: until}}})
	r := d.verify(t)
	require.Len(t, r.Findings, 1)
	require.Equal(t, audit.BlobShortened, r.Findings[0].Kind)
	require.Equal(t, at.Digest, r.Findings[0].Ref)
	_, err = d.store.Extend(t.Context(), at.Ref, until, d.Now)
	require.NoError(t, err)
	r = d.verify(t)
	require.True(t, r.OK())
	require.EqualValues(t, 2, r.Blobs, "one record, however often it is named")
}

// A hold counts for all bytes of the letter, whoever else names them, and for what is stored for it later.
func TestHoldOfRecords(t *testing.T) {
	d := newDeposit(t, &blobtest.Memory{}, "A", "B")
	shared := d.records["A"]
	d.Add("B", chain.Event{Type: chain.TypeRetention, Reason: "a claim", RetainUntil: d.Letters["B"].RetainUntil,
		Blobs: []chain.BlobRef{{Ref: shared.Digest, BlobVersion: shared.Version, RetainUntil: shared.RetainUntil}}})
	hold := func(at blob.Location, on bool) {
		_, err := d.store.Hold(t.Context(), at.Ref, on)
		require.NoError(t, err)
	}
	d.Tell("A: hold")
	hold(d.payloads["A"], true)
	r := d.verify(t)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, audit.BlobReleased, r.Findings[0].Kind)
	assert.Equal(t, shared.Digest, r.Findings[0].Ref)
	hold(shared, true)
	r = d.verify(t)
	require.True(t, r.OK(), "%v", r.Findings)
	assert.NotContains(t, strings.Join(r.Notes, "\n"), "legal hold")

	d.Tell("A: unhold")
	hold(d.payloads["A"], false)
	r = d.verify(t)
	require.True(t, r.OK(), "%v", r.Findings)
	assert.NotContains(t, strings.Join(r.Notes, "\n"), "legal hold", "what is no payload stays held")
	d.Tell("B: hold")
	hold(d.payloads["B"], true)
	hold(d.records["B"], true)
	require.True(t, d.verify(t).OK())
	hold(shared, false)
	require.EqualValues(t, 1, d.verify(t).Total, "B names it too")
}

// A hold that no event records harms nothing, and is worth a note.
func TestHoldNotRecorded(t *testing.T) {
	d := newDeposit(t, &blobtest.Memory{}, "A", "B", "C")
	for _, at := range []blob.Location{d.records["A"], d.payloads["B"]} {
		_, err := d.store.Hold(t.Context(), at.Ref, true)
		require.NoError(t, err)
	}
	r := d.verify(t)
	require.True(t, r.OK(), "%v", r.Findings)
	assert.Contains(t, r.Notes, "2 payloads or other bytes are under a legal hold that no event records, the first "+d.payloads["B"].Digest.String())

	d.Tell("B: hold")
	d.Tell("B: unhold")
	_, err := d.store.Hold(t.Context(), d.records["B"].Ref, true)
	require.NoError(t, err)
	r = d.verify(t)
	require.True(t, r.OK(), "%v", r.Findings)
	assert.Contains(t, strings.Join(r.Notes, "\n"), "2 payloads or other bytes", "the lifting of B's hold was recorded, and not done")
}

// Bytes that were put into a bucket and are looked for in a folder cannot be checked there, unless they were copied.
func TestBucketVersionsInFolder(t *testing.T) {
	memory := &blobtest.Memory{}
	d := newDeposit(t, memory, "A", "B")
	d.store = blobtest.Store(t, blobtest.Dir(t))
	r := d.verify(t)
	require.Equal(t, audit.Unchecked, r.Verdict)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, audit.BlobElsewhere, r.Findings[0].Kind)
	assert.EqualValues(t, 1, r.Findings[0].Seq)
	assert.Contains(t, r.Findings[0].Detail, "4 payloads and other bytes")
	assert.Zero(t, r.Blobs)

	d.put(t, chaintest.Payload("B"))
	r = d.verify(t)
	require.Equal(t, audit.Tampered, r.Verdict, "a copy that lacks something")
	assert.EqualValues(t, 3, r.Total)
	d.put(t, chaintest.Payload("A"))
	d.put(t, []byte("record of A"))
	d.put(t, []byte("record of B"))
	assert.True(t, d.verify(t).OK())

	d = newDeposit(t, blobtest.Dir(t), "A")
	d.store = blobtest.Store(t, blobtest.Dir(t))
	require.Equal(t, audit.Tampered, d.verify(t).Verdict, "they were in a folder, and are gone")
}

func TestObjectsNotChecked(t *testing.T) {
	d := newDeposit(t, &blobtest.Memory{}, "A")
	for name, o := range map[string]audit.Options{
		"no store": {}, "not wanted": {Store: d.store, Payloads: audit.NoPayloads}, "fast": {Store: d.store, Fast: true},
	} {
		o.Log, o.Head = logOf(t, d.Lines(), 2), &d.Head
		r := verify(t, o)
		require.True(t, r.OK(), name)
		require.Zero(t, r.Blobs)
		require.Contains(t, strings.Join(r.Notes, "\n"), "stored bytes were not checked", name)
	}
}

// A store that does not answer says nothing about the bytes; and what it answers is not passed on.
func TestStoreDown(t *testing.T) {
	down := false
	memory := &blobtest.Memory{Fail: func(op string, _ chain.Digest) error {
		if down && op == "open" {
			return errors.New("secret of the store")
		}
		return nil
	}}
	d := newDeposit(t, memory, "A", "B")
	down = true
	r := d.verify(t)
	require.Equal(t, audit.Unchecked, r.Verdict)
	require.EqualValues(t, 4, r.Total)
	require.Equal(t, audit.BlobUnreadable, r.Findings[0].Kind)
	require.NotContains(t, r.Findings[0].Detail, "secret")

	memory.Remove(d.payloads["B"].Ref)
	r = d.verify(t)
	require.Equal(t, audit.Tampered, r.Verdict)
	seq, _ := r.FirstBad()
	require.EqualValues(t, 2, seq, "unreadable is not bad")
}

func TestDirectory(t *testing.T) {
	root := t.TempDir()
	dir, err := blob.OpenDir(root, blob.DirConfig{NoImmutable: true})
	require.NoError(t, err)
	d := newDeposit(t, dir, "A", "B", "C")
	require.True(t, d.verify(t).OK())
	path := func(at blob.Location) string {
		name := at.Digest.String()
		return filepath.Join(root, name[:2], name[2:4], name)
	}
	flipped := path(d.payloads["A"])
	data, err := os.ReadFile(flipped)
	require.NoError(t, err)
	data[3] ^= 0x20
	require.NoError(t, os.Chmod(flipped, 0o640))
	require.NoError(t, os.WriteFile(flipped, data, 0o640))
	require.NoError(t, os.Remove(path(d.records["B"])))
	shorten(t, path(d.records["C"]), d.Now)

	r := d.verify(t)
	require.EqualValues(t, 1, firstBad(t, r))
	var kinds []audit.Kind
	for _, f := range r.Findings {
		kinds = append(kinds, f.Kind)
	}
	require.Equal(t, []audit.Kind{audit.BlobCorrupt, audit.BlobMissing, audit.BlobShortened}, kinds)
}

// shorten gives a file another retention record, wherever it is kept.
func shorten(t *testing.T, path string, until time.Time) {
	t.Helper()
	require.NoError(t, os.Chmod(path, 0o640))
	text := []byte("until=" + until.UTC().Format(time.RFC3339) + " hold=0")
	if _, err := os.Stat(path + ".retention"); err == nil {
		require.NoError(t, os.WriteFile(path+".retention", text, 0o640))
		return
	}
	require.NoError(t, unix.Setxattr(path, "user.holdfast.retention", text, 0))
}
