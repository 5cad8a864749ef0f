package verb

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// layoutWidth is how long a line of a laid out example may be.
const layoutWidth = 96

// Layout writes JSON for people: what fits stands on one line.
func Layout(raw json.RawMessage) string {
	var b strings.Builder
	layOut(&b, raw, "", 0)
	return b.String()
}

// layOut writes a value after a text of some width on its line.
func layOut(b *strings.Builder, raw json.RawMessage, indent string, before int) {
	line := oneLine(raw)
	if before+utf8.RuneCountInString(line) <= layoutWidth || line[0] != '{' && line[0] != '[' {
		b.WriteString(line)
		return
	}
	names, values := members(raw)
	inner := indent + "  "
	b.WriteByte(line[0])
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + inner)
		head := ""
		if names != nil {
			head = names[i] + ": "
		}
		b.WriteString(head)
		layOut(b, v, inner, len(inner)+utf8.RuneCountInString(head)+1)
	}
	b.WriteString("\n" + indent + line[len(line)-1:])
}

// members returns what an object or an array holds, and the names, as JSON, of an
// object's members.
func members(raw json.RawMessage) (names []string, values []json.RawMessage) {
	d := json.NewDecoder(bytes.NewReader(raw))
	open, err := d.Token()
	for err == nil && d.More() {
		if open == json.Delim('{') {
			var name json.Token
			if name, err = d.Token(); err != nil {
				break
			}
			names = append(names, quote(name))
		}
		var v json.RawMessage
		err = d.Decode(&v)
		values = append(values, v)
	}
	return names, values
}

func quote(name json.Token) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(name) != nil { // a text
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// oneLine writes JSON on a line, with a space after each comma and colon.
func oneLine(raw json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	var b strings.Builder
	text, escaped := false, false
	for _, c := range compact.String() {
		b.WriteRune(c)
		switch {
		case escaped:
			escaped = false
		case text && c == '\\':
			escaped = true
		case c == '"':
			text = !text
		case !text && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
}
