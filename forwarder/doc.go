// Package forwarder moves packets: it takes batches of frames from AF_XDP
// queues, decides for each frame, and hands it to the kernel again, in the
// same memory, addressed to the backend that owns its flow.
//
// One [Worker] owns queue q of every interface. Its loop, and the file that
// holds each step, in the order of a packet's journey:
//
//	receive ──► match ──────► track ─────────► deliver ─────► transmit
//	worker.go   match.go      track.go         deliver.go     worker.go
//	            rule, route   flow table hit,  rewrite,
//	            or answer     or selection     choose port,
//	            (answer.go)                    or say why not
//	                                           (originate.go)
//
// Each step runs over a whole batch before the next one starts, so that the
// memory a step needs (frames, flow lines) has been asked for by the step
// before. Every frame ends in exactly one [Verdict]; counters.go keeps the sums.
//
// A frame that leaves by an interface whose queue belongs to another worker,
// or to memory that cannot be shared, is copied through a [Mailbox].
//
// Nothing on this path allocates, locks, logs or reads a clock: the worker
// reads the time and the snapshot once per batch. A [Supervisor], on the
// control side, attaches interfaces, binds queues, gives them to workers, and
// takes them back when an interface vanishes.
package forwarder
