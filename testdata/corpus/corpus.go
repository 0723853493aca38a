// Package corpus is the sample inputs of the project, with their expected outcomes in manifest.json. They are
// synthetic: no real person, vehicle, carrier or report.
package corpus

import "embed"

// Files holds the inputs, manifest.json, and normalised outputs in expected.
//
//go:embed *
var Files embed.FS
