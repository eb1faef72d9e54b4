// Package conntrack is the flow table.
package conntrack
