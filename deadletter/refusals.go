package deadletter

import "github.com/holdfast-dvir/holdfast/blob"

// Refusals of the payload store, under names that callers above the queue can use without knowing the store.
var (
	ErrStoreReadOnly  = blob.ErrReadOnly
	ErrNoSpace        = blob.ErrNoSpace
	ErrPayloadMissing = blob.ErrNotFound
	// ErrStoreUnavailable: the store cannot be reached, or is not fit to keep payloads. It comes back by itself, or a
	// person mends it; the same request may be repeated.
	ErrStoreUnavailable = blob.ErrUnavailable
	// ErrUpload: the stream given as a body broke off. The store is not to blame, and nothing was kept.
	ErrUpload = blob.ErrSource
)

// PayloadTooLargeError reports a body beyond the store's limit, which it names.
type PayloadTooLargeError = blob.TooLargeError

// RetentionError reports a retention date beyond the store's cap, which it names.
type RetentionError = blob.RetentionError

// PayloadCorruptError reports stored bytes that no longer hash to their reference.
type PayloadCorruptError = blob.CorruptError
