package main

import (
	"errors"
	"fmt"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" group:"Commands:" help:"Create a token and print its secret, once."`
	List   tokenListCmd   `cmd:"" group:"Commands:" help:"List tokens; secrets are not stored."`
	Revoke tokenRevokeCmd `cmd:"" group:"Commands:" help:"Revoke a token by its name."`
}

type tokenFlags struct {
	Data folder `default:"./holdfast-data" help:"Folder of the service." placeholder:"DIR"`
	outputFlag
}

type tokenCreateCmd struct {
	Name string `arg:"" help:"Name of the holder: an identifier, not a person's name."`
	Role string `enum:"submitter,worker,reviewer,auditor,admin" required:"" help:"What it may be used for." placeholder:"ROLE"`
	tokenFlags
}

func (c *tokenCreateCmd) Run() error {
	secret, err := web.OpenTokens(c.Data.tokens()).Create(c.Name, web.Role(c.Role))
	if err != nil {
		return refusedToken(err)
	}
	if c.json() {
		return printJSON(map[string]string{"name": c.Name, "role": c.Role, "secret": secret})
	}
	fmt.Println(secret)
	return nil
}

type tokenListCmd struct{ tokenFlags }

func (c *tokenListCmd) Run() error {
	all, err := web.OpenTokens(c.Data.tokens()).List()
	if err != nil {
		return err
	}
	t := newTable("NAME", "ROLE", "CREATED", "REVOKED")
	for _, token := range all {
		if !c.json() {
			t.row(token.Name, string(token.Role), stamp(token.Created), stamp(token.Revoked))
			continue
		}
		if err := printJSON(map[string]string{"name": token.Name, "role": string(token.Role),
			"created": stamp(token.Created), "revoked": stamp(token.Revoked)}); err != nil {
			return err
		}
	}
	return t.flush()
}

type tokenRevokeCmd struct {
	Name string `arg:"" help:"Name of the token."`
	tokenFlags
}

func (c *tokenRevokeCmd) Run() error {
	if err := web.OpenTokens(c.Data.tokens()).Revoke(c.Name); err != nil {
		return refusedToken(err)
	}
	if c.json() {
		return printJSON(map[string]string{"name": c.Name, "revoked": "true"})
	}
	return nil
}

// refusedToken tells refusals from faults of the file.
func refusedToken(err error) error {
	switch {
	case errors.As(err, new(*chain.FieldError)):
		return &exitError{exitRefused, err.Error()}
	case errors.Is(err, web.ErrTokenExists):
		return &exitError{exitConflict, err.Error()}
	case errors.Is(err, web.ErrUnknownToken):
		return &exitError{exitNotFound, err.Error()}
	}
	return err
}
