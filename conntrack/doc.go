// Package conntrack is the flow table: which backend the packets of a flow go
// to, for how long, and how many there were. All workers share one table.
//
//	hash ──┬─ low half ──► bucket ▢▢▢▢▢▢▢▢      8 lines of 64 bytes each,
//	       │                        ▲           one entry per line
//	       │                        └─ home line: looked at first
//	       └─ high half ─► bucket ▢▢▢▢▢▢▢▢
//
// A [Table] is a power of two of lines outside the Go heap. A key may be in two
// buckets of eight lines; in each, one line is its home. Look-ups try the first
// home line, then the lines whose tag, a byte beside the table, says that they
// may hold the key: mostly one, and never more than 16 whatever the load. New
// entries take the first bucket while it is nearly empty, then the emptier
// one, and the home line if it is free. With 2^24 lines (measured through
// Insert, none refused): at 25 % load 85.7 % of the entries are in their first
// home line and 88.7 % in either; at 60 % load, which is 10 M entries, 62.3 %
// and 74.6 %.
//
// # Concurrency
//
// Each goroutine has a [Writer] of its own. Nobody waits for anybody. The
// identity of a line (key and backend) changes only under a sequence number
// that is taken by compare-and-swap; hits write two other words, so a late hit
// cannot bring an old backend back. Readers check the sequence after reading.
// Of writers that insert one key at the same time one wins; see
// [Writer.Insert].
//
// # Lifetime of an entry
//
// Entries start Unconfirmed and become Confirmed with their second packet;
// Unconfirmed ones may use a share of the table only, so that a flood of first
// packets cannot push out what is established. Live entries are never
// displaced: when there is no room, packets go without an entry. Expired entries
// are never found; their lines are used again by insertions that come by, and
// freed by [Writer.Sweep], which workers call in small steps.
//
// # Restarts
//
// A table made by [Open] is a file on a tmpfs, mapped: what writers did is there
// for the next process, however this one ends. The file is locked, says of which
// boot it is, and has a section in which its owner says what the numbers of
// backends and services mean. The next Open empties lines that were half
// written, and moves the entries if the table is to have another size.
//
// The table holds no clock: callers pass the time as a [Tick]. After
// [Table.Close] its memory is gone, and any use faults.
package conntrack
