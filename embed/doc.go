// Package embed asks models over HTTP what texts mean: an embeddings endpoint for
// vectors, a rerank endpoint for the order of some texts. Nothing leaves the process
// but to the URLs that the operator gave. Begin with client.go.
package embed
