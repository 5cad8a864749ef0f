module github.com/scidex-ai/substrate/tools

go 1.26.0
