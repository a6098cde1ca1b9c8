package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// init leaves the commands in the order in which root adds them.
func init() { cobra.EnableCommandSorting = false }

// root is the command tree. Every command stands in a file of its own.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "postern",
		Short: "A transactional outbox and sequencer in PostgreSQL",
		Long: trim(`
			Postern keeps what must happen once, in order, through a scarce signer: it is posted over
			HTTP, waits in its queue, goes out through a free sender to a worker, is watched until it is
			included, is retried, and ends DONE or FAILED with its whole history in PostgreSQL.

			To try it: postern demo. To build on it: postern dev. In production: postern migrate up,
			then postern serve and postern work (its first API key: postern key -h).

			Exit codes: 0 done, 1 refused or ended badly, 2 usage, 3 server or database unreachable,
			4 waited too long, 5 the database went back in time or is not the only one, 6 a dry run of apply
			found changes.`),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name := unknown(cmd); name != "" { // the flag behind it may be one of the command that was meant
			err = unknownName(cmd, name)
		}
		return usage(cmd, flagError(err))
	})
	cmd.PersistentFlags().StringP("output", "o", "", "table or json (POSTERN_OUTPUT) [table]")
	add := func(title string, commands ...*cobra.Command) {
		cmd.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, c := range commands {
			c.GroupID = title
			cmd.AddCommand(c)
		}
	}
	add("Try and build", demoCommand(), devCommand(), devnetCommand(), workerCommand(), verifyWorkerCommand(),
		verifyDomainCommand(), benchCommand())
	add("Run", migrateCommand(), partitionsCommand(), serveCommand(), workCommand(), runnerCommand(), applyCommand(),
		configCommand(), doctorCommand(), verifyCommand())
	add("Use", append([]*cobra.Command{postCommand(), lsCommand(), showCommand(), attemptsCommand(), whyCommand(), runCommand(), jobCommand(), flowCommand(), messageCommand()}, append(leverCommands(), processorCommand(), domainCommand(), toolCommand(), sourceCommand(), peerCommand(), quarantineCommand(), identityCommand(), contextCommand(), keyCommand(), actorCommand(), apiCommand())...)...)
	add("Look up", machinesCommand(), walkCommand(), openapiCommand(), versionCommand())
	cmd.AddCommand(nounCommands()...)
	cmd.InitDefaultHelpCmd()
	cmd.SetUsageTemplate(wrappedFlags(cmd.UsageTemplate()))
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if unknown(cmd) == "" {
			help(cmd, args)
		}
	})
	return cmd
}

// helpWidth is how wide the lines of flags are at most in a help text.
const helpWidth = 100

func init() {
	cobra.AddTemplateFunc("wrapped", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(helpWidth) })
}

// wrappedFlags has a template of the library break the lines of flags.
func wrappedFlags(template string) string {
	for _, flags := range []string{".LocalFlags", ".InheritedFlags"} {
		template = strings.ReplaceAll(template, flags+".FlagUsages", "wrapped "+flags)
	}
	return template
}

// unknown is the name that a command was given and has no command for; -h asks for help before anybody
// else looks at it. A command may have others below it and take arguments of its own.
func unknown(cmd *cobra.Command) string {
	args := cmd.Flags().Args()
	if cmd.Name() == "help" {
		cmd, args, _ = cmd.Root().Find(args)
	}
	if cmd.HasSubCommands() && len(args) > 0 && (cmd.Args == nil || cmd.Args(cmd, args) != nil) {
		return args[0]
	}
	return ""
}

// unknownName is the error of a name that unknown found.
func unknownName(cmd *cobra.Command, name string) error {
	return fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath())
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string) int {
	cmd := root()
	cmd.SetArgs(args)
	ran, err := cmd.ExecuteContextC(ctx)
	if name := unknown(ran); err == nil && name != "" {
		err = usage(ran, unknownName(ran, name))
	}
	if err == nil {
		return 0
	}
	return report(ran, err)
}

// trim takes away the tabs by which a text in the code is indented. Blanks that indent a line further stay.
func trim(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.TrimLeft(l, "\t"), " \t")
	}
	return strings.Join(lines, "\n")
}
