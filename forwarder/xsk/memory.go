package xsk

// NewMemory makes a UMEM of ordinary memory that no kernel knows, for driving a
// worker without sockets: in tests and benchmarks.
func NewMemory(cfg Config) (*UMEM, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newUMEM(make([]byte, cfg.Frames*cfg.FrameSize), cfg, func() error { return nil })
}
