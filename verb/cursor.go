package verb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
)

// A ListCursor is the last artifact of a page: its place in the order of list,
// which is created_at descending, then type, then id.
type ListCursor struct {
	At   time.Time // whole milliseconds
	Type string
	ID   string
}

// cursorVersion is the version of the cursor's form.
const cursorVersion = 1

// maxCursor is the longest cursor that is looked at, in bytes.
const maxCursor = 1024

type cursorBody struct {
	Version int    `json:"v"`
	At      int64  `json:"t"` // milliseconds since 1970
	Type    string `json:"ty"`
	ID      string `json:"id"`
	Filter  string `json:"f"`
}

// EncodeCursor returns c in the opaque form that callers pass back. It holds
// only for a request with the same filter.
func EncodeCursor(c ListCursor, filter string) string {
	raw, err := json.Marshal(cursorBody{cursorVersion, c.At.UnixMilli(), c.Type, c.ID, filterHash(filter)})
	if err != nil { // a struct of numbers and strings
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// DecodeCursor reads what [EncodeCursor] wrote. Its error is an
// [*artifact.Error] with the reason invalid_cursor.
func DecodeCursor(s, filter string) (ListCursor, error) {
	if len(s) > maxCursor {
		return ListCursor{}, invalidCursor(s, "it was not given by list")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	var b cursorBody
	if err != nil || json.Unmarshal(raw, &b) != nil || b.Version != cursorVersion || !artifact.ValidType(b.Type) || !artifact.ValidID(b.ID) {
		return ListCursor{}, invalidCursor(s, "it was not given by list")
	}
	if b.Filter != filterHash(filter) {
		return ListCursor{}, invalidCursor(s, "it is from a request with another filter")
	}
	return ListCursor{At: time.UnixMilli(b.At).UTC(), Type: b.Type, ID: b.ID}, nil
}

// A placeCursor is the last artifact of a page in an order that was asked for.
type placeCursor struct {
	Version int    `json:"v"`
	Values  []any  `json:"k"`
	Type    string `json:"ty"`
	ID      string `json:"id"`
	Filter  string `json:"f"`
	Sum     string `json:"s"` // of all the others
}

func (c placeCursor) sum() string {
	c.Sum = ""
	raw, err := json.Marshal(c)
	if err != nil { // numbers and texts
		return ""
	}
	return filterHash(string(raw))
}

func encodePlace(p query.Place, filter string) string {
	c := placeCursor{Version: placeVersion, Values: p.Values, Type: p.Type, ID: p.ID, Filter: filterHash(filter)}
	c.Sum = c.sum()
	raw, err := json.Marshal(c)
	if err != nil { // numbers and texts
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodePlace(s, filter string) (*query.Place, error) {
	var c placeCursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	switch {
	case len(s) > maxPlace || err != nil || json.Unmarshal(raw, &c) != nil || c.Version != placeVersion || c.Sum != c.sum():
		return nil, invalidCursor(s, "it was not given by list")
	case c.Filter != filterHash(filter):
		return nil, invalidCursor(s, "it is from a request with another filter or sort")
	}
	return &query.Place{Values: c.Values, Type: c.Type, ID: c.ID}, nil
}

const (
	// placeVersion tells the form apart from that of a [ListCursor].
	placeVersion = 2
	// maxPlace is the longest that is looked at: a place may hold texts.
	maxPlace = 64 << 10
)

type nameCursor struct {
	Version int    `json:"v"`
	Last    string `json:"n"`
	Filter  string `json:"f"`
}

// EncodeNameCursor returns the cursor of a list that is in the order of one name.
func EncodeNameCursor(last, filter string) string {
	raw, err := json.Marshal(nameCursor{cursorVersion, last, filterHash(filter)})
	if err != nil { // a struct of numbers and strings
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// DecodeNameCursor reads what [EncodeNameCursor] wrote; "" begins the list.
func DecodeNameCursor(s, filter string) (last string, err error) {
	if s == "" {
		return "", nil
	}
	var c nameCursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	switch {
	case len(s) > maxCursor || err != nil || json.Unmarshal(raw, &c) != nil || c.Version != cursorVersion || c.Last == "":
		return "", invalidCursor(s, "it was not given by this list")
	case c.Filter != filterHash(filter):
		return "", invalidCursor(s, "it is from another request")
	}
	return c.Last, nil
}

// filterHash is short: it tells filters apart, and guards nothing.
func filterHash(filter string) string {
	h := artifact.HashBytes([]byte(filter))
	return base64.RawURLEncoding.EncodeToString(h[:6])
}

func invalidCursor(s, why string) *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidCursor, Message: "this is no cursor of the list: " + why,
		Problems: []artifact.Problem{{Path: "/cursor", Constraint: "cursor", Message: why, Value: artifact.Received(s)}},
	}
}

// PageSize returns how many items a page holds for a request's limit, 0 meaning
// that it names none.
func PageSize(limit int) (int, error) {
	if limit == 0 {
		return DefaultPage, nil
	}
	if limit < 1 || limit > MaxPage {
		return 0, artifact.Invalid(artifact.Problem{
			Path: "/limit", Constraint: "range", Message: fmt.Sprintf("a page holds 1 to %d items", MaxPage),
			Value: json.RawMessage(strconv.Itoa(limit)),
		})
	}
	return limit, nil
}
