package verb

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// An Issuer is an identity provider outside the network whose tokens are taken
// too. Its subjects, and the agents of its delegation chains, are named with a
// prefix here, so that it never speaks for another's agents.
type Issuer struct {
	Name           string       // the iss of its tokens
	JWKSURL        string       // where its keys are; unused when Keys is set
	Audiences      []string     // of its tokens; empty for the verifier's own
	MaxPermissions []Permission // what its tokens may allow in commons; others are dropped
	SubjectPrefix  string       // empty for the name without its scheme, and a colon
	Keys           KeySource    // nil for a RemoteKeys of JWKSURL
}

// ParseIssuer reads an issuer from a flag's text, its name and the URL of its
// keys with options after semicolons, of which lists are separated by commas:
//
//	https://id.example=https://id.example/jwks.json;permissions=viewer,contributor;prefix=example;audience=scidex
//
// Without permissions its tokens are viewers in commons. A prefix that ends in a
// letter or digit is followed by a colon.
func ParseIssuer(text string) (Issuer, error) {
	head, options, _ := strings.Cut(text, ";")
	name, keys, ok := strings.Cut(head, "=")
	i := Issuer{Name: name, JWKSURL: keys, MaxPermissions: []Permission{Viewer}}
	if !ok || name == "" {
		return i, fmt.Errorf("issuer %q: give NAME=URL-OF-ITS-KEYS, such as https://id.example=https://id.example/jwks.json", text)
	}
	for option := range strings.SplitSeq(options, ";") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "":
		case "permissions":
			i.MaxPermissions = strings.Split(value, ",")
		case "audience":
			i.Audiences = strings.Split(value, ",")
		case "prefix":
			if n := len(value); n > 0 && strings.IndexByte(separators, value[n-1]) < 0 {
				value += ":"
			}
			i.SubjectPrefix = value
		default:
			return i, fmt.Errorf("issuer %s: no option %q; there are permissions, prefix and audience", name, key)
		}
	}
	return i, i.check()
}

// separators may end a prefix of subjects.
const separators = ":/|#."

func (i *Issuer) prefix() string {
	if i.SubjectPrefix != "" {
		return i.SubjectPrefix
	}
	name := i.Name
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	return strings.TrimSuffix(name, "/") + ":"
}

func (i *Issuer) check() error {
	if !validName(i.Name) || i.Name == ownIssuer || strings.HasPrefix(i.Name, nodeIssuer) {
		return fmt.Errorf("issuer %q: a name is printable ASCII without space, neither scidex nor that of a node", i.Name)
	}
	if i.Keys == nil {
		if err := checkKeysURL(i.JWKSURL); err != nil {
			return fmt.Errorf("issuer %s: %w", i.Name, err)
		}
	}
	for _, p := range i.MaxPermissions {
		if !slices.Contains(Permissions, p) {
			return fmt.Errorf("issuer %s: no permission %q; they are %s", i.Name, p, strings.Join(Permissions, ", "))
		}
	}
	prefix := i.prefix()
	if !validName(prefix) || len(prefix) > 100 || strings.IndexByte(separators, prefix[len(prefix)-1]) < 0 {
		return fmt.Errorf("issuer %s: the prefix %q is at most 100 printable ASCII characters without space and ends in one of %s", i.Name, prefix, separators)
	}
	if strings.HasPrefix(prefix, ownIssuer) || strings.HasPrefix(prefix, nodeIssuer) {
		return fmt.Errorf("issuer %s: the prefix %q is the network's own; give another", i.Name, prefix)
	}
	if slices.Contains(i.Audiences, "") {
		return fmt.Errorf("issuer %s: an audience is empty", i.Name)
	}
	return nil
}

// checkKeysURL asks for https beyond this machine: whoever can change a key set
// on its way can sign as anybody.
func checkKeysURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("its keys are at an https URL")
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("its keys are at %s; use https beyond this machine", text)
	}
	return nil
}

// A trust is an issuer as the verifier uses it. The network's own has no name.
type trust struct {
	Issuer
	subjects string // prefix
	keys     KeySource
}

func newTrust(i Issuer) *trust {
	t := &trust{Issuer: i, subjects: i.prefix(), keys: i.Keys}
	if t.keys == nil {
		t.keys = &RemoteKeys{URL: i.JWKSURL}
	}
	return t
}

// own reports whether this is the network's hub itself.
func (t *trust) own() bool { return t.Name == "" }

// adapt makes an outside token's claims the network's.
func (t *trust) adapt(c *Claims) {
	if t.own() {
		return
	}
	if c.Subject != "" {
		c.Subject = t.subjects + c.Subject
	}
	for i := range c.DelegationChain {
		if s := &c.DelegationChain[i]; s.ActorID != "" {
			s.ActorID = t.subjects + s.ActorID
		}
	}
	c.Permissions = slices.DeleteFunc(c.Permissions, func(p Permission) bool { return !slices.Contains(t.MaxPermissions, p) })
}
