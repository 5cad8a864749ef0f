package main

import (
	_ "github.com/99designs/gqlgen/graphql"
	_ "github.com/gorilla/websocket"
	_ "github.com/mattn/go-sqlite3"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/google/go-cmp/cmp"
	_ "golang.org/x/term"
	_ "golang.org/x/sys/unix"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/collectors"
)
func main() {}
