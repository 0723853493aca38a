package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// clientFlags say how a verb reaches the service.
type clientFlags struct {
	Server address `default:"http://127.0.0.1:8420" help:"Address of the service." placeholder:"URL"`
	Token  string  `help:"Access token; if absent, the admin token in the data folder." placeholder:"TOKEN"`
	Data   folder  `default:"./holdfast-data" help:"Data folder, for the admin token." placeholder:"DIR"`
	outputFlag
}

// address is the URL of a service.
type address string

// Validate refuses what is no address, before anything is sent.
func (a address) Validate() error {
	if u, err := url.Parse(string(a)); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL such as http://127.0.0.1:8420")
	}
	return nil
}

// reference names a letter: the SHA-256 of its payload, or the beginning of that.
type reference string

func parseReference(text string) (reference, error) {
	if len(text) < 8 || len(text) > 64 || strings.Trim(text, "0123456789abcdef") != "" {
		return "", errors.ErrUnsupported
	}
	return reference(text), nil
}

// host is what may be shown of an address: it can hold a password.
func (a address) host() string {
	u, err := url.Parse(string(a))
	if err != nil {
		return ""
	}
	return u.Host
}

// client makes the client; without a token it takes the one that serve left in its data folder.
func (c *clientFlags) client() *web.Client {
	token := c.Token
	if token == "" {
		if text, err := os.ReadFile(c.Data.adminToken()); err == nil {
			token = strings.TrimSpace(string(text))
		}
	}
	return &web.Client{URL: string(c.Server), Token: token}
}

// told replaces errors of the connection, which say little to an operator and may quote a request, by words.
func (c *clientFlags) told(err error) error {
	var refused *web.Problem
	var own *exitError
	var connection *net.OpError
	switch {
	case err == nil, errors.As(err, &refused), errors.As(err, &own), errors.Is(err, chain.ErrDamaged):
		return err
	case errors.Is(err, context.Canceled):
		return &exitError{exitFailed, "interrupted"}
	case errors.As(err, &connection) && connection.Op == "dial":
		return exitf(exitUnavailable, "no service answers at %s; is holdfast serve running there? --server says where", c.Server.host())
	}
	return exitf(exitUnavailable, "the connection to %s broke off, or it is no Holdfast service", c.Server.host())
}

// printReceipt shows the answer to an order.
func (c *clientFlags) printReceipt(r web.Receipt, err error) error {
	if err != nil {
		return c.told(err)
	}
	t := receiptTable()
	if err := c.receipt(t, r); err != nil {
		return err
	}
	return t.flush()
}

func receiptTable() *table { return newTable("REF", "DISPOSITION", "CODE", "SEQ", "NEXT ATTEMPT") }

// receipt prints JSON, or adds a row.
func (c *clientFlags) receipt(t *table, r web.Receipt) error {
	if c.json() {
		return printJSON(r)
	}
	t.row(short(r.PayloadRef), string(r.Disposition), r.ErrorCode, number(r.Seq), stamp(r.NextAttemptAt))
	return nil
}

// awaited tells whether processing has come to an outcome.
func awaited(d chain.Disposition) bool { return d != chain.Received && d != chain.Replayed }
