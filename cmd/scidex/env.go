package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// bindEnv sets each flag that was not given from its environment variable:
// --database-url from SCIDEX_DATABASE_URL.
func bindEnv(cmd *cobra.Command) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" || failed != nil {
			return
		}
		name := "SCIDEX_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || value == "" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = &exitError{2, fmt.Errorf("%s: not a value of --%s", name, f.Name)} // the value may be secret
		}
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; !required {
			f.Changed = false // which tells what was given on the command line
		}
	})
	return failed
}
