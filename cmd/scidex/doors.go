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
	issuers []string
	open    bool // to reads without a token
}

func (d *doorFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&d.origins, "origin", nil, "web origin, such as https://prism.example, whose pages may use the server beside its own; may be given many times")
	fl.StringSliceVar(&d.proxies, "trusted-proxy", nil, "address or network of a reverse proxy whose X-Forwarded-For names the client; may be given many times")
	fl.StringArrayVar(&d.issuers, "issuer", nil, "outside issuer whose tokens are taken too, as ISS=JWKS-URL[;permissions=viewer,contributor][;prefix=NAME]; may be given many times")
	fl.BoolVar(&d.open, "anonymous-read", false, "let those without a token read commons")
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
func (d *doorFlags) parse() (p doors, err error) {
	if p.origins, err = verb.ParseOrigins(d.origins); err != nil {
		return p, &exitError{2, fmt.Errorf("--origin: %w", err)}
	}
	if p.proxies, err = verb.ParseProxies(d.proxies); err != nil {
		return p, &exitError{2, fmt.Errorf("--trusted-proxy: %w", err)}
	}
	for _, text := range d.issuers {
		issuer, err := verb.ParseIssuer(text)
		if err != nil {
			return p, &exitError{2, fmt.Errorf("--issuer: %w", err)}
		}
		p.issuers = append(p.issuers, issuer)
	}
	return p, nil
}

// doors are the flags that had to be parsed.
type doors struct {
	origins []string
	proxies []netip.Prefix
	issuers []verb.Issuer
}
