// Package chain holds the facts of custody and the rules that bind them.
package chain
