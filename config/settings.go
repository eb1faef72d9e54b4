package config

import "time"

// FlowTable sizes the table of tracked connections.
type FlowTable struct {
	// Entries is the number of connections it has room for, rounded up to a power of two by the table.
	Entries int
	// Path is a file on a tmpfs that keeps the table across restarts; empty to keep it in memory.
	Path string
	// HalfOpenShare is the part of the table that connections of one packet may take.
	HalfOpenShare Ratio
	// TCPHalfOpen and TCPClosing are the lives of connections that have sent one packet, and of those that
	// are closing.
	TCPHalfOpen, TCPClosing time.Duration
	// ExpectedConnectionsPerSec is the rate of new connections the operator expects; 0 when not given.
	ExpectedConnectionsPerSec int
}

var flowTableTable = object[FlowTable]{noun: "flowTable", fields: []*field[FlowTable]{
	key("entries", integer[int](1024, 1<<28), func(f *FlowTable) *int { return &f.Entries },
		"connections there is room for; memory, 64 bytes for each, is taken as it is used").def("4194304"),
	key("path", path(4095, true), func(f *FlowTable) *string { return &f.Path }, "a file on a tmpfs that keeps the table across restarts, with memory for all entries; process memory when empty").def(""),
	key("halfOpenShare", ratio, func(f *FlowTable) *Ratio { return &f.HalfOpenShare }, "part of the table for connections of one packet").def("0.5"),
	key("tcpHalfOpenSec", seconds(time.Second, 600*time.Second, 0), func(f *FlowTable) *time.Duration { return &f.TCPHalfOpen },
		"life of a connection after its first packet").def("30"),
	key("tcpClosingSec", seconds(time.Second, 600*time.Second, 0), func(f *FlowTable) *time.Duration { return &f.TCPClosing },
		"life of a closing connection after its last packet").def("60"),
	key("expectedConnectionsPerSec", integer[int](0, 1<<28), func(f *FlowTable) *int { return &f.ExpectedConnectionsPerSec },
		"new connections a second to expect, for a warning when the table is too small for them; 0 for no opinion").def("0"),
}, finish: func(d *decoder, f *FlowTable) {
	if f.HalfOpenShare == 0 && d.given(&f.HalfOpenShare) {
		d.errorAt(&f.HalfOpenShare, "0 would leave no room for new connections; use more than 0, up to 1")
	}
}}

// Tuning sizes rings, frames and batches.
type Tuning struct {
	// RxRing and TxRing are descriptors in each queue's rings, powers of two.
	RxRing, TxRing int
	// FramesPerQueue is the number of packet buffers for each queue; FrameSize their size in bytes, 2048
	// or 4096.
	FramesPerQueue, FrameSize int
	// Batch is the number of packets handled together, at most.
	Batch     int
	HugePages HugePages
}

// HugePages says whether packet buffers are in huge pages.
type HugePages string

// The options: when there are any free, always, or never.
const (
	HugePagesAuto   HugePages = "auto"
	HugePagesAlways HugePages = "always"
	HugePagesNever  HugePages = "never"
)

var tuningTable = object[Tuning]{noun: "tuning", fields: []*field[Tuning]{
	key("rxRing", powerOfTwo(64, 16384), func(t *Tuning) *int { return &t.RxRing },
		"descriptors of a receive ring: more ride out longer pauses, too many fall out of the processor's cache").def("2048"),
	key("txRing", powerOfTwo(64, 32768), func(t *Tuning) *int { return &t.TxRing },
		"descriptors of a transmit ring: more absorb longer bursts").def("2048"),
	key("framesPerQueue", powerOfTwo(256, 1<<18), func(t *Tuning) *int { return &t.FramesPerQueue },
		"packet buffers of a queue: at least three times rxRing and once txRing").def("8192"),
	key("frameSize", powerOfTwo(2048, 4096), func(t *Tuning) *int { return &t.FrameSize },
		"bytes of a packet buffer: 2048 carries an MTU of 1500, 4096 up to about 3500 at twice the memory").def("2048"),
	key("batch", powerOfTwo(1, 256), func(t *Tuning) *int { return &t.Batch },
		"packets handled together: more hide memory latency, fewer answer sooner").def("64"),
	key("hugePages", enum("", nil, HugePagesAuto, HugePagesAlways, HugePagesNever), func(t *Tuning) *HugePages { return &t.HugePages },
		"packet buffers in huge pages: auto uses them where they are free").def("auto"),
}, finish: func(d *decoder, t *Tuning) {
	// All rings have to be full at once without a frame missing: the fill ring, twice the receive ring so
	// that it never runs dry, the receive ring itself and the transmit ring.
	if least := 3*t.RxRing + t.TxRing; t.FramesPerQueue < least {
		d.errorAt(&t.FramesPerQueue, "%d frames are too few; use at least 3 × rxRing + txRing = %d", t.FramesPerQueue, least)
	}
	if t.Batch > t.TxRing {
		d.errorAt(&t.Batch, "%d is larger than txRing, %d; use at most that", t.Batch, t.TxRing)
	}
}}

// Health is the read-only HTTP view of composite health.
type Health struct {
	// Listen is an address and port; empty for none.
	Listen string
}

var healthTable = object[Health]{noun: "health", fields: []*field[Health]{
	key("listen", listen, func(h *Health) *string { return &h.Listen }, "address and port; none when empty").def(""),
}}

// Admin is control and metrics.
type Admin struct {
	// Socket is the path of the control socket, made with mode 0600.
	Socket string
	// MetricsListen is an address and port; empty for none.
	MetricsListen string
}

// maxSocketPath is what fits sun_path of struct sockaddr_un (unix(7)) with its terminating zero.
const maxSocketPath = 107

var adminTable = object[Admin]{noun: "admin", fields: []*field[Admin]{
	key("socket", path(maxSocketPath, false), func(a *Admin) *string { return &a.Socket }, "path of the control socket, mode 0600").def("/run/zonehop/admin.sock"),
	key("metricsListen", listen, func(a *Admin) *string { return &a.MetricsListen }, "address and port of the metrics; none when empty").def("127.0.0.1:9109"),
}}

// Logging is what is logged and how.
type Logging struct {
	Level  LogLevel
	Format LogFormat
}

// LogLevel is the least severity that is logged.
type LogLevel string

// The levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogFormat is the form of log lines.
type LogFormat string

// The formats. Auto is console on a terminal, else JSON.
const (
	LogAuto    LogFormat = "auto"
	LogConsole LogFormat = "console"
	LogJSON    LogFormat = "json"
)

var loggingTable = object[Logging]{noun: "logging", fields: []*field[Logging]{
	key("level", enum("", nil, LogDebug, LogInfo, LogWarn, LogError), func(l *Logging) *LogLevel { return &l.Level }, "least severity").def("info"),
	key("format", enum("", nil, LogAuto, LogConsole, LogJSON), func(l *Logging) *LogFormat { return &l.Format },
		"auto is console on a terminal, else JSON").def("auto"),
}}
