// Command holdfast keeps custody of vehicle inspection payloads that arrive, fail, wait, are replayed and are
// resolved, and proves afterwards what happened. "holdfast --help" lists its verbs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli is every verb. Flags can also be set as HOLDFAST_<FLAG> in the environment or in a YAML file.
type cli struct {
	Config kong.ConfigFlag `help:"YAML file with flags by their names." placeholder:"FILE"`

	Serve    serveCmd    `cmd:"" help:"Run the service."`
	Demo     demoCmd     `cmd:"" help:"Show the whole life of payloads on sample files, in a temporary folder."`
	Ingest   ingestCmd   `cmd:"" help:"Hand payloads over."`
	Fail     failCmd     `cmd:"" help:"Hand over a payload that failed elsewhere, with its error."`
	List     listCmd     `cmd:"" help:"List letters."`
	Show     showCmd     `cmd:"" help:"Show one letter and its history."`
	Groups   groupsCmd   `cmd:"" help:"Count open letters by cause."`
	Payload  payloadCmd  `cmd:"" help:"Write the bytes of a payload to standard output; the reading is recorded."`
	Replay   replayCmd   `cmd:"" help:"Put letters back to work once their cause is fixed."`
	Resolve  resolveCmd  `cmd:"" help:"Close a letter by hand, with a reason."`
	Annotate annotateCmd `cmd:"" help:"Give a letter an owner, a tag or a note."`
	Verify   verifyCmd   `cmd:"" help:"Check the event chain, the lifecycle of every letter and all stored bytes."`
	Rebuild  rebuildCmd  `cmd:"" help:"Fold the current state from the log anew; the service must be stopped."`
	Tail     tailCmd     `cmd:"" help:"Print events of the log, and follow it."`
	Dvir     dvirCmd     `cmd:"" help:"The built-in processor, offline."`
	Token    tokenCmd    `cmd:"" help:"Create, list and revoke access tokens."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

func main() { os.Exit(run(os.Args[1:])) }

// run parses args, runs the verb and maps its error to an exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c cli
	done := -1
	parser, err := kong.New(&c, kong.Name("holdfast"), kong.UsageOnError(), kong.ShortUsageOnError(),
		kong.Description("Custody of vehicle inspection payloads that fail, and proof of what became of them.\n\n"+exitHelp),
		kong.DefaultEnvars("HOLDFAST"), kong.Configuration(loadYAML),
		kong.Exit(func(code int) { done = code }), kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return exitFailed
	}
	verb, err := parser.Parse(args)
	if done >= 0 {
		return done
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "holdfast: %s\nholdfast: see holdfast --help\n", printable(err.Error()))
		return exitUsage
	}
	err = verb.Run(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "holdfast:", printable(err.Error()))
	}
	return exitCode(err)
}

// printable keeps what came from outside from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20, 0x7f <= r && r < 0xa0, 0x200b <= r && r <= 0x200f, 0x2028 <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069:
			return '�'
		}
		return r
	}, s)
}
