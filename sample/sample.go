// Package sample holds a small set of artifacts on hypotheses of Alzheimer's disease, for demonstrations and tests.
package sample

import _ "embed"

// JSONL has one object a line, {"type","id","title","content","links"}, each after all that it links to.
// Its facts are public, its sentences are the project's own under CC0-1.0.
//
//go:embed alzheimer.jsonl
var JSONL []byte
