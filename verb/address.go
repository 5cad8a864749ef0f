package verb

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ParseProxies reads addresses and networks, such as 10.0.0.0/8, of reverse
// proxies that are trusted to say whom they speak for.
func ParseProxies(texts []string) ([]netip.Prefix, error) {
	var proxies []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no address or network such as 10.0.0.0/8", text)
		}
		proxies = append(proxies, p.Masked())
	}
	return proxies, nil
}

// ClientAddress returns the address that a request comes from: the TCP peer's or,
// if that is a trusted proxy, the last one in X-Forwarded-For that is none. What
// stands before it there, anybody may have written.
func ClientAddress(req *http.Request, proxies []netip.Prefix) netip.Addr {
	client := parseAddress(req.RemoteAddr)
	forwarded := strings.Split(strings.Join(req.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
		if !slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(client) }) {
			break
		}
		next := parseAddress(strings.TrimSpace(text))
		if !next.IsValid() {
			break
		}
		client = next
	}
	return client
}

// parseAddress reads an address with or without a port.
func parseAddress(text string) netip.Addr {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	a, _ := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone("")
}

// network returns what one client may hold of addresses: an IPv6 host has all of
// its /64.
func network(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
