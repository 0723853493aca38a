//go:build !race

package process_test

const (
	limitsMemory = true
	memoryLimit  = 256 << 20
)
