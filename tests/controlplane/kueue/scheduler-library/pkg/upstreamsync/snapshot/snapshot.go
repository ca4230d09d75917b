// Package snapshot stands in for a module that the checksum database does not know; a build tag leaves it out of the binary.
package snapshot
