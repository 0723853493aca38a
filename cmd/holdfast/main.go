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

	Ingest   ingestCmd   `cmd:"" group:"Hand over:" help:"Hand payloads over."`
	Fail     failCmd     `cmd:"" group:"Hand over:" help:"Hand over a payload that failed elsewhere, with its error."`
	Groups   groupsCmd   `cmd:"" group:"Review:" help:"Count open letters by cause."`
	List     listCmd     `cmd:"" group:"Review:" help:"List letters."`
	Show     showCmd     `cmd:"" group:"Review:" help:"Show one letter and its history."`
	Payload  payloadCmd  `cmd:"" group:"Review:" help:"Write the bytes of a payload to standard output; the reading is recorded."`
	Replay   replayCmd   `cmd:"" group:"Review:" help:"Put letters back to work once their cause is fixed."`
	Plans    plansCmd    `cmd:"" group:"Review:" help:"List bulk replays, follow, cancel or resume one."`
	Resolve  resolveCmd  `cmd:"" group:"Review:" help:"Close a letter by hand, with a reason."`
	Annotate annotateCmd `cmd:"" group:"Review:" help:"Give a letter an owner, a tag or a note."`
	Hold     holdCmd     `cmd:"" group:"Review:" help:"Set or lift the legal hold of a letter, or keep it longer."`
	Verify   verifyCmd   `cmd:"" group:"Prove:" help:"Check the event chain, the lifecycle of every letter and all stored bytes."`
	Tail     tailCmd     `cmd:"" group:"Prove:" help:"Print events of the log, and follow it."`
	Serve    serveCmd    `cmd:"" group:"Run:" help:"Run the service."`
	Work     workCmd     `cmd:"" group:"Run:" help:"Work on letters of a pull processor with a program, anywhere."`
	Token    tokenCmd    `cmd:"" group:"Run:" help:"Create, list and revoke access tokens."`
	Worm     wormCmd     `cmd:"" group:"Run:" help:"Check that the payload bucket is write-once."`
	Blob     blobCmd     `cmd:"" group:"Run:" help:"Move the payloads between a folder and a bucket."`
	Rebuild  rebuildCmd  `cmd:"" group:"Run:" help:"Fold the current state from the log anew; the service must be stopped."`
	Demo     demoCmd     `cmd:"" group:"Try:" help:"Show the whole life of payloads on sample files, in a temporary folder."`
	Dvir     dvirCmd     `cmd:"" group:"Try:" help:"Judge files with the built-in processor, offline."`
	Version  versionCmd  `cmd:"" group:"Try:" help:"Print the version."`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == asChild {
		os.Exit(runChild(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

// run parses args, runs the verb and maps its error to an exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	unsetEmpty()
	var c cli
	ended := -1
	parser, err := kong.New(&c, append(values, kong.Name("holdfast"),
		kong.Description("Custody of vehicle inspection payloads that fail, and proof of what became of them."),
		kong.Help(printHelp), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}), kong.ValueFormatter(flagHelp),
		kong.DefaultEnvars("HOLDFAST"), kong.Configuration(loadYAML),
		kong.Exit(func(code int) { ended = code }), kong.BindTo(ctx, (*context.Context)(nil)))...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return exitFailed
	}
	if len(args) == 0 {
		_, _ = parser.Parse([]string{"--help"})
		return exitUsage
	}
	verb, err := parser.Parse(args)
	if ended >= 0 {
		return ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", printable(usageText(err)))
		return exitUsage
	}
	err = verb.Run(ctx)
	if text := errorText(err); text != "" {
		fmt.Fprintln(os.Stderr, "holdfast:", printable(text))
	}
	return exitCode(err)
}

// unsetEmpty lets an empty variable stand for none, as deployment files write it.
func unsetEmpty() {
	for _, v := range os.Environ() {
		if name, ok := strings.CutSuffix(v, "="); ok && strings.HasPrefix(name, "HOLDFAST_") {
			_ = os.Unsetenv(name)
		}
	}
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
