package blob

// WithoutTempFile opens as on a file system without O_TMPFILE.
func (c DirConfig) WithoutTempFile() DirConfig { c.noTempFile = true; return c }

// WithoutXattr opens as on a file system without extended attributes.
func (c DirConfig) WithoutXattr() DirConfig { c.noXattr = true; return c }

// ParseRecordText reads a retention record and writes it again.
func ParseRecordText(text string) string { return parseRecord(text).text() }

// PretendRemote makes every known file system a remote one until the returned call.
func PretendRemote() (restore func()) {
	known := filesystems
	filesystems = map[int64]filesystem{}
	for magic := range known {
		filesystems[magic] = filesystem{"nfs", false, remote}
	}
	return func() { filesystems = known }
}

// SetRequireEncryption changes what the next examination demands.
func (b *Bucket) SetRequireEncryption(on bool) { b.config.RequireEncryption = on }

// MarkAnswered lets calls through again, as an answer and a put would.
func (b *Bucket) MarkAnswered() { b.health.answered(); b.health.put(nil) }

// MarkLost keeps calls from being sent, as an answer that did not come would.
func (b *Bucket) MarkLost() { b.health.lost(ErrUnavailable) }

// Unexamined is a bucket that counts as fit without having been asked.
func Unexamined(c BucketConfig) *Bucket {
	b, err := newBucket(c)
	if err != nil {
		panic(err)
	}
	b.health.examined(nil)
	return b
}
