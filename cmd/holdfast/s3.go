package main

import (
	"context"
	"errors"

	"github.com/holdfast-dvir/holdfast/blob"
)

// s3Flags say which bucket keeps the payloads; without an endpoint, the data folder does.
type s3Flags struct {
	Endpoint          string `name:"s3-endpoint" env:"HOLDFAST_S3_ENDPOINT" help:"Keep payloads in an S3 bucket with Object Lock: URL of the service." placeholder:"URL"`
	Bucket            string `name:"s3-bucket" env:"HOLDFAST_S3_BUCKET" help:"Its bucket." placeholder:"NAME"`
	Region            string `name:"s3-region" env:"HOLDFAST_S3_REGION" default:"us-east-1" help:"Its region." placeholder:"NAME"`
	Prefix            string `name:"s3-prefix" env:"HOLDFAST_S3_PREFIX" help:"Beginning of all keys, with a slash at its end." placeholder:"PREFIX"`
	CredentialsFile   string `name:"s3-credentials" env:"HOLDFAST_S3_CREDENTIALS" help:"Credentials file in the format of ~/.aws/credentials; if absent, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment." placeholder:"FILE" type:"path"`
	PathStyle         bool   `name:"s3-path-style" env:"HOLDFAST_S3_PATH_STYLE" help:"Name the bucket in the path of requests, where the service would take it in the host name too."`
	CAFile            string `name:"s3-ca" env:"HOLDFAST_S3_CA" help:"Certificates (PEM) to trust beside the system's." placeholder:"FILE" type:"path"`
	AllowHTTP         bool   `name:"s3-allow-http" env:"HOLDFAST_S3_ALLOW_HTTP" help:"Send payloads without TLS also to other hosts."`
	RequireEncryption bool   `name:"s3-require-encryption" env:"HOLDFAST_S3_REQUIRE_ENCRYPTION" help:"Refuse a bucket that does not encrypt what is put."`
}

// validate refuses half a bucket.
func (f *s3Flags) validate() error {
	if (f.Endpoint == "") != (f.Bucket == "") {
		return errors.New("--s3-endpoint and --s3-bucket: need each other")
	}
	return nil
}

// set tells whether a bucket keeps the payloads.
func (f *s3Flags) set() bool { return f.Endpoint != "" }

// config is the bucket for the blob room.
func (f *s3Flags) config() blob.BucketConfig {
	return blob.BucketConfig{Endpoint: f.Endpoint, Bucket: f.Bucket, Region: f.Region, Prefix: f.Prefix, PathStyle: f.PathStyle,
		CredentialsFile: f.CredentialsFile, CAFile: f.CAFile, AllowHTTP: f.AllowHTTP, RequireEncryption: f.RequireEncryption}
}

// open connects to the bucket and examines it.
func (f *s3Flags) open(ctx context.Context) (*blob.Bucket, error) {
	return blob.OpenBucket(ctx, f.config())
}

// openToRead connects to the bucket for an audit.
func (f *s3Flags) openToRead(ctx context.Context) (*blob.Bucket, error) {
	config := f.config()
	config.ReadOnly = true
	return blob.OpenBucket(ctx, config)
}
