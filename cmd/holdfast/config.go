package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// loadYAML reads the configuration file: one mapping from flag names to values. An unknown name is an error, so
// that a slip of the pen does not silently leave a default in force.
func loadYAML(r io.Reader) (kong.Resolver, error) {
	values := map[string]string{}
	var file map[string]yaml.Node
	if err := yaml.NewDecoder(r).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the configuration file is not a YAML mapping of flags")
	}
	for name, node := range file {
		if node.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("configuration file, line %d: a flag has one value", node.Line)
		}
		values[name] = node.Value
	}
	return fileFlags(values), nil
}

// fileFlags answers for flags that the command line does not set.
type fileFlags map[string]string

// Validate refuses names that no verb has.
func (f fileFlags) Validate(app *kong.Application) error {
	known := map[string]bool{}
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known[flag.Name] = true
		}
		return next(nil)
	})
	for name := range f {
		if !known[name] {
			return fmt.Errorf("the configuration file sets a flag that does not exist: %q", name)
		}
	}
	return nil
}

// Resolve implements kong.Resolver.
func (f fileFlags) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if v, ok := f[flag.Name]; ok {
		return v, nil
	}
	return nil, nil
}
