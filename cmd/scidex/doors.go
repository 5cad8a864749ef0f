package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/verb"
)

// doorFlags say who may come to a server over HTTP, and how often.
type doorFlags struct {
	origins []string
	proxies []string
	limits  verb.Limits
}

func (d *doorFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&d.origins, "origin", nil, "web origin, such as https://prism.example, whose pages may use the server beside its own; may be given many times")
	fl.StringSliceVar(&d.proxies, "trusted-proxy", nil, "address or network of a reverse proxy whose X-Forwarded-For names the client; may be given many times")
	d.limits = verb.StandardLimits
	for name, rate := range map[string]*verb.Rate{"read": &d.limits.Read, "write": &d.limits.Write, "unauthenticated": &d.limits.Unauthenticated} {
		of := "of an agent"
		if name == "unauthenticated" {
			of = "without a valid token of a client address"
		}
		standard := *rate
		fl.TextVar(rate, "limit-"+name, standard, "most requests "+of+" in the long run, counted as "+name+", such as 500/s, or off")
	}
}

// parse checks the flags. Its errors are of usage.
func (d *doorFlags) parse() (origins []string, proxies []netip.Prefix, err error) {
	if origins, err = verb.ParseOrigins(d.origins); err != nil {
		return nil, nil, &exitError{2, fmt.Errorf("--origin: %w", err)}
	}
	if proxies, err = verb.ParseProxies(d.proxies); err != nil {
		return nil, nil, &exitError{2, fmt.Errorf("--trusted-proxy: %w", err)}
	}
	return origins, proxies, nil
}
