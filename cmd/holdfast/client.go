package main

import (
	"errors"
	"net/url"
	"os"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// clientFlags say how a verb reaches the service.
type clientFlags struct {
	Server string `default:"http://127.0.0.1:8420" help:"Address of the service." placeholder:"URL"`
	Token  string `help:"Access token; default the admin token in the data folder." placeholder:"TOKEN"`
	Data   folder `default:"./holdfast-data" help:"Data folder, for the admin token." placeholder:"DIR"`
	outputFlag
}

// client makes the client; without a token it takes the one that serve left in its data folder.
func (c *clientFlags) client() *web.Client {
	token := c.Token
	if token == "" {
		if text, err := os.ReadFile(c.Data.adminToken()); err == nil {
			token = strings.TrimSpace(string(text))
		}
	}
	return &web.Client{URL: strings.TrimSuffix(c.Server, "/"), Token: token}
}

// told replaces errors of the connection, which quote addresses and queries, by words for an operator.
func told(err error) error {
	var unreached *url.Error
	if errors.As(err, &unreached) {
		return &exitError{exitUnavailable, "the service does not answer; is holdfast serve running there?"}
	}
	return err
}

// printReceipt shows the answer to an order.
func (c *clientFlags) printReceipt(r web.Receipt, err error) error {
	if err != nil {
		return told(err)
	}
	if c.json() {
		return printJSON(r)
	}
	t := newTable("REF", "DISPOSITION", "CODE", "SEQ", "NEXT ATTEMPT")
	t.row(short(r.PayloadRef), string(r.Disposition), r.ErrorCode, number(r.Seq), stamp(r.NextAttemptAt))
	return t.flush()
}

// awaited tells whether processing has come to an outcome.
func awaited(d chain.Disposition) bool { return d != chain.Received && d != chain.Replayed }
