package verb_test

import "github.com/golang-jwt/jwt/v5"

// prism is a front end on another origin.
const prism = "https://prism.example"

func subject(s string) jwt.RegisteredClaims { return jwt.RegisteredClaims{Subject: s} }
