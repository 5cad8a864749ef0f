package artifact_test

import (
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

var hash = "sha256:" + strings.Repeat("0f", artifact.HashSize)

func TestParseRef(t *testing.T) {
	tests := []struct {
		name, in string
		pinned   bool
		bad      bool
	}{
		{name: "current version", in: "hypothesis:h-1"},
		{name: "pinned version", in: "paper:PMID:1@" + hash, pinned: true},
		{name: "an id with colon and slash", in: "paper:DOI:10.1038/nature11283"},
		{name: "an id with a dot", in: "gene:HLA-DRB1.2"},
		{name: "longest id", in: "gene:" + strings.Repeat("x", 256)},
		{name: "no id", in: "hypothesis:", bad: true},
		{name: "no colon", in: "hypothesis", bad: true},
		{name: "empty", in: "", bad: true},
		{name: "upper-case type", in: "Paper:p", bad: true},
		{name: "type of 65 letters", in: strings.Repeat("x", 65) + ":p", bad: true},
		{name: "id too long", in: "gene:" + strings.Repeat("x", 257), bad: true},
		{name: "space", in: "gene:a b", bad: true},
		{name: "not ASCII", in: "gene:é", bad: true},
		{name: "two at signs", in: "gene:a@b@" + hash, bad: true},
		{name: "short hash", in: "paper:p@sha256:0f", bad: true},
		{name: "hash without algorithm", in: "paper:p@" + strings.Repeat("0f", 32), bad: true},
		{name: "upper-case hash", in: "paper:p@sha256:" + strings.Repeat("0F", 32), bad: true},
		{name: "zero hash", in: "paper:p@sha256:" + strings.Repeat("00", 32), bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref, err := artifact.ParseRef(tt.in)
			if tt.bad {
				if !artifact.IsCode(err, artifact.CodeValidationFailed) {
					t.Fatalf("ParseRef(%q) error = %v, want validation_failed", tt.in, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("ParseRef(%q) error = %v", tt.in, err)
			}
			if got := ref.String(); got != tt.in {
				t.Errorf("ParseRef(%q).String() = %q", tt.in, got)
			}
			if got := ref.IsPinned(); got != tt.pinned {
				t.Errorf("ParseRef(%q).IsPinned() = %t, want %t", tt.in, got, tt.pinned)
			}
		})
	}
}

// FuzzParseRef checks that what ParseRef accepts, String writes back unchanged.
func FuzzParseRef(f *testing.F) {
	f.Add("hypothesis:h-1")
	f.Add("paper:PMID:1@" + hash)
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := artifact.ParseRef(s)
		if err != nil {
			t.Skip()
		}
		if got := ref.String(); got != s {
			t.Errorf("round trip of %q gave %q", s, got)
		}
	})
}
