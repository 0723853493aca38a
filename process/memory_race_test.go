//go:build race

package process_test

const (
	limitsMemory = false
	memoryLimit  = 1 << 46
)
