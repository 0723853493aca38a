package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

// processorsFile is which processors there are beside the built-in one, and which letters go to them.
type processorsFile struct {
	Processors []processorConfig `yaml:"processors"`
	Routes     []routeConfig     `yaml:"routes"`
}

// processorConfig is one processor. Which members it may have depends on its kind.
type processorConfig struct {
	Name    string  `yaml:"name"`
	Kind    string  `yaml:"kind"`    // builtin, exec, http or pull
	Workers int     `yaml:"workers"` // letters at a time
	Rate    float64 `yaml:"rate"`    // letters begun per second at most

	Memory size          `yaml:"memory"` // builtin, exec
	CPU    time.Duration `yaml:"cpu"`
	Wall   time.Duration `yaml:"wall"`
	Output size          `yaml:"output"` // and http: of an answer that can be a record

	Command []string          `yaml:"command"` // exec
	Env     map[string]string `yaml:"env"`
	Stage   chain.Stage       `yaml:"stage"`

	URL               string            `yaml:"url"` // http
	Timeout           time.Duration     `yaml:"timeout"`
	Headers           map[string]string `yaml:"headers"`
	AuthorizationFile string            `yaml:"authorization_file"` // value of the header of that name
	SecretFiles       []string          `yaml:"secret_files"`       // whsec_..., of Standard Webhooks
	CAFile            string            `yaml:"ca_file"`
}

type routeConfig struct {
	Channel     chain.Channel `yaml:"channel"`
	Stage       chain.Stage   `yaml:"stage"`
	ContentType string        `yaml:"content_type"`
	Processor   string        `yaml:"processor"`
}

// size is a number of bytes, such as 64MiB.
type size int64

// UnmarshalYAML reads a number with KiB, MiB or GiB, or of bytes.
func (s *size) UnmarshalYAML(node *yaml.Node) error {
	digits := strings.TrimRight(node.Value, "KMGiB ")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, ok := map[string]int{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[strings.TrimSpace(node.Value[len(digits):])]
	if err != nil || !ok || n < 1 || n > math.MaxInt64>>shift {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: not a size", node.Line)}}
	}
	*s = size(n << shift)
	return nil
}

// loadProcessors reads the file at path; no path means that the built-in processor has all letters.
func loadProcessors(path string) (processorsFile, *process.Routes, error) {
	var file processorsFile
	if path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return file, nil, err
		}
		d := yaml.NewDecoder(bytes.NewReader(raw))
		d.KnownFields(true)
		if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
			return file, nil, exitf(exitRefused, "%s: %s", path, yamlText(err))
		}
	}
	routes, err := file.check()
	if err != nil {
		return file, nil, exitf(exitRefused, "%s: %s", path, err)
	}
	return file, routes, nil
}

var (
	yamlLine    = regexp.MustCompile(`line [0-9]+`)
	yamlUnknown = regexp.MustCompile(`^(line [0-9]+): field ([a-z_]+) not found`)
)

// yamlText says what is wrong and where, without the values that the library quotes: there may be secrets among them.
func yamlText(err error) string {
	text := err.Error()
	if t, ok := errors.AsType[*yaml.TypeError](err); ok && len(t.Errors) > 0 {
		text = t.Errors[0]
		if m := yamlUnknown.FindStringSubmatch(text); m != nil {
			return fmt.Sprintf("%s: there is no member %s", m[1], m[2])
		}
		return yamlLine.FindString(text) + ": a value is not of the right form"
	}
	return strings.TrimSpace(yamlLine.FindString(text) + " is not YAML")
}

// check adds the built-in processor, if the file does not name it, and makes the routes.
func (f *processorsFile) check() (*process.Routes, error) {
	if !slices.ContainsFunc(f.Processors, func(p processorConfig) bool { return p.Name == process.Default }) {
		f.Processors = append([]processorConfig{{Name: process.Default, Kind: "builtin"}}, f.Processors...)
	}
	var names []string
	for _, p := range f.Processors {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("processor %d: %w", len(names)+1, err)
		}
		if slices.Contains(names, p.Name) {
			return nil, fmt.Errorf("processor %d: name: is taken by another one", len(names)+1)
		}
		names = append(names, p.Name)
	}
	var routes []process.Route
	for _, r := range f.Routes {
		routes = append(routes, process.Route{Channel: r.Channel, Stage: r.Stage, ContentType: r.ContentType, Target: r.Processor})
	}
	return process.NewRoutes(routes, names)
}

// kinds are the members that processors of each kind have beside name, kind, workers and rate.
var kinds = map[string][]string{
	"builtin": {"memory", "cpu", "wall", "output"},
	"exec":    {"memory", "cpu", "wall", "output", "command", "env", "stage"},
	"http":    {"output", "url", "timeout", "headers", "authorization_file", "secret_files", "ca_file"},
	"pull":    {},
}

// check refuses what no processor of its kind has.
func (p *processorConfig) check() error {
	members, known := kinds[p.Kind]
	switch {
	case !chain.ValidToken(p.Name) || strings.Contains(p.Name, "/"):
		return &chain.FieldError{Field: "name", Rule: "must be 1 to 80 of A-Z a-z 0-9 . _ : - and begin with a letter or digit"}
	case !known:
		return &chain.FieldError{Field: "kind", Rule: "must be builtin, exec, http or pull"}
	case (p.Name == process.Default) != (p.Kind == "builtin"):
		return &chain.FieldError{Field: "kind", Rule: "is builtin for the processor of that name, and only there"}
	case p.Workers < 0 || p.Workers > 1000:
		return &chain.FieldError{Field: "workers", Rule: "must be 1 to 1000"}
	case p.Rate < 0 || p.Rate > 100_000:
		return &chain.FieldError{Field: "rate", Rule: "must be above 0 and at most 100000 letters a second"}
	case p.Kind == "pull" && (p.Workers != 0 || p.Rate != 0):
		return &chain.FieldError{Field: "kind", Rule: "of pull has no workers and no rate: workers come for letters as they can"}
	case p.CPU < 0 || p.CPU%time.Second != 0:
		return &chain.FieldError{Field: "cpu", Rule: "must be whole seconds, such as 10s"}
	case p.Wall < 0 || p.Wall > maxWall:
		return &chain.FieldError{Field: "wall", Rule: "must be positive and at most 1h"}
	case p.Timeout < 0 || p.Timeout > maxWall:
		return &chain.FieldError{Field: "timeout", Rule: "must be positive and at most 1h"}
	}
	for name, set := range p.set() {
		if set && !slices.Contains(members, name) {
			return &chain.FieldError{Field: name, Rule: "is no member of a processor of this kind"}
		}
	}
	return nil
}

// set tells which members of kinds are there.
func (p *processorConfig) set() map[string]bool {
	return map[string]bool{"memory": p.Memory != 0, "cpu": p.CPU != 0, "wall": p.Wall != 0, "output": p.Output != 0,
		"command": p.Command != nil, "env": p.Env != nil, "stage": p.Stage != "", "url": p.URL != "", "timeout": p.Timeout != 0,
		"headers": p.Headers != nil, "authorization_file": p.AuthorizationFile != "", "secret_files": p.SecretFiles != nil,
		"ca_file": p.CAFile != ""}
}

const (
	maxWall    = time.Hour
	leaseSlack = 30 * time.Second // of a lease beyond the time limit of its processor
)

func (p *processorConfig) limits() process.Limits {
	return process.Limits{Memory: int64(p.Memory), CPU: p.CPU, Wall: p.Wall, Output: int64(p.Output)}
}

// target is the processor at work; builtin is the one that a processor of that kind is, launcher starts programs.
func (p *processorConfig) target(builtin process.Processor, launcher []string) (t process.Target, err error) {
	t = process.Target{Name: p.Name, Workers: p.Workers, Rate: p.Rate, LeaseFor: max(time.Minute, max(p.Wall, p.Timeout)+leaseSlack)}
	switch p.Kind {
	case "builtin":
		t.Processor = builtin
	case "exec":
		t.Processor, err = p.exec(launcher)
	case "http":
		t.Processor, err = p.http()
	}
	return t, err
}

func (p *processorConfig) exec(launcher []string) (process.Processor, error) {
	cfg := process.ExecConfig{Command: p.Command, Launcher: launcher, Stage: p.Stage, Limits: p.limits()}
	for name, value := range p.Env {
		cfg.Env = append(cfg.Env, name+"="+value)
	}
	return process.NewExec(cfg)
}

func (p *processorConfig) http() (process.Processor, error) {
	cfg := process.HTTPConfig{Name: p.Name, URL: p.URL, Timeout: p.Timeout, MaxAnswer: int64(p.Output), Header: http.Header{}}
	for name, value := range p.Headers {
		cfg.Header.Set(name, value)
	}
	if p.AuthorizationFile != "" {
		value, err := os.ReadFile(p.AuthorizationFile)
		if err != nil {
			return nil, err
		}
		cfg.Header.Set("Authorization", strings.TrimSpace(string(value)))
	}
	for _, path := range p.SecretFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		secret, err := process.ParseSecret(string(text))
		if err != nil {
			return nil, err
		}
		cfg.Secrets = append(cfg.Secrets, secret)
	}
	if p.CAFile != "" {
		pem, err := os.ReadFile(p.CAFile)
		if err != nil {
			return nil, err
		}
		cfg.Roots = x509.NewCertPool()
		if !cfg.Roots.AppendCertsFromPEM(pem) {
			return nil, &chain.FieldError{Field: "ca_file", Rule: "must hold certificates in PEM"}
		}
	}
	return process.NewHTTP(cfg)
}
